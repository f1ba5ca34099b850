/* test_slab_pool.c: slab/slab_pool: bounded, last in first out, and each slice given out once while
 * many threads push and pop (the ABA problem of such stacks). */
#include "../threads/threads.h"
#include "unit.h"

static size_t slices[POOL_SLICES_MAX + 4];

static int take_slices(void **state)
{
    (void)state;
    hak__slab_pool_empty();
    for (size_t i = 0; i < COUNT_OF(slices); i++) {
        slices[i] = hak__superslab_take(1, 1).slice;
        if (slices[i] == SLICE_NONE) {
            return -1;
        }
    }
    return 0;
}

static int give_slices(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(slices); i++) {
        hak__superslab_give(slices[i], 1);
    }
    return 0;
}

#define POOL_TEST(test) cmocka_unit_test_setup_teardown(test, take_slices, give_slices)

static void test_last_in_first_out(void **state)
{
    (void)state;
    assert_int_equal(hak__slab_pool_take(), SLICE_NONE);
    for (size_t round = 0; round < 3; round++) {
        for (size_t i = 0; i < POOL_SLICES_MAX; i++) {
            assert_true(hak__slab_pool_give(slices[i]));
        }
        for (size_t i = POOL_SLICES_MAX; i-- > 0;) {
            assert_int_equal(hak__slab_pool_take(), slices[i]);
        }
        assert_int_equal(hak__slab_pool_take(), SLICE_NONE);
    }
}

static void test_bounded(void **state)
{
    (void)state;
    for (size_t i = 0; i < POOL_SLICES_MAX; i++) {
        assert_true(hak__slab_pool_give(slices[i]));
    }
    assert_false(hak__slab_pool_give(slices[POOL_SLICES_MAX]));
    assert_false(hak__slab_pool_give(slices[POOL_SLICES_MAX])); /* refusals do not count */
    assert_int_equal(hak__slab_pool_take(), slices[POOL_SLICES_MAX - 1]);
    assert_true(hak__slab_pool_give(slices[POOL_SLICES_MAX]));
    assert_int_equal(hak__slab_pool_take(), slices[POOL_SLICES_MAX]);
    for (size_t i = POOL_SLICES_MAX - 1; i-- > 0;) {
        assert_int_equal(hak__slab_pool_take(), slices[i]);
    }
    assert_int_equal(hak__slab_pool_take(), SLICE_NONE);
}

static void test_empty_gives_all_back(void **state)
{
    (void)state;
    size_t free_bytes = hak__superslab_bytes_free();
    for (size_t i = 0; i < POOL_SLICES_MAX; i++) {
        assert_true(hak__slab_pool_give(slices[i]));
    }
    assert_int_equal(hak__superslab_bytes_free(), free_bytes);
    hak__slab_pool_empty();
    assert_int_equal(hak__superslab_bytes_free(), free_bytes + POOL_SLICES_MAX * SLICE_SIZE);
    assert_int_equal(hak__slab_pool_take(), SLICE_NONE);
    hak__slab_pool_empty();
    for (size_t i = 0; i < POOL_SLICES_MAX; i++) {
        slices[i] = hak__superslab_take(1, 1).slice;
    }
}

/* Who holds a slice: the thread's number, 0 for the pool. By slice number. */
enum { THREADS = 8, HOLD_MAX = 4, ROUNDS = SUPPORT_SLOW ? 30000 : 300000 };
static uint32_t shared_holders[1 << 16];

static void *push_and_pop(void *argument)
{
    uint32_t self = (uint32_t)(uintptr_t)argument;
    uint64_t random = self;
    size_t held[HOLD_MAX];
    uint32_t count = 0;
    for (size_t round = 0; round < ROUNDS || count != 0; round++) {
        bool take = round < ROUNDS && count < HOLD_MAX && random_below(&random, 2) == 0;
        if (take) {
            size_t slice = hak__slab_pool_take();
            if (slice != SLICE_NONE) {
                REQUIRE(slice < COUNT_OF(shared_holders));
                REQUIRE(__atomic_exchange_n(&shared_holders[slice], self, __ATOMIC_RELAXED) == 0);
                /* who has a slice writes its link word: as the notify stack does */
                __atomic_store_n(&window_slab_metadata(slice)->shared_link, self, __ATOMIC_RELAXED);
                held[count++] = slice;
            }
        } else if (count != 0) {
            size_t which = random_below(&random, count);
            REQUIRE(__atomic_exchange_n(&shared_holders[held[which]], 0, __ATOMIC_RELAXED) == self);
            if (hak__slab_pool_give(held[which])) {
                held[which] = held[--count];
            } else { /* full for the moment: still ours */
                REQUIRE(__atomic_exchange_n(&shared_holders[held[which]], self, __ATOMIC_RELAXED) ==
                        0);
                sched_yield();
            }
        }
    }
    return NULL;
}

static void test_each_slice_is_given_out_once(void **state)
{
    pthread_t threads[THREADS];
    size_t count = 0;
    (void)state;
    for (size_t i = 0; i < POOL_SLICES_MAX; i++) {
        assert_true(hak__slab_pool_give(slices[i]));
    }
    for (size_t i = 0; i < THREADS; i++) {
        threads[i] = thread_start(push_and_pop, (void *)(uintptr_t)(i + 1));
    }
    for (size_t i = 0; i < THREADS; i++) {
        thread_join(threads[i]);
    }
    for (size_t slice; (slice = hak__slab_pool_take()) != SLICE_NONE; count++) {
        bool known = false;
        assert_int_equal(shared_holders[slice]++, 0);
        for (size_t i = 0; i < POOL_SLICES_MAX; i++) {
            known = known || slices[i] == slice;
        }
        assert_true(known);
    }
    assert_int_equal(count, POOL_SLICES_MAX);
    memset(shared_holders, 0, sizeof shared_holders);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(test_last_in_first_out),
        POOL_TEST(test_bounded),
        POOL_TEST(test_empty_gives_all_back),
        POOL_TEST(test_each_slice_is_given_out_once),
    };
    return cmocka_run_group_tests(tests, unit_start, NULL);
}
