/* SPDX-License-Identifier: MIT */
/* test_numa.c: region/numa and what depends on it, with threads on nodes that the test names: whose
 * slices, arenas, spans and huge blocks go to whom. tests/numa has a kernel with nodes.
 *
 * ctest: no-qemu
 */
#include "arenas.h"

#include "large/huge_cache.h"

enum { FIRST = 2, OTHER = 5, THIRD = 0, NODES = 3 };
static const unsigned nodes[NODES] = {FIRST, OTHER, THIRD};

static _Thread_local unsigned node_now = FIRST;
static unsigned flips;   /* 1: the thread is on another node at every other tick */
static unsigned ticks;   /* meanwhile */
static uint32_t tick_ms; /* clock of the last of them */

static long named_node(unsigned *processor, unsigned *node, void *unused)
{
    *processor = 0;
    if (flips != 0 && hak__thread->ticked_ms != tick_ms) {
        tick_ms = hak__thread->ticked_ms;
        ticks++;
    }
    *node = flips != 0 && ticks % 2 != 0 ? OTHER : node_now;
    return 0;
}

static void go(unsigned node)
{
    node_now = node;
    assert_int_equal(hak__numa_look(), node ^ FIRST);
}

static int start(void **state)
{
    REQUIRE(unit_start(state) == 0);
    hak__os_getcpu = named_node;
    hak__knobs.arenas_max = hak__knobs.arenas_crowded_max = 3;
    return 0;
}

static size_t take(uint32_t count)
{
    uint32_t part = hak__superslab_part_near(numa_node());
    if (hak__superslab_parts[part]->node != numa_node()) {
        part = hak__superslab_part_for(numa_node());
    }
    size_t slice = hak__superslab_take(part, count, 1, FOR_SLAB).slice;
    REQUIRE(slice != SLICE_NONE);
    return slice;
}

/* What runs first: nothing differs as long as all threads are on one node, whichever that is. */
TEST(one_node)
{
    uint64_t maps = hak__os_calls[OS_CALL_MAP];
    assert_int_equal(hak__numa_look(), 0);
    struct thread *thread = adopt();
    hak__thread_park(thread);
    assert_false(hak__numa_several);
    assert_int_equal(take(1) / SUPERSLAB_SLICES, 0);
    assert_true(hak__os_calls[OS_CALL_MAP] <= maps + 1);
}

TEST_WITH_KNOBS(switched_off)
{
    hak__knobs.numa = false;
    node_now = OTHER;
    assert_int_equal(hak__numa_look(), 0);
    assert_false(hak__numa_several);
    hak__knobs.numa = true;
    go(OTHER);
    assert_true(hak__numa_several);
    go(FIRST);
}

enum { RUNS = 300, LENGTH = 40 }; /* five groups for each node: a superslab has room for one run */
static size_t runs[NODES][RUNS];

static void require_own(size_t number)
{
    for (size_t other = 0; other < NODES; other++) {
        go(nodes[other]);
        for (size_t i = 0; i < RUNS; i++) {
            assert_int_equal(numa_is_far(runs[number][i]), other != number);
        }
    }
}

/* Nodes claim groups of their own, and get their freed slices back, but no others. */
TEST(slices_stay_on_their_node)
{
    for (size_t i = 0; i < NODES * RUNS; i++) {
        go(nodes[i % NODES]);
        runs[i % NODES][i / NODES] = take(LENGTH);
    }
    for (size_t number = 0; number < NODES; number++) {
        require_own(number);
    }
    size_t claimed = hak__superslab_bytes_claimed();
    for (size_t round = 0; round < NODES; round++) { /* one node has free slices, and no other */
        for (size_t i = 0; i < RUNS; i++) {
            hak__superslab_give(runs[round][i], LENGTH);
        }
        for (size_t number = 0; number < NODES; number++) {
            go(nodes[number]);
            size_t slice = take(LENGTH);
            assert_false(numa_is_far(slice));
            assert_true(number != round || hak__superslab_bytes_claimed() == claimed);
            claimed = hak__superslab_bytes_claimed();
            hak__superslab_give(slice, LENGTH);
        }
        go(nodes[round]);
        for (size_t i = 0; i < RUNS; i++) {
            runs[round][i] = take(LENGTH);
        }
        require_own(round);
        assert_true(hak__superslab_bytes_claimed() == claimed);
    }
    for (uint32_t i = 0; i < superslab_parts(); i++) {
        assert_true(hak__superslab_index_is_right(hak__superslab_parts[i]));
    }
    for (size_t i = 0; i < NODES * RUNS; i++) {
        hak__superslab_give(runs[i % NODES][i / NODES], LENGTH);
    }
    hak__superslab_release();
    go(OTHER); /* maps its own again */
    assert_false(numa_is_far(take(LENGTH)));
    go(FIRST);
}

/* Whole superslabs side by side, more than the rest of a group. */
TEST(long_runs)
{
    for (size_t i = 0; i < 2 * NODES; i++) {
        go(nodes[i % NODES]);
        size_t count = 70, slice = hak__superslab_take_run(count).slice;
        REQUIRE(slice != SLICE_NONE);
        for (size_t j = 0; j < count; j++) {
            assert_false(numa_is_far(slice + j * SUPERSLAB_SLICES));
        }
        assert_false(numa_is_far(take(1)));
    }
    go(FIRST);
}

TEST(without_memory_any_node_helps)
{
    go(OTHER);
    size_t slice = take(SUPERSLAB_SLICES);
    hak__superslab_give(slice, SUPERSLAB_SLICES);
    go(FIRST);
    hak__os_set_limit(hak__os_mapped_bytes());
    for (size_t far = 0; far == 0;) {
        far = numa_is_far(take(1));
    }
    hak__os_set_limit(UINT64_MAX);
    assert_false(numa_is_far(take(SUPERSLAB_SLICES)));
}

TEST(arenas_by_node)
{
    go(FIRST);
    struct thread *first = adopt();
    go(OTHER);
    struct thread *other = adopt(), *another = adopt();
    assert_ptr_not_equal(first->arena, other->arena);
    assert_ptr_not_equal(other->arena, another->arena);
    struct thread *third = adopt(); /* there are three arenas with threads */
    assert_true(third->arena == other->arena || third->arena == another->arena);
    go(THIRD);
    struct thread *last = adopt(); /* the first one of its node */
    assert_int_equal(last->arena->node, THIRD ^ FIRST);
    assert_int_equal(arenas_count(), 4);

    go(OTHER);
    uint32_t class_index =
        size_class_of(2000); /* objects that arenas lend, and others' bins keep */
    void *object = thread_allocate(other, class_index);
    void *kept = thread_allocate(other, class_index);
    go(FIRST);
    first->cache.bins[class_index].room = 1;
    assert_false(hak__remote_keep(&first->cache, class_index, object));
    first->cache.bins[class_index].room = 0;
    thread_free(other, class_index, object);
    hak__thread_flush(other);
    assert_int_equal(hak__arena_borrow(first->arena, class_index, 1).count, 0);
    struct object_list list = {NULL, 0};
    for (int i = 0; i < 8 && list.count == 0; i++) { /* not all arenas are asked at once */
        list = hak__arena_borrow(another->arena, class_index, 1);
    }
    assert_int_equal(list.count, 1);
    thread_free(other, class_index, list.head);
    thread_free(other, class_index, kept);

    struct thread *all[] = {first, other, another, third, last};
    for (size_t i = 0; i < COUNT_OF(all); i++) {
        hak__thread_park(all[i]);
    }
    go(OTHER);
    other = adopt();
    assert_int_equal(other->arena->node, OTHER ^ FIRST); /* not the idle ones of others */
    assert_int_equal(arenas_count(), 4);
    hak__thread_park(other);
    go(FIRST);
}

/* A freed span is kept for threads of its node only. */
TEST(spans)
{
    go(OTHER);
    struct thread *thread = adopt();
    keep_a_span(thread);
    assert_true(thread->arena->spans.slices != 0);
    REQUIRE(lock_acquire_soon(&thread->arena->lock));
    hak__span_cache_trim(&thread->arena->spans, true);
    go(FIRST);
    struct span span = hak__span_allocate(NULL, &thread->cache.counters, MIB, SLICE_SIZE);
    REQUIRE(span.pointer != NULL);
    go(OTHER);
    hak__span_free(&thread->arena->spans, &thread->cache.counters, window_slice_of(span.pointer));
    assert_int_equal(thread->arena->spans.slices, 0);
    lock_release(&thread->arena->lock);
    hak__thread_park(thread);
    go(FIRST);
}

static void *block(size_t size)
{
    void *pointer = hak__huge_allocate(size, hak__os_page_size(), false, true).pointer;
    REQUIRE(pointer != NULL);
    return pointer;
}

static size_t cached_bytes(void)
{
    return hak__huge_totals().cached_bytes;
}

/* So much more was in use lately: that bounds what is kept. */
static void raise_peak(size_t superslabs)
{
    static size_t slices[100];
    for (size_t i = 0; i < superslabs; i++) {
        slices[i] = take(SUPERSLAB_SLICES);
    }
    for (size_t i = 0; i < superslabs; i++) {
        hak__superslab_give(slices[i], SUPERSLAB_SLICES);
    }
    (void)hak__superslab_purge_beyond(0, SIZE_MAX);
}

/* Freed huge blocks too, also if they have grown, or were joined from several. */
TEST_WITH_KNOBS(huge_blocks)
{
    enum { PARTS = 4 };
    void *parts[PARTS];
    hak__knobs.purge_delay_ms = UINT32_MAX;
    hak__knobs.huge_threshold = UINT64_MAX;
    raise_peak(100);
    for (size_t i = 0; i < PARTS; i++) {
        parts[i] = memset(block(8 * MIB), 1, 8 * MIB);
    }
    parts[0] = hak__huge_resize(parts[0], 10 * MIB, false).pointer;
    REQUIRE(parts[0] != NULL);
    for (size_t i = 0; i < PARTS; i++) {
        hak__huge_free(parts[i]);
    }
    size_t cached = cached_bytes();
    assert_int_equal(cached, 34 * MIB);
    go(OTHER);
    void *small = block(4 * MIB), *large = block(30 * MIB); /* no part, nor joined */
    assert_int_equal(cached_bytes(), cached);
    assert_int_equal(hak__huge_joined_bytes, 0);
    go(FIRST);
    void *joined = memset(block(24 * MIB), 1, 24 * MIB);
    assert_int_equal(hak__huge_joined_bytes, 24 * MIB);
    hak__huge_free(joined);
    assert_int_equal(cached_bytes(), cached);
    go(OTHER);
    void *other = block(20 * MIB);
    assert_int_equal(cached_bytes(), cached);
    hak__huge_free(small);
    hak__huge_free(large);
    hak__huge_free(other);
    go(FIRST);
    hak__huge_free(block(24 * MIB));
    assert_int_equal(hak__huge_joined_bytes, 24 * MIB); /* the same */
    hak__huge_cache_trim(0);
}

static void allocate_for_a_tick(void)
{
    for (unsigned from = ticks; ticks == from;) {
        hak_free(hak_malloc(3000));
    }
}

/* A thread that stays away moves to an arena of its node; one that comes back does not. */
TEST_WITH_KNOBS(threads_follow)
{
    hak__knobs.purge_delay_ms = 8; /* a tick each 4 ms */
    go(FIRST);
    hak_free(hak_malloc(1));
    struct arena *arena = hak__thread->arena;
    flips = 1;
    for (int i = 0; i < 20; i++) {
        allocate_for_a_tick();
        assert_ptr_equal(hak__thread->arena, arena);
    }
    flips = 0;
    node_now = OTHER;
    while (hak__thread->arena->node != (OTHER ^ FIRST)) {
        hak_free(hak_malloc(3000));
    }
    void *block = hak_malloc(3000);
    assert_false(numa_is_far(window_slice_of(block)));
    hak_free(block);
    node_now = FIRST;
    while (hak__thread->arena->node != 0) {
        hak_free(hak_malloc(3000));
    }
}

TESTS(start)
