/* SPDX-License-Identifier: MIT */
/* test_os_linux.c: os/: what os.h promises of each call, and that none touches errno.
 *
 * ctest: no-qemu
 */
#include "../child.h"
#include "../threads/threads.h"
#include "unit.h"

#include "os/charge.h"

static size_t page;

static int setup(void **state)
{
    hak__os_init();
    hak__os_init(); /* idempotent */
    page = hak__os_page_size();
    return page == (size_t)sysconf(_SC_PAGESIZE) ? 0 : -1;
}

/* An address at which `size` bytes are free now. */
static void *free_place(size_t size)
{
    void *place;
    assert_int_equal(hak__os_map(size, page, &place), 0);
    assert_int_equal(hak__os_unmap(place, size), 0);
    return place;
}

OS_TEST(machine)
{
    assert_true(bits_is_power_of_two(page) && page <= SLICE_SIZE);
    uint64_t ram = hak__os_ram_size();
    assert_true(ram >= 64 * MIB);
    assert_true(ram == hak__os_ram_size());
    assert_false(hak__os_is_secure());
    assert_true(hak__os_random_seed() == hak__os_random_seed());
    assert_int_equal(hak__os_process_id(), getpid());
    assert_int_equal(errno, ERRNO_UNTOUCHED);
}

OS_TEST(map_at)
{
    char *place = free_place(8 * page);
    assert_int_equal(hak__os_map_at(place + 2 * page, 2 * page), 0);
    assert_int_equal(nonzero_offset(place + 2 * page, 2 * page), SIZE_MAX);
    memset(place + 2 * page, 'x', 2 * page);
    /* exactly there, around it, over its first and its last page, and beside it */
    assert_int_equal(hak__os_map_at(place + 2 * page, 2 * page), -EEXIST);
    assert_int_equal(hak__os_map_at(place, 8 * page), -EEXIST);
    assert_int_equal(hak__os_map_at(place + page, 2 * page), -EEXIST);
    assert_int_equal(hak__os_map_at(place + 3 * page, 2 * page), -EEXIST);
    assert_false(unit_is_mapped((uintptr_t)place + page));
    assert_false(unit_is_mapped((uintptr_t)place + 4 * page));
    errno = ERRNO_UNTOUCHED; /* mincore's */
    for (size_t i = 0; i < 2 * page; i++) {
        assert_int_equal(place[2 * page + i], 'x');
    }
    assert_int_equal(hak__os_map_at(place, 2 * page), 0);
    assert_int_equal(hak__os_map_at(place + 4 * page, 4 * page), 0);
    assert_int_equal(hak__os_unmap(place, 8 * page), 0);
    assert_int_equal(hak__os_map_at((void *)~(uintptr_t)(2 * page - 1), page), -ENOMEM);
}

OS_TEST(map_alignments)
{
    for (size_t alignment = page; alignment <= GIB; alignment *= 2) {
        char *places[4];
        for (size_t i = 0; i < COUNT_OF(places); i++) {
            size_t size = (1 + i * i) * page;
            size_t before = address_space_bytes();
            assert_int_equal(hak__os_map(size, alignment, (void **)&places[i]), 0);
            assert_true(is_aligned(places[i], alignment));
            assert_int_equal(nonzero_offset(places[i], size), SIZE_MAX);
            if (!SUPPORT_SANITIZED) { /* nothing stays of what was mapped to find the place */
                assert_int_equal(address_space_bytes() - before, size);
            }
            places[i][0] = places[i][size - 1] = 'x';
        }
        for (size_t i = 0; i < COUNT_OF(places); i++) {
            assert_int_equal(hak__os_unmap(places[i], (1 + i * i) * page), 0);
        }
    }
    errno = ERRNO_UNTOUCHED; /* /proc reading */
}

OS_TEST(map_failures)
{
    static char here;
    void *place = &here;
    assert_int_equal(hak__os_map((size_t)1 << 62, page, &place), -ENOMEM);
    assert_int_equal(hak__os_map(page, (size_t)1 << 62, &place), -ENOMEM);
    assert_int_equal(hak__os_map(SIZE_MAX - 4 * page + 1, (size_t)1 << 63, &place), -ENOMEM);
    assert_ptr_equal(place, &here);
}

OS_TEST(unmap)
{
    char *place;
    assert_int_equal(hak__os_map(4 * page, page, (void **)&place), 0);
    assert_int_equal(hak__os_unmap(place + page, page), 0);
    assert_true(unit_is_mapped((uintptr_t)place));
    assert_false(unit_is_mapped((uintptr_t)place + page));
    assert_true(unit_is_mapped((uintptr_t)place + 2 * page));
    errno = ERRNO_UNTOUCHED;
    assert_int_equal(hak__os_unmap(place, 4 * page), 0);
    assert_int_equal(hak__os_unmap(place + 1, page), -EINVAL);
}

OS_TEST(remap)
{
    char *place, *moved = NULL;
    assert_int_equal(hak__os_map(4 * page, page, (void **)&place), 0);
    pattern_fill(place, 4 * page, 1);
    assert_int_equal(hak__os_remap(place, 4 * page, 3 * page, 0, (void **)&moved), 0);
    assert_ptr_equal(moved, place);
    assert_false(unit_is_mapped((uintptr_t)place + 3 * page));
    void *neighbour = unit_block((uintptr_t)place + 3 * page); /* no way to grow here */
    errno = ERRNO_UNTOUCHED;
    assert_int_equal(hak__os_remap(place, 3 * page, 64 * page, 0, (void **)&moved), -ENOMEM);
    assert_int_equal(pattern_mismatch(place, 3 * page, 1), SIZE_MAX);
    assert_int_equal(hak__os_remap(place, 3 * page, 64 * page, page, (void **)&moved), 0);
    assert_ptr_not_equal(moved, place);
    assert_false(unit_is_mapped((uintptr_t)place));
    errno = ERRNO_UNTOUCHED;
    assert_int_equal(pattern_mismatch(moved, 3 * page, 1), SIZE_MAX);
    assert_int_equal(nonzero_offset(moved + 3 * page, 61 * page), SIZE_MAX);
    char *same = moved;
    assert_true(hak__os_remap(moved, 64 * page, (size_t)1 << 62, page, (void **)&moved) < 0);
    assert_ptr_equal(moved, same);
    assert_int_equal(pattern_mismatch(moved, 3 * page, 1), SIZE_MAX);
    assert_int_equal(hak__os_unmap(moved, 64 * page), 0);
    unit_unblock(neighbour);
}

OS_TEST(remap_keeps_alignment)
{
    char *place, *moved = NULL, *again = NULL;
    size_t alignment = 64 * page;
    assert_int_equal(hak__os_map(4 * page, alignment, (void **)&place), 0);
    pattern_fill(place, 4 * page, 2);
    void *neighbour = unit_block((uintptr_t)place + 4 * page);
    errno = ERRNO_UNTOUCHED;
    uint64_t mapped = hak__os_mapped_bytes();
    assert_int_equal(hak__os_remap(place, 4 * page, 65 * page, alignment, (void **)&moved), 0);
    assert_ptr_not_equal(moved, place);
    assert_true(is_aligned(moved, alignment));
    assert_false(unit_is_mapped((uintptr_t)place));
    assert_int_equal(hak__os_mapped_bytes() - mapped, 61 * page);
    assert_int_equal(pattern_mismatch(moved, 4 * page, 2), SIZE_MAX);
    assert_int_equal(nonzero_offset(moved + 4 * page, 61 * page), SIZE_MAX);
    unit_unblock(neighbour);
    /* Without room for both at once it moves all the same. */
    neighbour = unit_block((uintptr_t)moved + 65 * page);
    errno = ERRNO_UNTOUCHED;
    mapped = hak__os_mapped_bytes();
    hak__os_set_limit(mapped + 65 * page);
    int error = hak__os_remap(moved, 65 * page, 130 * page, alignment, (void **)&again);
    hak__os_set_limit(UINT64_MAX);
    assert_int_equal(error, 0);
    assert_ptr_not_equal(again, moved);
    assert_int_equal(hak__os_mapped_bytes() - mapped, 65 * page);
    assert_int_equal(pattern_mismatch(again, 4 * page, 2), SIZE_MAX);
    assert_int_equal(hak__os_unmap(again, 130 * page), 0);
    unit_unblock(neighbour);
}

/* There is room behind it, but where it lies it could have no huge pages. */
OS_TEST(remap_gains_alignment)
{
    char *place, *moved = NULL;
    size_t alignment = 64 * page;
    assert_int_equal(hak__os_map(alignment, alignment, (void **)&place), 0);
    assert_int_equal(hak__os_unmap(place, page), 0);
    assert_int_equal(hak__os_unmap(place + 5 * page, alignment - 5 * page), 0);
    pattern_fill(place + page, 4 * page, 3);
    assert_int_equal(hak__os_remap(place + page, 4 * page, 8 * page, alignment, (void **)&moved),
                     0);
    assert_true(is_aligned(moved, alignment));
    assert_int_equal(pattern_mismatch(moved, 4 * page, 3), SIZE_MAX);
    assert_int_equal(hak__os_unmap(moved, 8 * page), 0);
}

OS_TEST(purge)
{
    char *place;
    assert_int_equal(hak__os_map(4 * page, page, (void **)&place), 0);
    memset(place, 'x', 4 * page);
    assert_int_equal(hak__os_purge(place + page, 2 * page), 0);
    assert_int_equal(nonzero_offset(place + page, 2 * page), SIZE_MAX);
    assert_int_equal(place[page - 1], 'x');
    assert_int_equal(place[3 * page], 'x');
    place[page] = 'y'; /* still there to be used */
    assert_int_equal(hak__os_unmap(place, 4 * page), 0);
    assert_int_not_equal(hak__os_purge(place, 4 * page), 0);
}

OS_TEST(resident)
{
    char *place;
    size_t most = OS_RESIDENT_SIZE_MAX;
    assert_int_equal(hak__os_map(most, page, (void **)&place), 0);
    madvise(place, most, MADV_NOHUGEPAGE); /* page by page, whatever this machine prefers */
    errno = ERRNO_UNTOUCHED;
    assert_int_equal(hak__os_resident(place, most), 0);
    place[2 * page] = place[4 * page + 7] = place[most - 1] = 'x';
    assert_int_equal(hak__os_resident(place, most), 3 * page);
    assert_int_equal(hak__os_resident(place + 2 * page, page), page);
    assert_int_equal(hak__os_resident(place + 3 * page, page), 0);
    assert_int_equal(hak__os_resident(place, 5 * page), 2 * page);
    memset(place, 'y', most);
    assert_int_equal(hak__os_resident(place, most), most);
    assert_int_equal(hak__os_purge(place + page, 5 * page), 0);
    assert_int_equal(hak__os_resident(place, most), most - 5 * page);
    assert_int_equal(hak__os_unmap(place + 3 * page, page), 0);
    assert_int_equal(hak__os_resident(place, most), SIZE_MAX); /* the kernel will not say */
    assert_int_equal(errno, ERRNO_UNTOUCHED);
    assert_int_equal(hak__os_unmap(place, most), 0);
}

/* What is not resident stays so, but for short gaps; what was only read gets no memory. */
OS_TEST(clear)
{
    size_t size = 2 * OS_RESIDENT_SIZE_MAX + 5 * page;
    char *place;
    assert_int_equal(hak__os_map(size, page, (void **)&place), 0);
    madvise(place, size, MADV_NOHUGEPAGE);
    errno = ERRNO_UNTOUCHED;
    hak__os_clear(place, size);
    assert_int_equal(hak__os_resident(place, OS_RESIDENT_SIZE_MAX), 0);
    memset(place, 'x', 10 * page);
    place[12 * page + 5] = place[20 * page + 7] = place[size - 1] = 'x';
    hak__os_clear(place + 1, 100);
    assert_true(place[0] == 'x' && place[101] == 'x');
    assert_int_equal(nonzero_offset(place + 1, 100), SIZE_MAX);
    hak__os_clear(place + page - 1, size - page);
    assert_true(place[page - 2] == 'x' && place[page - 1] == 0 && place[size - 1] == 'x');
    assert_int_equal(hak__os_resident(place, OS_RESIDENT_SIZE_MAX), 14 * page);
    hak__os_clear(place, size);
    assert_int_equal(nonzero_offset(place, size), SIZE_MAX); /* reads all of it */
    uint64_t before = rss_bytes();
    hak__os_clear(place, size);
    assert_true(rss_bytes() <= before + 4 * page);
    assert_int_equal(hak__os_unmap(place, size), 0);
}

OS_TEST(resident_percent)
{
    char *place;
    size_t most = OS_RESIDENT_SIZE_MAX;
    assert_int_equal(hak__os_map(3 * most, page, (void **)&place), 0);
    madvise(place, 3 * most, MADV_NOHUGEPAGE);
    errno = ERRNO_UNTOUCHED;
    memset(place + most, 'x', most / 4);
    assert_int_equal(hak__os_resident_percent(place, 3 * most), 25); /* the middle */
    assert_int_equal(hak__os_resident_percent(place + 1, 3 * most - 2), 25);
    assert_int_equal(hak__os_resident_percent(place, most), 0);
    assert_int_equal(hak__os_resident_percent(place + most, most / 2), 50);
    assert_int_equal(hak__os_resident_percent(place + most, most / 4), 100);
    assert_int_equal(hak__os_resident_percent(place + most + 1, 2 * page), 100); /* one page */
    assert_int_equal(hak__os_resident_percent(place + most + 1, page), 0);       /* none */
    assert_int_equal(errno, ERRNO_UNTOUCHED);
    assert_int_equal(hak__os_unmap(place, 3 * most), 0);
}

/* As many as any kernel has. */
enum { PROCESSORS_MAX = 8192 };

static size_t affinity_size(void)
{
    return CPU_ALLOC_SIZE(PROCESSORS_MAX);
}

static cpu_set_t *affinity_now(void)
{
    cpu_set_t *set = CPU_ALLOC(PROCESSORS_MAX);
    REQUIRE(set != NULL);
    REQUIRE(sched_getaffinity(0, affinity_size(), set) == 0);
    return set;
}

/* Leaves itself one processor less at a time: the lowest first. */
static void lose_processors(void *argument)
{
    cpu_set_t *set = affinity_now();
    uint32_t left = (uint32_t)CPU_COUNT_S(affinity_size(), set);
    for (size_t i = 0; left > 1; i++) {
        if (CPU_ISSET_S(i, affinity_size(), set)) {
            CPU_CLR_S(i, affinity_size(), set);
            left--;
            REQUIRE(sched_setaffinity(0, affinity_size(), set) == 0);
            errno = ERRNO_UNTOUCHED;
            REQUIRE_SIZE(hak__os_processors(), ==, left);
            REQUIRE(errno == ERRNO_UNTOUCHED);
        }
    }
    REQUIRE_SIZE(hak__os_processors(), ==, 1);
}

OS_TEST(processors)
{
    cpu_set_t *set = affinity_now();
    assert_int_equal(hak__os_processors(), CPU_COUNT_S(affinity_size(), set));
    CPU_FREE(set);
    REQUIRE_LIFE(lose_processors, NULL, NULL);
    errno = ERRNO_UNTOUCHED;
}

OS_TEST(huge_is_harmless)
{
    char *place;
    assert_int_equal(hak__os_map(2 * HUGE_PAGE_SIZE, HUGE_PAGE_SIZE, (void **)&place), 0);
    int result = hak__os_huge(place, 2 * HUGE_PAGE_SIZE);
    assert_true(result == 0 || result == -EINVAL); /* a kernel without huge pages */
    place[0] = place[2 * HUGE_PAGE_SIZE - 1] = 'x';
    assert_int_equal(hak__os_unmap(place, 2 * HUGE_PAGE_SIZE), 0);
}

OS_TEST(clock)
{
    uint32_t before = hak__os_clock_ms();
    usleep(50000);
    uint32_t passed = hak__os_clock_ms() - before;
    assert_true(passed >= 35 && passed < 30000); /* coarse, and this machine may be busy */
}

static uint32_t futex_word;

static void *wait_for_word(void *argument)
{
    errno = ERRNO_UNTOUCHED;
    while (__atomic_load_n(&futex_word, __ATOMIC_ACQUIRE) == 5) {
        hak__os_wait_ms(&futex_word, 5, 60000);
    }
    REQUIRE(errno == ERRNO_UNTOUCHED);
    return NULL;
}

OS_TEST(wait_and_wake)
{
    futex_word = 5;
    assert_true(hak__os_wait_ms(&futex_word, 4, 60000)); /* another value: returns at once */
    hak__os_wake(&futex_word);                           /* nobody sleeps */
    pthread_t thread = thread_start(wait_for_word, NULL);
    usleep(20000);
    __atomic_store_n(&futex_word, 6, __ATOMIC_RELEASE);
    hak__os_wake(&futex_word);
    thread_join(thread);
}

static void abort_here(void *argument)
{
    fputs("hakmem: fatal: expected\n", stderr); /* for REQUIRE_DEATH */
    hak__os_abort();
}

OS_TEST(abort)
{
    REQUIRE_DEATH(abort_here, NULL, "expected");
    errno = ERRNO_UNTOUCHED;
}

OS_TEST(calls_are_counted)
{
    void *place, *moved;
    for (uint32_t i = 0; i < OS_CALL_COUNT; i++) {
        uint64_t before = hak__os_calls[i];
        assert_int_equal(hak__os_map(2 * page, page, &place), 0);
        hak__os_purge(place, page);
        hak__os_huge(place, page);
        hak__os_small(place, page);
        hak__os_populate(place, page);
        hak__os_resident(place, page);
        hak__os_wake(&futex_word);
        assert_int_equal(hak__os_remap(place, 2 * page, page, page, &moved), 0);
        assert_int_equal(hak__os_unmap(moved, page), 0);
        assert_int_equal(hak__os_calls[i], before + 1);
    }
}

/* Nothing that a filter could punish is called; what was closed before it opens. Last: from here on
 * this process counts as one with a filter, and then as one whose filter does not matter. */
OS_TEST(filter)
{
    void *place;
    SKIP_IF(!hak__os_may_ask() ||
            hak__os_processors_by_file() == 0); /* there is a filter already, or no /proc */
    size_t size = OS_RESIDENT_SIZE_MAX;
    uint32_t processors = hak__os_processors();
    assert_int_equal(hak__os_map(2 * size, size, &place), 0);
    char *end = (char *)place + size - page;
    assert_true(hak__os_close_pages(end, page));
    assert_int_equal(hak__os_processors_by_file(), processors);
    assert_int_equal(hak__os_ram_by_file(), hak__os_ram_size());
    uint64_t looks = hak__os_calls[OS_CALL_RESIDENT], advice = hak__os_calls[OS_CALL_HUGE];

    hak__os_note_filter();
    assert_true(hak__os_is_filtered() && !hak__os_may_ask());
    assert_int_equal(hak__os_processors(), processors);
    assert_false(hak__os_is_readable((uintptr_t)end));
    assert_true(hak__os_open_pages(end, page) && hak__os_is_readable((uintptr_t)end));
    memset(place, 'x', 2 * size);
    assert_int_equal(hak__os_huge(place, size), -EPERM);
    assert_int_equal(hak__os_small(place, size), -EPERM);
    assert_int_equal(hak__os_populate(place, size), -EPERM);
    assert_int_equal(hak__os_resident(place, size), SIZE_MAX);
    assert_int_equal(hak__os_resident_percent(place, size), 0);
    hak__os_clear((char *)place + 1, 2 * size - 2);
    assert_true(*(char *)place == 'x' && ((char *)place)[2 * size - 1] == 'x');
    assert_int_equal(nonzero_offset((char *)place + 1, 2 * size - 2), SIZE_MAX);
    assert_true(hak__os_close_pages(end, page) && !hak__os_is_readable((uintptr_t)end));
    assert_true(hak__os_open_pages(end, page) && hak__os_is_readable((uintptr_t)end));
    assert_int_equal(hak__os_calls[OS_CALL_RESIDENT], looks);
    assert_int_equal(hak__os_calls[OS_CALL_HUGE], advice);

    hak__os_ignore_filters();
    hak__os_note_filter();
    assert_true(!hak__os_is_filtered() && hak__os_may_ask());
    memset(place, 'y', size);
    assert_int_equal(hak__os_resident(place, size), size);
    assert_int_equal(hak__os_unmap(place, 2 * size), 0);
}

/* Without a system call. */
TEST(processor_and_node)
{
    unsigned processor, node, now[2];
    cpu_set_t before, one;
    SKIP_IF(hak__os_getcpu == NULL);
    REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
    for (unsigned i = 0; i < CPU_SETSIZE; i++) {
        CPU_ZERO(&one);
        CPU_SET(i, &one);
        if (CPU_ISSET(i, &before) && sched_setaffinity(0, sizeof one, &one) == 0) {
            REQUIRE(getcpu(&processor, &node) == 0);
            hak__os_getcpu(&now[0], &now[1], NULL);
            assert_int_equal(now[0], processor);
            assert_int_equal(now[1], node);
            assert_int_equal(hak__os_node(), node);
        }
    }
    REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
}

TESTS(setup)
