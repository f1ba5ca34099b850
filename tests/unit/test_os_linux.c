/* SPDX-License-Identifier: MIT */
/* test_os_linux.c: os/: what os.h promises of each call, and that none touches errno.
 *
 * ctest: no-qemu
 */
#include "../threads/threads.h"
#include "unit.h"

#include "os/charge.h"
#include "os/vdso.h"

#include <sys/auxv.h>
#include <time.h>

static size_t page;

static int setup(void **state)
{
    hak__os_init();
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
    assert_int_equal(hak__os_resident_percent(place + 1, 3 * most - 2), 25); /* the middle */
    assert_int_equal(hak__os_resident_percent(place, most), 0);
    assert_int_equal(hak__os_resident_percent(place + most, most / 2), 50);
    assert_int_equal(hak__os_resident_percent(place + most + 1, 2 * page), 100); /* one page */
    assert_int_equal(hak__os_resident_percent(place + most + 1, page), 0);       /* none */
    assert_int_equal(hak__os_unmap(place, 3 * most), 0);
}

#if defined(__x86_64__)
#define CLOCK_NAME "__vdso_clock_gettime"
#else
#define CLOCK_NAME "__kernel_clock_gettime"
#endif

static int64_t nanoseconds(const struct timespec *time)
{
    return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

/* The kernel's clock without the C library; valgrind and some kernels have none. */
OS_TEST(clock)
{
    struct timespec before, between, after;
    int (*clock)(clockid_t, struct timespec *) =
        (int (*)(clockid_t, struct timespec *))(uintptr_t)hak__vdso_find(CLOCK_NAME);
    assert_null(hak__vdso_find("malloc"));
    assert_int_equal(clock == NULL, getauxval(AT_SYSINFO_EHDR) == 0);
    SKIP_IF(clock == NULL);
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &before), 0);
    assert_int_equal(clock(CLOCK_MONOTONIC, &between), 0);
    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &after), 0);
    assert_true(nanoseconds(&before) <= nanoseconds(&between));
    assert_true(nanoseconds(&between) <= nanoseconds(&after));
}

/* Under a filter, files say what calls say elsewhere. (That nothing is called that it could punish
 * is asked by override/filters and secure/filters.) */
OS_TEST(files_instead_of_calls)
{
    SKIP_IF(!hak__os_may_ask() ||
            hak__os_processors_by_file() == 0); /* there is a filter already, or no /proc */
    assert_int_equal(hak__os_processors_by_file(), hak__os_processors());
    assert_int_equal(hak__os_ram_by_file(), hak__os_ram_size());
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
            assert_int_equal(hak__os_processors(), 1);
        }
    }
    REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
    assert_int_equal(hak__os_processors(), CPU_COUNT(&before));
}

TESTS(setup)
