/* SPDX-License-Identifier: MIT */
/* test_apart.c: a thread's second struct, for long-lived objects (arena/thread.c). */
#include "forks.h"

#include "control/census.h"
#include "hakmem/hakmem.h"

enum { COUNT = 2000, SIZE = 100 };

/* The id of the arena that the block's slab belongs to. */
static uint32_t arena_of(const void *block)
{
    return window_owner(window_slice_of(block)) >> OWNER_CODE_BITS;
}

static void fill(void *blocks[COUNT], unsigned char mark)
{
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = hak_malloc(SIZE);
        REQUIRE(blocks[i] != NULL);
        memset(blocks[i], mark, SIZE);
    }
}

static void drain(void *blocks[COUNT], unsigned char mark)
{
    for (size_t i = 0; i < COUNT; i++) {
        REQUIRE(((unsigned char *)blocks[i])[0] == mark &&
                ((unsigned char *)blocks[i])[SIZE - 1] == mark);
        hak_free(blocks[i]);
    }
}

TEST(objects_lie_apart)
{
    static void *usual[COUNT], *apart[COUNT];
    fill(usual, 1);
    hak__thread_turn(true);
    assert_true(hak__thread->apart);
    fill(apart, 2);
    for (size_t i = 1; i < COUNT; i++) {
        assert_int_equal(arena_of(apart[i]), arena_of(apart[0]));
        assert_int_not_equal(arena_of(usual[i]), arena_of(apart[i]));
    }
    drain(usual, 1); /* each kind is freed by the other */
    hak__thread_turn(false);
    assert_false(hak__thread->apart);
    drain(apart, 2);
    hak_trim(0); /* flushes both */
    assert_int_equal(hak__cache_bytes(&hak__thread->cache), 0);
    assert_int_equal(hak__cache_bytes(&hak__thread->twin->cache), 0);
    void *block = hak_malloc(SIZE);
    assert_int_not_equal(arena_of(block), hak__thread->twin->arena->id);
    hak_free(block);
}

/* The arena for long-lived objects is no arena that threads join, and none of those that the option
 * allows. */
static void *join_another(void *argument)
{
    const struct thread *other = argument;
    hak_free(hak_malloc(SIZE));
    REQUIRE(hak__thread->arena == other->arena && !hak__thread->apart && hak__thread->twin == NULL);
    return NULL;
}

TEST_WITH_KNOBS(arenas_are_counted_without_it)
{
    hak__knobs.arenas_max = hak__knobs.arenas_crowded_max = 1;
    hak__thread_turn(true);
    hak__thread_turn(false);
    assert_int_equal(arenas_count(), 2);
    assert_false(hak__arena_is_to_spare());
    thread_join(thread_start(join_another, hak__thread));
    hak__knobs.arenas_crowded_max = 2;
    assert_true(hak__arena_is_to_spare());
    struct census census;
    hak__census_take(&census);
    assert_int_equal(census.arenas_count, 2);
    assert_int_equal(census.threads_count, 1);
}

/* A thread that never allocates has no struct, whatever scopes it leaves. */
static void *turn_back(void *argument)
{
    hak__thread_turn(false);
    REQUIRE(hak__thread == &hak__thread_none);
    return argument;
}

TEST(turning_back_takes_no_struct)
{
    thread_join(thread_start(turn_back, NULL));
}

static struct thread *told[4];
static uint32_t told_count;

static void listen(struct thread *thread)
{
    told[told_count++ % COUNT_OF(told)] = thread;
}

/* Each of the two may be out of use for long. */
TEST_WITH_KNOBS(a_tick_reaches_both)
{
    hak__thread_turn(true);
    for (int kind = 0; kind < 2; kind++) {
        hak__thread_turn(kind == 1);
        struct thread *thread = hak__thread, *twin = thread->twin;
        hak__knobs.purge_delay_ms = UINT32_MAX; /* no tick until now */
        hak__thread_turn(kind != 1);
        void *object = hak_malloc(SIZE);
        hak_free(object);
        keep_a_span(twin);
        assert_true(hak__cache_bytes(&twin->cache) != 0);
        hak__thread_turn(kind == 1);
        memset(twin->cache.history, 0, sizeof twin->cache.history);
        hak__knobs.purge_delay_ms = 40;
        thread->ticked_ms = thread->trimmed_ms = hak__os_clock_ms() - 4000;
        twin->trimmed_ms = thread->trimmed_ms;
        twin->cache.lagging = &twin->arena->slabs;
        told_count = 0;
        atomic_store_release(&hak__tick_listener, listen);
        thread->cache.countdown = -1;
        hak__thread_countdown_ended(thread, SIZE);
        atomic_store_release(&hak__tick_listener, NULL);
        assert_int_equal(told_count, 2);
        assert_ptr_equal(told[0], thread);
        assert_ptr_equal(told[1], twin);
        assert_int_equal(hak__cache_bytes(&twin->cache), 0);
        assert_null(twin->cache.lagging);
        hak__arena_tick(thread); /* spans survive two ticks */
        hak__arena_tick(thread);
        assert_int_equal(twin->arena->spans.slices, 0);
    }
    hak__thread_turn(false);
}

/* A long-lived object in another arena's slab would hold that slab. */
TEST_WITH_KNOBS(it_borrows_from_nobody)
{
    enum { LENT = 1200, HELD = 200 };
    uint32_t class_index = size_class_of(LENT);
    void *objects[HELD];
    ALLOCATE_ALL(objects, HELD, LENT);
    for (size_t i = 0; i + 1 < HELD; i++) { /* one stays, so that there is a slab with free ones */
        hak_free(objects[i]);
    }
    hak__thread_flush(hak__thread);
    struct arena *own = hak__thread->arena;
    hak__thread_turn(true);
    struct arena *apart = hak__thread->arena;
    hak__thread_turn(false);
    assert_int_equal(hak__arena_borrow(apart, class_index, 1).count, 0);
    assert_int_equal(hak__arena_borrow(own, class_index, 1).count, 0); /* the other has none */
    struct thread *other = adopt();
    assert_ptr_not_equal(other->arena, own);
    struct object_list list = {NULL, 0};
    for (int i = 0; i < 8 && list.count == 0; i++) { /* not all arenas are asked at once */
        list = hak__arena_borrow(other->arena, class_index, 1);
    }
    assert_int_equal(list.count, 1);
    hak_free(list.head);
    hak_free(objects[HELD - 1]);
    hak__thread_park(other);
}

static void *usual[COUNT], *apart[COUNT];
static bool in_use; /* the second struct */

static void use_both(void)
{
    drain(apart, 4);
    drain(usual, 3);
    hak__thread_turn(!in_use);
    fill(usual, 5);
    hak__thread_turn(in_use);
    drain(usual, 5);
    const struct thread *thread = hak__thread, *twin = thread->twin;
    REQUIRE(hak__thread_is_used(thread) && thread->arena->threads_count == 1);
    REQUIRE(hak__thread_is_used(twin) && twin->arena->threads_count == 1);
}

/* A forked child has both structs, whichever was in use. */
TEST(fork)
{
    for (int kind = 0; kind < 2; kind++) {
        fill(usual, 3);
        hak__thread_turn(true);
        fill(apart, 4);
        hak__thread_turn(in_use = kind == 1);
        fork_and_run(use_both);
        hak__thread_turn(false);
        drain(apart, 4);
        drain(usual, 3);
    }
}

TESTS(start_with_many_arenas)
