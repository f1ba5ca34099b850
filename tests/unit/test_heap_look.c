/* SPDX-License-Identifier: MIT */
/* test_heap_look.c: observe/heap_look and heap_map: what slices are said to be, and the words that
 * describe them. */
#include "unit.h"

#include "large/span.h"
#include "observe/report.h"

static void expect_words(const struct heap_look *look, const char *words)
{
    char buffer[HEAP_MAP_SLICES_SIZE];
    struct text text = {buffer, sizeof buffer - 1, 0};
    hak__heap_map_put_slices(&text, look);
    buffer[text.length] = '\0';
    assert_string_equal(buffer, words);
}

static void put_slab(struct heap_look *look, uint32_t first, struct slab_look slab)
{
    look->slabs[first] = slab;
    look->starts |= UINT64_C(1) << first;
    memset(look->kinds + first, SLICE_SLAB, slab.slices);
}

TEST(words)
{
    static struct heap_look look;
    look.claimed = 64;
    expect_words(&look, "c64");
    memset(look.kinds, SLICE_SPAN, 8); /* ends here, and began in the superslab before */
    memset(look.kinds + 8, SLICE_SPAN, 5);
    memset(look.kinds + 13, SLICE_SPAN, 4);
    look.starts = UINT64_C(1) << 8 | UINT64_C(1) << 13;
    memset(look.kinds + 17, SLICE_KEPT, 3);
    look.kinds[20] = SLICE_FREE_DIRTY;
    look.kinds[21] = SLICE_FREE_AGED;
    expect_words(&look, "t8s5s4k3d1a1c42");
    put_slab(&look, 22, (struct slab_look){1, 6, 1, 100, 0, 241});
    put_slab(&look, 23, (struct slab_look){1, 6, 1, 341, 0, 0});
    put_slab(&look, 24, (struct slab_look){1, 6, 1, 341, 0, 0});
    put_slab(&look, 25, (struct slab_look){1, 6, 1, 300, 41, 0});
    put_slab(&look, 26, (struct slab_look){2, 6, 1, 300, 41, 0});
    put_slab(&look, 30, (struct slab_look){2, 78, 2, 19, 0, 0});
    put_slab(&look, 32, (struct slab_look){2, 78, 2, 19, 0, 0});
    look.claimed = 36;
    expect_words(&look, "t8s5s4k3d1a1h1z6u100u341x2u300f41h2u300f41c3z78u19x2c2");
}

/* The longest description fits. */
TEST(the_longest_words)
{
    static struct heap_look look;
    char buffer[HEAP_MAP_SLICES_SIZE];
    struct text text = {buffer, sizeof buffer - 1, 0};
    look.claimed = 64;
    for (uint32_t i = 0; i < 64; i++) {
        put_slab(&look, i,
                 (struct slab_look){ARENA_ID_MAX - i, (uint8_t)(200 + i % 2), 1, 65535,
                                    (uint16_t)(60000 + i), 0});
    }
    hak__heap_map_put_slices(&text, &look);
    assert_true(text.length < text.size);
}

/* A span of several superslabs is one span, and the slices after its first superslab follow it. */
TEST(a_long_span)
{
    static struct heap_look look;
    struct counters counters = {{0}};
    struct span span = hak__span_allocate_long(&counters, 5 * MIB, 1);
    assert_non_null(span.pointer);
    size_t first = window_slice_of(span.pointer) / SUPERSLAB_SLICES;
    assert_true(first + 3 <= hak__superslabs.count);
    for (size_t i = 0; i < first; i++) {
        hak__heap_look(&look, i);
    }
    hak__heap_look(&look, first);
    expect_words(&look, "s64");
    hak__heap_look(&look, first + 1);
    expect_words(&look, "t64");
    hak__heap_look(&look, first + 2);
    expect_words(&look, "t64");
    assert_int_equal(look.span_left, 0);
    hak__span_free(NULL, NULL, first * SUPERSLAB_SLICES);
    hak__heap_look(&look, first);
    expect_words(&look, "d64");
    hak__superslab_purge();
    hak__heap_look(&look, first);
    expect_words(&look, "c64");
}

/* Owner words are read at different moments, so a span may seem to begin inside another one. Only
 * the first is shown. */
TEST(no_two_overlap)
{
    static struct heap_look look;
    struct counters counters = {{0}};
    struct span span = hak__span_allocate(NULL, &counters, 4 * SLICE_SIZE, SLICE_SIZE);
    assert_non_null(span.pointer);
    size_t slice = window_slice_of(span.pointer), first = slice % SUPERSLAB_SLICES;
    window_set_owner(slice + 1, OWNER_SPAN);
    *(uint32_t *)(void *)window_slab_metadata(slice + 1) = 2; /* its length */
    hak__heap_look(&look, slice / SUPERSLAB_SLICES);
    assert_int_equal(look.starts >> first & 15, 1);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(look.kinds[first + i], SLICE_SPAN);
    }
    window_set_owner(slice + 1, OWNER_NOBODY);
    hak__span_free(NULL, NULL, slice);
}

/* Bytes of slabs and spans count as they are, those of a superslab with small pages not at all. */
TEST(what_fills_a_huge_page)
{
    static struct heap_look look;
    struct huge_use use = {.groups = 1, .found = 1}; /* superslab 0 */
    look.claimed = SUPERSLAB_SLICES;
    memset(look.kinds + 8, SLICE_SPAN, 8);
    look.kinds[20] = SLICE_SPAN;
    look.kinds[21] = SLICE_KEPT;
    put_slab(&look, 0, (struct slab_look){1, 6, 1, 100, 241, 0});
    put_slab(&look, 2, (struct slab_look){1, 78, 2, 19, 0, 0});
    assert_true(hak__huge_use_add(&use, &look));
    uint64_t used = 9 * SLICE_SIZE + 100 * size_class_bytes(6) + 19 * size_class_bytes(78);
    assert_int_equal(use.used_bytes, used);
    assert_int_equal(hak__huge_use_permille(&use), used * 1000 / SUPERSLAB_SIZE);
    look.index = 1;
    assert_false(hak__huge_use_add(&use, &look));
    assert_int_equal(use.refused_count + use.unasked_count, 0); /* it is not resident */
    look.resident[63] = 4096;
    hak__huge_use_add(&use, &look);
    look.huge = true;
    hak__huge_use_add(&use, &look);
    look.huge = false;
    look.split = true;
    hak__huge_use_add(&use, &look);
    assert_true(use.refused_count == 1 && use.unasked_count == 1 && use.superslabs_count == 1);
    assert_true(use.used_bytes == used && use.bytes == SUPERSLAB_SIZE);
    assert_true(use.heap_bytes == 3 * 4096 && !use.unknown);
}

static bool is_in_huge_page(const void *address, struct huge_use *use)
{
    struct heap_look *look = support_map(sizeof *look);
    *use = (struct huge_use){.groups = 0};
    hak__heap_look(look, window_slice_of(address) / SUPERSLAB_SLICES);
    bool is = hak__huge_use_add(use, look);
    munmap(look, sizeof *look);
    return is;
}

static size_t huge_bytes(uintptr_t start, size_t size)
{
    struct huge_use use = {.groups = 0};
    hak__huge_use_add_block(&use, &(struct huge_view){.address = start, .size = size}, size);
    return use.bytes;
}

/* By the kernel's account, another one than hakmem reads: a superslab and a huge block have huge
 * pages, then a part of each is purged. */
TEST(in_huge_pages)
{
    enum { SIZE = 2 * SUPERSLAB_SIZE };
    char *span = hak_aligned_alloc(SUPERSLAB_SIZE, SUPERSLAB_SIZE), *block = hak_malloc(2 * SIZE);
    assert_true(span != NULL && block != NULL);
    char *parts[2] = {span, (char *)bits_align_up((uintptr_t)block, SUPERSLAB_SIZE)};
    const size_t sizes[2] = {SUPERSLAB_SIZE, SIZE};
    struct huge_use use;
    for (size_t i = 0; i < 2; i++) {
        madvise(parts[i], sizes[i], MADV_NOHUGEPAGE);
        madvise(parts[i], sizes[i], MADV_DONTNEED);
        memset(parts[i], 1, sizes[i]);
    }
    bool is = is_in_huge_page(span, &use);
    SKIP_IF(use.unknown); /* a kernel before 6.7, or an emulator */
    assert_false(is);
    assert_int_equal(huge_bytes((uintptr_t)parts[1], SIZE), 0);
    size_t before = hak__os_huge_page_bytes();
    for (size_t i = 0; i < 2; i++) {
        madvise(parts[i], sizes[i], MADV_HUGEPAGE);
        madvise(parts[i], sizes[i], MADV_DONTNEED);
        memset(parts[i], 1, sizes[i]);
    }
    SKIP_IF(hak__os_huge_page_bytes() - before != SUPERSLAB_SIZE + SIZE); /* it gives none now */
    assert_true(is_in_huge_page(span, &use));
    assert_int_equal(hak__huge_use_permille(&use), 1000);
    assert_int_equal(use.bytes, SUPERSLAB_SIZE);
    assert_int_equal(huge_bytes((uintptr_t)parts[1] + 4096, SIZE - 8192), SIZE - 8192);
    madvise(span + SUPERSLAB_SIZE / 2, 4096, MADV_DONTNEED);
    madvise(parts[1], 4096, MADV_DONTNEED);
    assert_false(is_in_huge_page(span, &use));
    assert_int_equal(huge_bytes((uintptr_t)parts[1], SIZE), SUPERSLAB_SIZE);
    hak_free(span);
    hak_free(block);
}

/* Inside an operation, as in a signal handler that interrupted one, there is nothing to see. */
TEST(inside_an_operation)
{
    static struct heap_look look;
    void *object = hak_malloc(100); /* so its superslab stays mapped */
    size_t index = window_slice_of(object) / SUPERSLAB_SLICES;
    assert_true(hak__gate_enter(GATE_BRIEFLY));
    hak__heap_look(&look, index);
    assert_int_equal(look.claimed, 0);
    hak__gate_leave();
    hak__heap_look(&look, index);
    assert_in_range(look.claimed, 1, SUPERSLAB_SLICES);
    hak_free(object);
}

TESTS(unit_start)
