/* SPDX-License-Identifier: MIT */
/* test_emergency.c: large/emergency: blocks of any size and alignment without a lock; they become
 * huge blocks, and what was freed meanwhile is free, when somebody settles. */
#include "../child.h"
#include "../threads/threads.h"
#include "unit.h"

#include "large/emergency.h"
#include "large/huge_registry.h"

static size_t live_count(void)
{
    return hak__huge_totals().live_count;
}

TEST(sizes_and_alignments)
{
    static const size_t sizes[] = {1, 100, 4063, 4064, 4065, 8192, 100000, 3 * MIB};
    for (size_t alignment = 16; alignment <= 4 * MIB; alignment *= 4) {
        for (size_t i = 0; i < COUNT_OF(sizes); i++) {
            size_t before = live_count();
            unsigned char *block = hak__emergency_allocate(sizes[i], alignment);
            assert_non_null(block);
            assert_true((uintptr_t)block % alignment == 0);
            assert_true(block[0] == 0 && block[sizes[i] - 1] == 0);
            size_t usable = hak__huge_bytes(block);
            assert_true(usable >= sizes[i]);
            memset(block, 7, usable); /* what it says may all be used */
            assert_true(hak__huge_containing(block + usable - 1).address == (uintptr_t)block);
            assert_int_equal(hak__huge_bytes(block + 64), 0);
            assert_true(hak__emergency_waits());
            (void)hak__emergency_settle();
            assert_false(hak__emergency_waits());
            assert_int_equal(live_count(), before + 1);
            assert_true(hak__huge_bytes(block) >= usable && block[usable - 1] == 7);
            assert_true(hak__huge_free(block));
            assert_int_equal(live_count(), before); /* small ones are no use to the cache */
            assert_true(sizes[i] > 8192 || !unit_is_mapped((uintptr_t)block));
        }
    }
    assert_null(hak__emergency_allocate(SIZE_MAX, 16));
    assert_null(hak__emergency_allocate(REQUEST_SIZE_MAX, 16));
}

/* The secure form compares the size of a sized free with the block's pages. */
TEST(objects_of_a_refused_thread_have_the_pages_of_their_size)
{
    static const size_t sizes[] = {1, 100, 4096, 4097, 26605, 42410, 65000};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        void *blocks[2];
        hak__thread_flush(hak__thread_current());
        hak__fork_prepare();
        blocks[0] = hak_malloc(sizes[i]);
        blocks[1] = hak_aligned_alloc(64, sizes[i]);
        hak__fork_parent();
        for (size_t j = 0; j < COUNT_OF(blocks); j++) {
            assert_int_equal(hak_usable_size(blocks[j]), hak__emergency_mapped(sizes[i]));
            hak_free_aligned_sized(blocks[j], 16, sizes[i]);
        }
    }
}

/* A free during a fork, then a second one, during the fork or after it. */
struct twice {
    size_t size;
    bool after;
};

static void free_twice(void *argument)
{
    const struct twice *twice = argument;
    void *block = hide(hak_malloc(twice->size));
    REQUIRE(block != NULL);
    hak__gate_close();
    hak_free(block);
    if (twice->after) {
        hak__gate_open();
    }
    hak_free(hide(block));
}

TEST(freed_twice)
{
    static struct twice cases[] = {
        {200000, false}, {200000, true}, {3 * MIB, false}, {3 * MIB, true}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        REQUIRE_DEATH(free_twice, &cases[i], "^hakmem: fatal: .*double free.*pointer 0x");
    }
}

/* One thread resizes a span, or has freed it, and another comes with the same pointer. */
static void free_taken(void *block)
{
    hak__span_take(window_slice_of(block));
    hak_free(block);
}

static void resize_taken(void *block)
{
    hak__span_take(window_slice_of(block));
    (void)hide(hak_realloc(block, 100000));
}

static void resize_taken_late(void *block) /* it has looked before */
{
    hak__span_take(window_slice_of(block));
    hak__span_resize(window_slice_of(block), 100000, false);
}

TEST(a_taken_span)
{
    void *block = hide(hak_malloc(200000));
    REQUIRE_DEATH(free_taken, block, "^hakmem: fatal: .*double free.*pointer 0x");
    REQUIRE_DEATH(resize_taken, block, "^hakmem: fatal: .*double free.*pointer 0x");
    REQUIRE_DEATH(resize_taken_late, block, "^hakmem: fatal: .*double free.*pointer 0x");
    hak_free(block);
}

/* A signal handler that interrupted an operation frees a pointer of somebody else. */
TEST(foreign_memory_is_not_written)
{
    static const char foreign[64] __attribute__((aligned(16))) = "not hakmem's";
    hak__inside |= INSIDE_LOCK;
    hak_free(hide((void *)(uintptr_t)foreign)); /* in memory that is read-only */
    hak_free(hide((void *)(uintptr_t)foreign));
    hak__inside &= ~INSIDE_LOCK;
    assert_true(hak__emergency_waits());
    assert_true(hak__emergency_settle());
    assert_false(hak__emergency_waits());
    assert_string_equal(foreign, "not hakmem's");
}

/* While a fork takes long, a program that allocates and frees does not grow. */
TEST(a_long_fork)
{
    void *kept[3];
    size_t before = live_count(), mapped = address_space_bytes();
    hak__gate_close();
    ALLOCATE_ALL(kept, 3, 3 * MIB);
    for (size_t i = 0; i < 300; i++) { /* the newest of those that were not freed, and another */
        void *first = hak_malloc(3 * MIB), *second = hak_malloc(3 * MIB);
        REQUIRE(first != NULL && second != NULL);
        hak_free(i % 2 == 0 ? first : second);
        hak_free(i % 2 == 0 ? second : first);
    }
    assert_true(address_space_bytes() - mapped < 50 * MIB);
    hak_free(kept[1]);
    hak__gate_open();
    hak_free(kept[2]);
    hak_free(kept[0]);
    assert_int_equal(live_count(), before);
}

static void *close_the_gate(void *unused)
{
    hak__gate_close();
    REQUIRE(hak__emergency_waits()); /* so in the child of the fork, too, which has the rest */
    return NULL;
}

static void *wait_for_the_closed_gate(void *unused)
{
    while (hak__gate_enter(GATE_BRIEFLY)) {
        hak__gate_leave();
    }
    return NULL;
}

/* A fork that begins while much is settled does not wait for all of it, because others make more
 * meanwhile: the process grew for as long as threads forked. */
TEST(a_fork_meanwhile)
{
    enum { COUNT = 1000 };
    static void *blocks[COUNT];
    size_t before = live_count();
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = hak__emergency_allocate(100, 16);
        assert_non_null(blocks[i]);
    }
    pthread_t waits = thread_start(wait_for_the_closed_gate, NULL);
    assert_true(hak__gate_enter(GATE_BRIEFLY));
    pthread_t fork = thread_start(close_the_gate, NULL);
    thread_join(waits);
    assert_false(hak__emergency_settle());
    assert_true(hak__inside == 0 && hak__emergency_waits());
    thread_join(fork);
    hak__gate_open();
    assert_true(live_count() > before && live_count() < before + COUNT / 2);
    for (size_t i = 0; i < COUNT; i++) {
        hak_free(blocks[i]); /* the first settles */
    }
    assert_false(hak__emergency_waits());
    assert_int_equal(live_count(), before);
}

/* glibc may still write to a thread's table of keys in a child that was forked just when the
 * thread's end had freed it. The thread may never have got a struct. */
static void *use_during_forks(void *argument)
{
    void **blocks = argument;
    blocks[0] = hak_malloc(512);
    blocks[1] = hak_malloc(512);
    REQUIRE(blocks[0] != NULL && blocks[1] != NULL && !hak__thread_is_used(hak__thread));
    hak_free(blocks[0]);
    hak__gate_open();
    hak_free(blocks[1]);
    return NULL;
}

TEST(a_table_of_keys_stays_mapped)
{
    void *blocks[2];
    hak__gate_close();
    thread_join(thread_start(use_during_forks, blocks));
    assert_true(unit_is_mapped((uintptr_t)blocks[0]) && unit_is_mapped((uintptr_t)blocks[1]));
    assert_true(hak__emergency_settle());
    assert_false(unit_is_mapped((uintptr_t)blocks[0]) || unit_is_mapped((uintptr_t)blocks[1]));
}

/* Where there is no memory for its entry a block can be freed all the same, later. */
TEST(no_memory_for_the_entry)
{
    enum { BLOCKS_MAX = 50000 };
    static void *blocks[BLOCKS_MAX];
    size_t count = 0, before = live_count();
    do { /* the table is doubled when it is half full */
        assert_true(count < BLOCKS_MAX);
        blocks[count] = hak__emergency_allocate(100, 16);
        assert_non_null(blocks[count++]);
        hak__os_set_limit(0);
        (void)hak__emergency_settle();
        hak__os_set_limit(UINT64_MAX);
    } while (!hak__emergency_waits());
    hak__os_set_limit(0);
    hak_free(blocks[--count]);
    hak__os_set_limit(UINT64_MAX);
    assert_true(hak__emergency_waits());
    assert_true(hak__emergency_settle());
    assert_true(hak__emergency_settle());
    while (count != 0) {
        assert_true(hak__huge_free(blocks[--count]));
    }
    assert_int_equal(live_count(), before);
}

enum { THREADS = 4, ROUNDS = 2000, BLOCKS = 8 };

TESTS(NULL)
