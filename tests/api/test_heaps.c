/* SPDX-License-Identifier: MIT */
/* test_heaps.c: heaps (hakmem/heap.h) in one thread: objects of every size and
 * alignment, destruction, limits, statistics, the walk, moving, and what happens with bad
 * arguments. */
#include "../support.h"

#include <hakmem/heap.h>

struct item {
    unsigned char *bytes;
    size_t size;
    unsigned char fill;
};

static void item_write(struct item *item, void *bytes, size_t size, unsigned char fill)
{
    REQUIRE(bytes != NULL);
    *item = (struct item){bytes, size, fill};
    memset(bytes, fill, size);
}

static void item_check(const struct item *item)
{
    for (size_t i = 0; i < item->size; i += 1 + i / 16) {
        REQUIRE(item->bytes[i] == item->fill);
    }
    REQUIRE(item->size == 0 || item->bytes[item->size - 1] == item->fill);
}

static struct hak_heap_stats stats_of(hak_heap *heap)
{
    struct hak_heap_stats stats;
    hak_heap_stats_read(heap, &stats, sizeof stats);
    REQUIRE(stats.version == 1 && stats.size == sizeof stats);
    REQUIRE_SIZE(stats.bytes_mapped, ==,
                 stats.bytes_in_use + stats.bytes_cached + stats.bytes_free_in_slabs +
                     stats.bytes_free_pages + stats.bytes_tables);
    REQUIRE(stats.limit == 0 || stats.peak_bytes_mapped <= stats.limit);
    return stats;
}

enum { ITEMS = 400 };

/* Random calls of all functions; each object keeps what was written into it. */
static void use_at_random(hak_heap *heap, uint64_t seed, size_t rounds, unsigned bits)
{
    struct item *items = support_map(ITEMS * sizeof *items);
    uint64_t random = seed;
    for (size_t round = 0; round < rounds; round++) {
        struct item *item = &items[random_below(&random, ITEMS)];
        size_t size = random_size(&random, bits);
        unsigned char fill = (unsigned char)random_next(&random);
        if (item->bytes == NULL) {
            size_t alignment = (size_t)1 << random_below(&random, 15);
            bool aligned = random_below(&random, 4) == 0;
            void *bytes = aligned ? hak_heap_aligned_alloc(heap, alignment, size)
                                  : hak_heap_malloc(heap, size);
            if (bytes == NULL) { /* the heap is full: a part of it goes */
                for (size_t i = 0; i < ITEMS; i += 2) {
                    hak_heap_free(heap, items[i].bytes);
                    items[i].bytes = NULL;
                }
                continue;
            }
            REQUIRE(is_aligned(bytes, aligned && alignment > 16 ? alignment : 16));
            REQUIRE_SIZE(hak_heap_usable_size(heap, bytes), >=, size);
            item_write(item, bytes, size, fill);
        } else if (random_below(&random, 8) == 0 && size != 0) {
            item_check(item);
            unsigned char *bytes = hak_heap_realloc(heap, item->bytes, size);
            if (bytes != NULL) {
                size_t kept = item->size < size ? item->size : size;
                *item = (struct item){bytes, kept, item->fill};
                item_check(item);
                item_write(item, bytes, size, fill);
            }
        } else {
            item_check(item);
            hak_heap_free(heap, item->bytes);
            item->bytes = NULL;
        }
    }
    for (size_t i = 0; i < ITEMS; i++) {
        if (items[i].bytes != NULL) {
            item_check(&items[i]);
        }
        hak_heap_free(heap, items[i].bytes);
    }
    munmap(items, ITEMS * sizeof *items);
}

static void check_empty(hak_heap *heap)
{
    hak_heap_trim(heap);
    struct hak_heap_stats stats = stats_of(heap);
    REQUIRE_SIZE(stats.objects_in_use_count, ==, 0);
    REQUIRE_SIZE(stats.bytes_in_use, ==, 0);
    REQUIRE_SIZE(stats.bytes_cached, ==, 0);
    REQUIRE_SIZE(stats.bytes_free_in_slabs, ==, 0);
}

TEST(objects_of_every_size)
{
    hak_heap *heap = hak_heap_create(NULL);
    assert_non_null(heap);
    assert_int_equal(stats_of(heap).bytes_mapped, 0);
    use_at_random(heap, 1, SUPPORT_SLOW ? 20000 : 200000, 16);
    use_at_random(heap, 2, SUPPORT_SLOW ? 1000 : 5000, 22);
    check_empty(heap);
    assert_int_equal(stats_of(heap).chunks_count, 0);
    for (size_t size = 0; size <= 70000; size += size < 1100 ? 1 : 97) {
        unsigned char *bytes = hak_heap_calloc(heap, 1, size);
        assert_non_null(bytes);
        assert_true(hak_heap_usable_size(heap, bytes) >= size);
        for (size_t i = 0; i < size; i++) {
            assert_int_equal(bytes[i], 0);
        }
        memset(bytes, 0xff, hak_heap_usable_size(heap, bytes));
        hak_heap_free_sized(heap, bytes, 1, size);
    }
    for (size_t alignment = 1; alignment <= HAK_HEAP_ALIGNMENT_MAX; alignment *= 2) {
        for (size_t size = 1; size < 3 * MIB; size = size * 3 + 1) {
            void *bytes = hak_heap_aligned_alloc(heap, alignment, size);
            assert_non_null(bytes);
            assert_true(is_aligned(bytes, alignment));
            memset(bytes, 0xff, size);
            hak_heap_free_sized(heap, bytes, alignment, size);
        }
    }
    check_empty(heap);
    hak_heap_destroy(heap);
    hak_heap_destroy(NULL);
}

TEST(destroy_gives_back_everything)
{
    enum { ROUNDS = 5 };
    size_t objects = SUPPORT_SLOW ? 20000 : 1000000;
    struct hak_stats before, after;
    hak_stats_get(&before);
    for (size_t round = 0; round < ROUNDS; round++) {
        hak_heap *heap = hak_heap_create(NULL);
        for (size_t i = 0; i < objects; i++) {
            assert_non_null(hak_heap_malloc(heap, 16 + i % 64));
        }
        assert_non_null(hak_heap_malloc(heap, 10 * MIB));
        struct hak_heap_stats stats = stats_of(heap);
        assert_int_equal(stats.objects_in_use_count, objects + 1);
        hak_heap_destroy(heap);
        hak_stats_get(&after);
        assert_int_equal(after.objects_in_use_count, before.objects_in_use_count);
        assert_int_equal(after.bytes_in_use, before.bytes_in_use);
    }
}

/* Structs of destroyed heaps and their caches serve later ones. */
TEST(many_heaps)
{
    enum { HEAPS = 300 };
    hak_heap *heaps[HEAPS];
    void *objects[HEAPS];
    struct hak_stats before = {0}, after;
    for (size_t round = 0; round < 4; round++) {
        for (size_t i = 0; i < HEAPS; i++) {
            heaps[i] = hak_heap_create(NULL);
            assert_non_null(heaps[i]);
        }
        for (size_t turn = 0; turn < 3; turn++) { /* more heaps than slots of the thread */
            for (size_t i = 0; i < HEAPS; i++) {
                objects[i] = hak_heap_malloc(heaps[i], 100 + i);
                assert_non_null(objects[i]);
                memset(objects[i], (int)i, 100 + i);
            }
            for (size_t i = 0; i < HEAPS; i++) {
                assert_int_equal(*(unsigned char *)objects[i], i & 0xff);
                assert_true(hak_heap_owns(heaps[i], objects[i]));
                assert_false(hak_heap_owns(heaps[(i + 1) % HEAPS], objects[i]));
                hak_heap_free(heaps[i], objects[i]);
            }
        }
        for (size_t i = 0; i < HEAPS; i++) {
            assert_int_equal(stats_of(heaps[i]).threads_count, 1);
            hak_heap_destroy(heaps[i]);
        }
        hak_stats_get(&after);
        if (round != 0) {
            assert_int_equal(after.bytes_metadata, before.bytes_metadata);
        }
        before = after;
    }
}

TEST(plain_functions)
{
    static const size_t sizes[] = {1, 16, 100, 5000, 65536, 100000, 600000, 5 * MIB};
    hak_heap *heap = hak_heap_create(NULL);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        unsigned char *bytes = hak_heap_malloc(heap, sizes[i]);
        assert_non_null(bytes);
        memset(bytes, 7, sizes[i]);
        assert_int_equal(hak_usable_size(bytes), hak_heap_usable_size(heap, bytes));
        assert_true(hak_owns(bytes));
        errno = ERRNO_UNTOUCHED;
        hak_free(bytes);
        assert_int_equal(errno, ERRNO_UNTOUCHED);
        bytes = hak_heap_malloc(heap, sizes[i]);
        memset(bytes, 9, sizes[i]);
        bytes = hak_realloc(bytes, 3 * sizes[i]);
        assert_non_null(bytes);
        assert_true(hak_heap_owns(heap, bytes));
        assert_int_equal(bytes[0], 9);
        assert_int_equal(bytes[sizes[i] - 1], 9);
        assert_null(hak_realloc(bytes, 0));
    }
    check_empty(heap);
    hak_heap_destroy(heap);
}

/* --- the walk --- */

struct seen {
    void **objects;
    size_t count;
    size_t bytes;
    size_t most;
};

static bool see(void *object, size_t bytes, void *argument)
{
    struct seen *seen = argument;
    REQUIRE(*(void **)object == object); /* each object points to itself */
    *(void **)object = NULL;             /* and is seen once */
    seen->count++;
    seen->bytes += bytes;
    return seen->count < seen->most;
}

TEST(walk)
{
    enum { OBJECTS = 5000 };
    void **objects = support_map(OBJECTS * sizeof *objects);
    hak_heap *heap = hak_heap_create(NULL);
    uint64_t random = 3;
    size_t live = 0;
    for (size_t i = 0; i < OBJECTS; i++) {
        size_t alignment = i % 50 == 0 ? 64 * KIB : 16;
        size_t size = i % 1000 == 7 ? 700 * KIB : 16 + random_size(&random, 15);
        objects[i] = hak_heap_aligned_alloc(heap, alignment, size);
        assert_non_null(objects[i]);
    }
    for (size_t i = 0; i < OBJECTS; i++) {
        if (random_below(&random, 2) == 0) {
            hak_heap_free(heap, objects[i]);
        } else {
            *(void **)objects[i] = objects[i];
            live++;
        }
    }
    struct seen seen = {objects, 0, 0, SIZE_MAX};
    assert_true(hak_heap_walk(heap, see, &seen));
    assert_int_equal(seen.count, live);
    struct hak_heap_stats stats = stats_of(heap);
    assert_int_equal(stats.objects_in_use_count, live);
    assert_int_equal(stats.bytes_in_use, seen.bytes);
    assert_int_equal(stats.bytes_cached, 0);
    hak_heap_destroy(heap);

    heap = hak_heap_create(NULL);
    for (size_t i = 0; i < 10; i++) {
        void **object = hak_heap_malloc(heap, 48);
        *object = object;
    }
    seen = (struct seen){objects, 0, 0, 4};
    assert_false(hak_heap_walk(heap, see, &seen));
    assert_int_equal(seen.count, 4);
    hak_heap_destroy(heap);
    munmap(objects, OBJECTS * sizeof *objects);
}

/* --- moving --- */

TEST(moving_makes_dense)
{
    enum { OBJECTS = 40000, KEPT = OBJECTS / 8, SIZE = 200 };
    uint64_t **objects = support_map(OBJECTS * sizeof *objects);
    hak_heap *heap = hak_heap_create(NULL);
    uint64_t random = 4;
    for (size_t i = 0; i < OBJECTS; i++) {
        objects[i] = hak_heap_malloc(heap, SIZE);
        memset(objects[i], (int)i, SIZE);
        objects[i][0] = i;
    }
    for (size_t left = OBJECTS; left > KEPT;) { /* at random places */
        size_t i = random_below(&random, OBJECTS);
        left -= objects[i] != NULL;
        hak_heap_free(heap, objects[i]);
        objects[i] = NULL;
    }
    hak_heap_trim(heap);
    size_t before = stats_of(heap).bytes_free_in_slabs;
    size_t moved, passes = 0;
    do {
        moved = 0;
        for (size_t i = 0; i < OBJECTS; i++) {
            if (objects[i] == NULL) {
                continue;
            }
            bool helps = hak_heap_move_helps(heap, objects[i]);
            uint64_t *object = hak_heap_move(heap, objects[i]);
            assert_true((object != objects[i]) == helps);
            moved += helps;
            objects[i] = object;
        }
        passes++;
    } while (moved != 0 && passes < 100);
    hak_heap_trim(heap);
    struct hak_heap_stats stats = stats_of(heap);
    assert_int_equal(stats.objects_in_use_count, KEPT);
    assert_true(moved == 0);
    /* One slab has room; and in each slab the end is unused. */
    REQUIRE_SIZE(stats.bytes_free_in_slabs, <, 16 * KIB + stats.bytes_in_use / 16);
    REQUIRE_SIZE(before, >, 4 * stats.bytes_in_use);
    for (size_t i = 0; i < OBJECTS; i++) {
        if (objects[i] != NULL) {
            assert_int_equal(objects[i][0], i);
            assert_int_equal(((unsigned char *)objects[i])[SIZE - 1], i & 0xff);
        }
    }
    void *block = hak_heap_malloc(heap, 100000);
    assert_false(hak_heap_move_helps(heap, block));
    assert_ptr_equal(hak_heap_move(heap, block), block);
    hak_heap_destroy(heap);
    munmap(objects, OBJECTS * sizeof *objects);
}

/* --- limits and events --- */

struct told {
    size_t count;
    size_t agree; /* that many events are answered by true */
    enum hak_heap_event event;
    size_t size;
    void *pointer;
    size_t limit; /* set at an agreed OVER_LIMIT */
};

static bool tell(hak_heap *heap, enum hak_heap_event event, size_t size, void *pointer,
                 void *argument)
{
    struct told *told = argument;
    *told = (struct told){told->count + 1, told->agree, event, size, pointer, told->limit};
    if (told->agree == 0) {
        return false;
    }
    told->agree--;
    if (told->limit != 0) {
        hak_heap_limit_set(heap, told->limit);
    }
    return true;
}

TEST(limit)
{
    static const size_t limits[] = {20 * KIB, 100 * KIB, 512 * KIB, 700 * KIB + 5, 5 * MIB};
    for (size_t i = 0; i < COUNT_OF(limits); i++) {
        struct told told = {0};
        struct hak_heap_options options = {.size = sizeof options,
                                           .name = "bounded",
                                           .limit = limits[i],
                                           .event = tell,
                                           .event_argument = &told};
        hak_heap *heap = hak_heap_create(&options);
        assert_string_equal(hak_heap_name(heap), "bounded");
        size_t taken = 0;
        errno = 0;
        while (hak_heap_malloc(heap, 1000) != NULL) {
            taken += 1000;
        }
        assert_int_equal(errno, ENOMEM);
        assert_int_equal(told.count, 1);
        assert_int_equal(told.event, HAK_HEAP_OVER_LIMIT);
        struct hak_heap_stats stats = stats_of(heap);
        assert_true(stats.bytes_mapped <= limits[i]);
        assert_int_equal(stats.failures_count, 1);
        REQUIRE_SIZE(taken + 8 * KIB + limits[i] / 8, >=, limits[i]);
        assert_null(hak_heap_malloc(heap, 2 * limits[i]));
        assert_int_equal(told.count, 2);
        told.agree = 1;
        told.limit = 8 * limits[i] + 8 * KIB;
        void *block = hak_heap_malloc(heap, 2 * limits[i]);
        assert_non_null(block);
        assert_int_equal(told.count, 3);
        assert_int_equal(stats_of(heap).limit, told.limit);
        hak_heap_destroy(heap);
        use_at_random(heap = hak_heap_create(&options), i, SUPPORT_SLOW ? 2000 : 20000, 14);
        check_empty(heap);
        hak_heap_destroy(heap);
    }
}

/* Frees the object that the program has set aside. */
static bool let_go(hak_heap *heap, enum hak_heap_event event, size_t size, void *pointer,
                   void *argument)
{
    (void)event, (void)size, (void)pointer;
    void **aside = argument, *object = *aside;
    *aside = NULL;
    hak_heap_free(heap, object);
    return object != NULL;
}

TEST(what_an_event_function_frees_is_found)
{
    enum { BYTES = 4 * MIB };
    void *memory = support_map(BYTES), *aside = NULL;
    static const size_t sizes[] = {100, 2000, 100000};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct hak_heap_options options = {.size = sizeof options,
                                           .memory = memory,
                                           .memory_size = BYTES,
                                           .event = let_go,
                                           .event_argument = &aside};
        hak_heap *heap = hak_heap_create(&options);
        void *object, *last = NULL;
        while ((object = hak_heap_malloc(heap, sizes[i])) != NULL) {
            last = object;
        }
        aside = last;
        assert_ptr_equal(hak_heap_malloc(heap, sizes[i]), last);
        assert_null(aside);
        assert_null(hak_heap_malloc(heap, sizes[i]));
        hak_heap_destroy(heap);
    }
    munmap(memory, BYTES);
}

TEST(bad_pointers_are_told)
{
    struct told told = {.agree = 100};
    struct hak_heap_options options = {
        .size = sizeof options, .event = tell, .event_argument = &told};
    hak_heap *heap = hak_heap_create(&options), *other = hak_heap_create(NULL);
    char *object = hak_heap_malloc(heap, 100), *block = hak_heap_malloc(heap, 100000);
    char *strange = hak_heap_malloc(other, 100);
    void *wrong[] = {object + 16, block + 4096, block + 16, strange, hak_malloc(100)};
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        if (i == 0 && HAK_LEVEL == 0) {
            continue; /* the first free inside an object is not noticed in the ordinary build */
        }
        size_t before = told.count;
        hak_heap_free(heap, hide(wrong[i]));
        assert_int_equal(told.count, before + 1);
        assert_int_equal(told.event, HAK_HEAP_BAD_POINTER);
        assert_ptr_equal(told.pointer, wrong[i]);
        assert_int_equal(hak_heap_usable_size(heap, hide(wrong[i])), 0);
    }
    size_t before = told.count;
    hak_heap_free(heap, object);
    hak_heap_free(heap, hide(object));
    assert_int_equal(told.count, before + 1);
    hak_heap_destroy(heap);
    hak_heap_destroy(other);
    hak_free(wrong[4]);
}

TEST(bad_arguments)
{
    static char memory[64 * 1024];
    struct hak_heap_pages none = {NULL, NULL, NULL, NULL};
    struct hak_heap_options wrong[] = {
        {.size = 0},
        {.size = sizeof wrong[0] - 1},
        {.size = sizeof wrong[0], .memory = memory, .memory_size = HAK_HEAP_MEMORY_MIN - 1},
        {.size = sizeof wrong[0], .memory = memory},
        {.size = sizeof wrong[0], .memory_size = sizeof memory},
        {.size = sizeof wrong[0], .memory = memory, .memory_size = SIZE_MAX},
        {.size = sizeof wrong[0], .memory = memory, .memory_size = sizeof memory, .limit = 1},
        {.size = sizeof wrong[0], .memory = memory, .memory_size = sizeof memory, .pages = &none},
        {.size = sizeof wrong[0], .pages = &none},
    };
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        errno = 0;
        assert_null(hak_heap_create(&wrong[i]));
        assert_int_equal(errno, EINVAL);
    }
    char name[200];
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = '\0';
    struct hak_heap_options named = {.size = sizeof named, .name = name};
    hak_heap *heap = hak_heap_create(&named);
    assert_int_equal(strlen(hak_heap_name(heap)), HAK_HEAP_NAME_MAX);
    static const size_t alignments[] = {0, 3, 24, 2 * HAK_HEAP_ALIGNMENT_MAX, SIZE_MAX};
    for (size_t i = 0; i < COUNT_OF(alignments); i++) {
        errno = 0;
        assert_null(hak_heap_aligned_alloc(heap, hide_size(alignments[i]), 10));
        assert_int_equal(errno, EINVAL);
    }
    static const size_t sizes[] = {SIZE_MAX, PTRDIFF_MAX, SIZE_MAX / 2 + 1, (size_t)1 << 60};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        errno = 0;
        assert_null(hak_heap_malloc(heap, hide_size(sizes[i])));
        assert_int_equal(errno, ENOMEM);
        assert_null(hak_heap_aligned_alloc(heap, 4096, hide_size(sizes[i])));
        assert_null(hak_heap_calloc(heap, hide_size(sizes[i]), 16));
        void *object = hak_heap_malloc(heap, 50);
        assert_null(hak_heap_realloc(heap, object, hide_size(sizes[i])));
        hak_heap_free(heap, object);
    }
    assert_int_equal(stats_of(heap).failures_count, 4 * COUNT_OF(sizes)); /* wrong alignments: no */
    assert_null(hak_heap_realloc(heap, hak_heap_realloc(heap, NULL, 10), 0));
    assert_int_equal(hak_heap_usable_size(heap, NULL), 0);
    assert_null(hak_heap_move(heap, NULL));
    assert_false(hak_heap_move_helps(heap, NULL));
    assert_false(hak_heap_owns(heap, NULL));
    assert_false(hak_heap_owns(heap, memory));
    errno = ERRNO_UNTOUCHED;
    hak_heap_free(heap, NULL);
    hak_heap_free_sized(heap, NULL, 1, 10);
    hak_heap_trim(heap);
    hak_heap_destroy(heap);
    assert_int_equal(errno, ERRNO_UNTOUCHED);
}

TESTS(NULL)
