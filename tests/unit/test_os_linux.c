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
#include <sys/stat.h>

static size_t page;

static int setup(void **state)
{
    hak__os_init();
    page = hak__os_page_size();
    return page == (size_t)sysconf(_SC_PAGESIZE) ? 0 : -1;
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
    assert_int_equal(hak__os_remap(0, place, 4 * page, 65 * page, alignment, (void **)&moved), 0);
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
    int error = hak__os_remap(0, moved, 65 * page, 130 * page, alignment, (void **)&again);
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
    assert_int_equal(hak__os_remap(0, place + page, 4 * page, 8 * page, alignment, (void **)&moved),
                     0);
    assert_true(is_aligned(moved, alignment));
    assert_int_equal(pattern_mismatch(moved, 4 * page, 3), SIZE_MAX);
    assert_int_equal(hak__os_unmap(moved, 8 * page), 0);
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

/* --- files --- */

/* The number is high, fork's child has it, and another file under the number is noticed. */
OS_TEST(keep)
{
    char path[] = "/tmp/test_os_files_XXXXXX", text[64];
    int file = mkstemp(path);
    assert_true(file >= 0);
    errno = ERRNO_UNTOUCHED;
    struct os_kept kept = hak__os_keep_append(path);
    assert_true(kept.descriptor >= OS_KEPT_MIN);
    assert_true(hak__os_is_kept(&kept));
    assert_int_equal(errno, ERRNO_UNTOUCHED);
    assert_int_equal(fcntl(kept.descriptor, F_GETFD), FD_CLOEXEC);
    hak__os_write(kept.descriptor, "kept", 4);
    support_read_file(path, text, sizeof text);
    assert_string_equal(text, "kept");
    int other = open("/dev/null", O_WRONLY | O_CLOEXEC);
    assert_true(other >= 0 && dup2(other, kept.descriptor) == kept.descriptor);
    errno = ERRNO_UNTOUCHED;
    assert_false(hak__os_is_kept(&kept));
    close(kept.descriptor);
    assert_false(hak__os_is_kept(&kept));
    kept = hak__os_keep_append(path);
    assert_true(hak__os_is_kept(&kept));
    unlink(path); /* it is to be made again */
    assert_false(hak__os_is_kept(&kept));
    close(kept.descriptor);
    kept = hak__os_keep_append("/dev/null/none");
    assert_int_equal(kept.descriptor, -1);
    assert_false(hak__os_is_kept(&kept));
    assert_int_equal(errno, ERRNO_UNTOUCHED);
    close(other);
    close(file);
}

OS_TEST(open)
{
    char directory[] = "/tmp/unit.XXXXXX", path[64], link[64];
    struct stat about;
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/file", directory);
    snprintf(link, sizeof link, "%s/link", directory);
    errno = ERRNO_UNTOUCHED;
    for (int replaces = 0; replaces < 2; replaces++) {
        int (*open_file)(const char *) = replaces ? hak__os_open_new : hak__os_open_append;
        int file = open_file(path);
        assert_int_equal(fstat(file, &about), 0);
        assert_int_equal(about.st_mode, S_IFREG | 0600);
        assert_int_equal(fcntl(file, F_GETFL) & (O_NONBLOCK | O_APPEND), replaces ? 0 : O_APPEND);
        hak__os_close(file);
        assert_int_equal(symlink(path, link), 0);
        assert_int_equal(open_file(link), -ELOOP);
        unlink(link);
        assert_int_equal(mkfifo(link, 0600), 0);
        assert_int_equal(open_file(link), -ENXIO); /* nobody reads: no wait */
        int reader = open(link, O_RDONLY | O_NONBLOCK);
        file = open_file(link);
        assert_int_equal(fcntl(file, F_GETFL) & O_NONBLOCK, 0); /* writes wait */
        hak__os_close(file);
        if (geteuid() == 0) {
            assert_int_equal(chown(link, 64125, 64125), 0);
            assert_int_equal(open_file(link), -EPERM);
        }
        close(reader);
        unlink(link);
        unlink(path);
    }
    assert_int_equal(errno, ERRNO_UNTOUCHED);
    rmdir(directory);
}

OS_TEST(update_file)
{
    char directory[] = "/tmp/unit.XXXXXX", path[64], text[64];
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/file", directory);
    errno = ERRNO_UNTOUCHED;
    assert_int_equal(hak__os_update_file(path, "a long text", 11), 0);
    support_read_file(path, text, sizeof text);
    assert_string_equal(text, "a long text");
    assert_int_equal(hak__os_update_file(path, "short", 5),
                     0); /* nothing of the old text is left */
    assert_int_equal(hak__os_read_file(path, text, sizeof text), 5);
    assert_memory_equal(text, "short", 5);
    assert_int_equal(hak__os_update_file("/dev/null", "text", 4), 0);
    assert_int_equal(hak__os_update_file(directory, "text", 4), -EISDIR);
    assert_int_equal(hak__os_update_file("/dev/null/none", "text", 4), -ENOTDIR);
    assert_int_equal(errno, ERRNO_UNTOUCHED);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(hak__os_update_file(path, "text", 4), -ENXIO); /* nobody reads: no wait */
    assert_int_equal(hak__os_read_file(path, text, sizeof text), 0);
    unlink(path);
    assert_int_equal(symlink("/dev/null", path), 0);
    assert_int_equal(hak__os_update_file(path, "text", 4), -ELOOP);
    unlink(path);
    rmdir(directory);
    errno = ERRNO_UNTOUCHED;
}

TESTS(setup)
