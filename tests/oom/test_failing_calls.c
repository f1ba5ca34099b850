/* SPDX-License-Identifier: MIT */
/* test_failing_calls.c: each call into the kernel fails once: the first, the second, the third, and
 * so on until a life of the library needs no more calls; then all from that one on. Every answer is
 * either memory, zeroed where it must be and keeping its contents, or NULL and ENOMEM; free never
 * touches errno, also when giving memory back fails; and when the failures end all works as ever
 * (the way sqlite tests its allocations).
 *
 * The program's own mmap and its family stand before the C library's: the library under test asks
 * by these names (src/os/os_machine.c).
 *
 * ctest: no-qemu
 */
#include "exhaust.h"

#include <stdarg.h>
#include <sys/syscall.h>

/* Calls until failure; calls so far; 0: none fails. Relaxed: one thread at a time matters. */
static long fail_at;
static bool fail_on;
static long calls_count;
static long failures_count;

static bool call_fails(void)
{
    long number = ++calls_count;
    bool fails = fail_at != 0 && (number == fail_at || (fail_on && number > fail_at));
    failures_count += fails;
    errno = fails ? ENOMEM : errno;
    return fails;
}

void *mmap(void *address, size_t size, int protection, int flags, int file, off_t offset)
{
    return call_fails() ? MAP_FAILED
                        : (void *)syscall(SYS_mmap, address, size, protection, flags, file, offset);
}

int munmap(void *address, size_t size)
{
    return call_fails() ? -1 : (int)syscall(SYS_munmap, address, size);
}

void *mremap(void *address, size_t old_size, size_t new_size, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    void *place = va_arg(arguments, void *);
    va_end(arguments);
    return call_fails() ? MAP_FAILED
                        : (void *)syscall(SYS_mremap, address, old_size, new_size, flags, place);
}

int madvise(void *address, size_t size, int advice)
{
    return call_fails() ? -1 : (int)syscall(SYS_madvise, address, size, advice);
}

int mincore(void *address, size_t size, unsigned char *pages)
{
    return call_fails() ? -1 : (int)syscall(SYS_mincore, address, size, pages);
}

static void check_answer(const void *block)
{
    REQUIRE(block != NULL ? errno == ERRNO_UNTOUCHED : errno == ENOMEM);
    errno = ERRNO_UNTOUCHED;
}

/* Of all tiers; few, since each call's failure is a life of its own. */
enum { SIZES = 9 };
static const size_t sizes[SIZES] = {0,         100,     5000,        65664,  65665,
                                    300 * KIB, 2 * MIB, 2 * MIB + 1, 5 * MIB};

/* Each block grows, shrinks, and is looked at. Returns whether all could be had. */
static bool live(void)
{
    char *blocks[SIZES];
    bool all = true;
    errno = ERRNO_UNTOUCHED;
    for (size_t i = 0; i < SIZES; i++) {
        blocks[i] = hak_malloc(sizes[i]);
        check_answer(blocks[i]);
        if (blocks[i] != NULL) {
            pattern_fill(blocks[i], sizes[i], i);
        }
    }
    for (size_t i = 0; i < SIZES; i++) {
        size_t larger = sizes[i] + sizes[i] / 2 + 1;
        char *grown = hak_realloc(blocks[i], larger);
        check_answer(grown);
        if (grown != NULL && blocks[i] != NULL) {
            REQUIRE(pattern_mismatch(grown, sizes[i] / 8 * 8, i) == SIZE_MAX);
        }
        all &= grown != NULL && blocks[i] != NULL;
        blocks[i] = grown != NULL ? grown : blocks[i];
        if (blocks[i] != NULL) {
            memset(blocks[i], 0xff, hak_usable_size(blocks[i]));
        }
    }
    for (size_t i = 0; i < SIZES; i++) {
        hak_free(blocks[i]);
        REQUIRE(errno == ERRNO_UNTOUCHED);
        if (i % 3 == 2) {
            hak_trim(0);
        }
        blocks[i] = hak_calloc(1, sizes[i]);
        check_answer(blocks[i]);
        REQUIRE(blocks[i] == NULL || nonzero_offset(blocks[i], sizes[i]) == SIZE_MAX);
        all &= blocks[i] != NULL;
    }
    FREE_ALL(blocks, SIZES);
    hak_trim(0);
    REQUIRE(errno == ERRNO_UNTOUCHED);
    return all;
}

static void live_with_failures(void *argument)
{
    fail_at = *(const long *)argument;
    calls_count = 0;
    live();
    _Exit(failures_count != 0 ? (fail_at = 0, live() ? 0 : 3) : 2);
}

/* The library starts in the child: the first calls are those of its start. */
static void fail_each(bool on)
{
    struct child_end end;
    long number = 0;
    int status;
    fail_on = on;
    do {
        number++;
        child_fork(live_with_failures, &number, &end);
        status = WIFEXITED(end.status) ? WEXITSTATUS(end.status) : -1;
        if (end.length != 0 || (status != 0 && status != 2)) {
            fail_msg("call %ld%s fails: status %d and <%s>", number, on ? " and all after it" : "",
                     end.status, end.text);
        }
    } while (status != 2);
    print_message("%ld calls\n", number - 1);
    assert_true(number > 20); /* else the calls do not come here */
}

TEST(one_fails)
{
    SKIP_IF(SUPPORT_SANITIZED);
    fail_each(false);
}

TEST(all_fail_from_one_on)
{
    SKIP_IF(SUPPORT_SANITIZED);
    fail_each(true);
}

TESTS(NULL)
