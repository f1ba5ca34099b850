/* test_discard.c: what the kernel will not unmap is not lost: its pages go back at once, its
 * addresses as soon as it will. */
#include "../threads/threads.h"
#include "../unit/unit.h"
#include "fault.h"

enum { SIZE_MIB = 8 };

static int start(void **state)
{
    fault_start_totals();
    return unit_start(state);
}

static void test_unmapped_later(void **state)
{
    void *places[3];
    (void)state;
    int64_t before = fault_ledger;
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        assert_int_equal(hak__os_map(SIZE_MIB * MIB, 4096, &places[i]), 0);
        memset(places[i], 1, SIZE_MIB * MIB);
    }
    fault_arm((struct fault_plan){FAULT_SET(FAULT_MUNMAP), 1, ENOMEM, true, 0}, 0);
    errno = ERRNO_UNTOUCHED;
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        hak__os_discard(places[i], SIZE_MIB * MIB);
        size_t left = hak__os_resident(places[i], 2 * MIB);
        assert_in_range(left, 1, 64 * KIB); /* what says that it waits */
    }
    assert_int_equal(hak__os_discarded_bytes(), 3 * SIZE_MIB * MIB);
    assert_int_equal(hak__os_discard_again(), 0);
    assert_int_equal(hak__os_discarded_bytes(), 3 * SIZE_MIB * MIB);
    assert_int_equal(stats_now().bytes_mapped, 3 * SIZE_MIB * MIB);
    fault_plan.nth = (uint32_t)fault_planned_count + 2; /* one goes, the others do not */
    assert_int_equal(hak__os_discard_again(), SIZE_MIB * MIB);
    assert_int_equal(hak__os_discarded_bytes(), 2 * SIZE_MIB * MIB);
    fault_disarm();
    assert_int_equal(errno, ERRNO_UNTOUCHED);
    void *another;
    assert_int_equal(hak__os_map(MIB, 4096, &another), 0);
    hak__os_discard(another, MIB); /* one that works brings the others along */
    assert_int_equal(hak__os_discarded_bytes(), 0);
    assert_int_equal(fault_ledger - before, 0);
}

/* An alignment that cannot be had by chance: too much is mapped, and its ends are not wanted. */
static void test_aligned_mapping(void **state)
{
    void *place;
    (void)state;
    int64_t before = fault_ledger;
    fault_arm((struct fault_plan){FAULT_SET(FAULT_MUNMAP), 1, ENOMEM, true, 0}, 0);
    assert_int_equal(hak__os_map(MIB, GIB, &place), 0);
    assert_true(is_aligned(place, GIB));
    fault_disarm();
    assert_true(fault_fired_count != 0);
    assert_int_equal(fault_ledger - before, MIB + hak__os_discarded_bytes());
    hak__os_discard(place, MIB);
    assert_int_equal(fault_ledger - before, 0);
}

static void test_whales(void **state)
{
    (void)state;
    void *kept = hak_malloc(3 * MIB); /* the registry exists */
    int64_t before = fault_ledger;
    void *whale = hak_malloc(600 * MIB); /* no cache keeps it */
    assert_non_null(whale);
    fault_arm((struct fault_plan){FAULT_SET(FAULT_MUNMAP), 1, ENOMEM, true, 0}, 0);
    hak_free(whale);
    fault_disarm();
    assert_int_equal(fault_fired_count, 1);
    struct hak_stats stats = stats_now();
    assert_int_equal(fault_ledger, stats.bytes_mapped + stats.bytes_metadata);
    assert_int_equal(fault_ledger - before, 600 * MIB);
    assert_true(hak_trim(0));
    assert_true(fault_ledger <= before);
    stats = stats_now();
    assert_int_equal(fault_ledger, stats.bytes_mapped + stats.bytes_metadata);
    hak_free(kept);
}

/* Makes the move of `place` to an aligned one fail, and any other. */
static void fail_to_move(void *place, size_t size)
{
    void *moved = NULL, *neighbour = unit_block((uintptr_t)place + size);
    fault_arm((struct fault_plan){FAULT_SET(FAULT_MREMAP), 1, ENOMEM, true, 0}, 0);
    assert_int_equal(hak__os_remap(place, size, 2 * size, 2 * MIB, &moved), -ENOMEM);
    fault_disarm();
    unit_unblock(neighbour);
    assert_int_equal(nonzero_offset((char *)place + 1, size - 1), SIZE_MAX);
    assert_int_equal(*(char *)place, 'x');
}

static void *wait_for_end(void *argument)
{
    while (!__atomic_load_n((bool *)argument, __ATOMIC_ACQUIRE)) {
        usleep(1000);
    }
    return NULL;
}

/* Must be the last. Where a mapping was to be moved to may be another thread's when that has
 * failed: it is not unmapped, and no further place is tried. */
static void test_places_are_left_to_others(void **state)
{
    bool shared_end = false;
    void *place, *moved;
    const size_t size = 4 * MIB;
    (void)state;
    assert_int_equal(hak__os_map(size, 2 * MIB, &place), 0);
    *(char *)place = 'x';
    int64_t before = fault_ledger;
#ifdef __GLIBC__
    fail_to_move(place, size); /* alone, nothing is left */
    assert_int_equal(fault_fired_count, 3);
    assert_int_equal(fault_ledger - before, 0);
    assert_int_equal(hak__os_discarded_bytes(), 0);
#endif
    pthread_t thread = thread_start(wait_for_end, &shared_end);
    fail_to_move(place, size);
    assert_int_equal(fault_fired_count, 3);
    assert_int_equal(fault_ledger - before, 2 * size);
    assert_int_equal(hak__os_discarded_bytes(), 2 * size);
    assert_int_equal(hak__os_discard_again(), 0);
    assert_int_equal(hak__os_discarded_bytes(), 2 * size);
    fail_to_move(place, size);
    assert_int_equal(fault_fired_count, 2);
    assert_int_equal(fault_ledger - before, 2 * size);
    assert_int_equal(hak__os_remap(place, size, 2 * size, 2 * MIB, &moved), 0);
    assert_int_equal(*(char *)moved, 'x');
    hak__os_discard(moved, 2 * size);
    __atomic_store_n(&shared_end, true, __ATOMIC_RELEASE);
    thread_join(thread);
}

int main(void)
{
    support_small_pages();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unmapped_later),
        cmocka_unit_test(test_aligned_mapping),
        cmocka_unit_test(test_whales),
        cmocka_unit_test(test_places_are_left_to_others),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
