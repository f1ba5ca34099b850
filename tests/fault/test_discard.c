/* SPDX-License-Identifier: MIT */
/* test_discard.c: what the kernel will not unmap is not lost: its pages go back at once, its
 * addresses as soon as it will. */
#include "../threads/threads.h"
#include "../unit/unit.h"
#include "fault.h"

#include "large/huge_cache.h"

enum { SIZE_MIB = 8 };

TEST(unmapped_later)
{
    void *places[3];
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

/* Makes the move of `place` into an aligned mapping fail in a way, and any other. */
static void fail_to_move(void *place, size_t size, int error)
{
    void *moved = NULL, *neighbour = unit_block((uintptr_t)place + size);
    fault_foreign = NULL;
    fault_arm((struct fault_plan){FAULT_SET(FAULT_MREMAP), 1, error, true, 0}, 0);
    errno = ERRNO_UNTOUCHED;
    assert_int_equal(hak__os_remap(0, place, size, 2 * size, 2 * MIB, &moved), -ENOMEM);
    fault_disarm();
    assert_int_equal(errno, ERRNO_UNTOUCHED);
    assert_int_equal(fault_fired_count, 3); /* in place, into a new mapping, anywhere */
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

/* The kernel may have unmapped the target of a move that fails, or not; another thread may have
 * mapped something there since. Nothing of ours stays mapped or counted, and nothing of the other's
 * is unmapped. */
TEST(failed_moves)
{
    static const int ways[] = {ENOMEM, FAULT_GONE, FAULT_TAKEN};
    void *place, *moved;
    const size_t size = 4 * MIB;
    bool shared_end = false;
    pthread_t thread = thread_start(wait_for_end, &shared_end); /* which changes nothing */
    assert_int_equal(hak__os_map(size, 2 * MIB, &place), 0);
    *(char *)place = 'x';
    int64_t before = fault_ledger;
    uint64_t mapped = hak__os_mapped_bytes();
    for (size_t i = 0; i < COUNT_OF(ways); i++) {
        fail_to_move(place, size, ways[i]);
        assert_int_equal(fault_ledger - before, 0);
        assert_int_equal(hak__os_mapped_bytes(), mapped);
        assert_int_equal(hak__os_discarded_bytes(), 0);
    }
    assert_non_null(fault_foreign); /* of the last way */
    assert_int_equal(nonzero_offset(fault_foreign, size), SIZE_MAX);
    assert_int_equal(__real_munmap(fault_foreign, size), 0);
    assert_int_equal(hak__os_remap(0, place, size, 2 * size, 2 * MIB, &moved), 0);
    assert_int_equal(*(char *)moved, 'x');
    assert_int_equal(fault_ledger - before, size);
    assert_int_equal(hak__os_mapped_bytes(), mapped + size);
    hak__os_discard(moved, 2 * size);
    __atomic_store_n(&shared_end, true, __ATOMIC_RELEASE);
    thread_join(thread);
}

/* A move into a part of a mapping: what it had is zero and can be written when the move failed. */
TEST(failed_moves_into_a_part)
{
    static const int ways[] = {ENOMEM, FAULT_GONE, FAULT_TAKEN, 0};
    const size_t size = 2 * MIB;
    for (size_t i = 0; i < COUNT_OF(ways); i++) {
        void *from, *to;
        int64_t before = fault_ledger;
        uint64_t mapped = hak__os_mapped_bytes();
        assert_int_equal(hak__os_map(size, size, &from), 0);
        assert_int_equal(hak__os_map(3 * size, size, &to), 0);
        char *part = (char *)to + size;
        pattern_fill(from, size, 5);
        fault_arm((struct fault_plan){FAULT_SET(FAULT_MREMAP), 1, ways[i], true, 0}, 0);
        fault_plan.calls = ways[i] == 0 ? 0 : fault_plan.calls;
        int error = hak__os_move(from, size, part, false);
        fault_disarm();
        assert_int_equal(error, ways[i] == 0 ? 0 : ways[i] == FAULT_TAKEN ? -EEXIST : -ENOMEM);
        char *pattern = error == 0 ? part : from;
        assert_int_equal(pattern_mismatch(pattern, size, 5), SIZE_MAX);
        if (error == -ENOMEM) {
            assert_int_equal(nonzero_offset(part, size), SIZE_MAX);
            memset(part, 'x', size);
        }
        if (error == -EEXIST) {
            assert_ptr_equal(fault_foreign, part);
            assert_int_equal(__real_munmap(fault_foreign, size), 0);
            hak__os_discard(to, size);
            hak__os_discard(part + size, size);
        } else {
            hak__os_discard(to, 3 * size);
        }
        if (error != 0) {
            hak__os_discard(from, size);
        }
        assert_int_equal(fault_ledger, before);
        assert_int_equal(hak__os_mapped_bytes(), mapped);
    }
}

/* A joined huge block moves in steps; when one of them fails it is where it was, or has been
 * copied. */
TEST(joined_huge_grow)
{
    static const int ways[] = {ENOMEM, FAULT_GONE, FAULT_TAKEN};
    hak__knobs.huge_cache_bytes = UINT64_MAX;
    hak__knobs.purge_delay_ms = UINT32_MAX;
    for (size_t i = 0; i < 3 * COUNT_OF(ways); i++) {
        void *parts[3];
        hak__superslab_purge(); /* free slices that are dirty count as kept */
        for (size_t j = 0; j < COUNT_OF(parts); j++) {
            parts[j] = hak_malloc(6 * MIB);
            memset(parts[j], 'x', 6 * MIB);
        }
        FREE_ALL(parts, COUNT_OF(parts));
        size_t size = 14 * MIB + 4096;
        char *block = hak_malloc(size);
        size_t joined = hak__huge_joined_bytes;
        assert_true(HAK_TINY_LIMITS || joined == size);
        pattern_fill(block, size, i);
        hak_trim(0);
        void *neighbour = unit_block((uintptr_t)block + size);
        /* in place, then the steps: the first of them, the third, the last */
        uint32_t nth = i % 3 == 0 ? 2 : i % 3 == 1 ? 4 : 9;
        fault_foreign = NULL;
        fault_arm((struct fault_plan){FAULT_SET(FAULT_MREMAP), nth, ways[i / 3], false, 0}, 0);
        char *larger = hak_realloc(block, 30 * MIB);
        fault_disarm();
        assert_non_null(larger);
        assert_true(fault_fired_count == 1 || joined == 0);
        assert_int_equal(pattern_mismatch(larger, size, i), SIZE_MAX);
        memset(larger, 'x', 30 * MIB);
        if (fault_foreign != NULL) {
            assert_int_equal(__real_munmap(fault_foreign, nth == 9 ? 4096 : 2 * MIB), 0);
        }
        unit_unblock(neighbour);
        hak_free(larger);
        hak_trim(0);
        assert_int_equal(hak__huge_joined_bytes, 0);
        struct hak_stats stats = stats_now();
        assert_int_equal(fault_ledger, stats.bytes_mapped + stats.bytes_metadata);
    }
}

/* A kernel before 4.17 that maps elsewhere what another thread has taken, and then will not unmap
 * that: what nobody wanted is known, and goes later. */
TEST(mapped_elsewhere)
{
    void *place, *moved = NULL;
    const size_t size = 4 * MIB;
    assert_int_equal(hak__os_map(size, 2 * MIB, &place), 0);
    *(char *)place = 'x';
    int64_t before = fault_ledger;
    uint64_t mapped = hak__os_mapped_bytes();
    void *neighbour = unit_block((uintptr_t)place + size);
    uint32_t calls = FAULT_SET(FAULT_MREMAP) | FAULT_SET(FAULT_MMAP_AT) | FAULT_SET(FAULT_MUNMAP);
    fault_arm((struct fault_plan){calls, 1, FAULT_ELSEWHERE, true, 0}, 0);
    assert_int_equal(hak__os_remap(0, place, size, 2 * size, 2 * MIB, &moved), -ENOMEM);
    fault_disarm();
    unit_unblock(neighbour);
    assert_int_equal(*(char *)place, 'x');
    assert_true(hak__os_discarded_bytes() >= 2 * size);
    assert_int_equal(fault_ledger - before, hak__os_discarded_bytes());
    assert_int_equal(hak__os_mapped_bytes() - mapped, hak__os_discarded_bytes());
    hak__os_discard(place, size);
    assert_int_equal(hak__os_discarded_bytes(), 0);
    assert_int_equal(fault_ledger - before, -(int64_t)size);
    assert_int_equal(hak__os_mapped_bytes(), mapped - size);
}

int main(void)
{
    support_small_pages();
    return tests_run(unit_start, NULL);
}
