/* SPDX-License-Identifier: MIT */
/* test_calloc_lies.c: calloc is zero whatever the kernel says of a page. Resident means that it is
 * in memory now: what is not may lie in a swap area, with what was written to it.
 *
 * ctest: no-qemu no-asan no-tsan
 */
#include "../support.h"

enum answer { TRUTH, NOTHING, EVERY_OTHER_PAGE, EVERY_OTHER_EIGHT, EVERYTHING, REFUSED };
static enum answer answer;
static bool purge_fails;
static size_t look_count;

int mincore(void *address, size_t size, unsigned char *pages)
{
    look_count++;
    if (answer == REFUSED) {
        errno = EAGAIN;
        return -1;
    }
    int error = (int)syscall(SYS_mincore, address, size, pages);
    size_t run = answer == EVERY_OTHER_EIGHT ? 8 : 1;
    for (size_t i = 0; error == 0 && answer != TRUTH && i < (size + 4095) / 4096; i++) {
        pages[i] = answer == EVERYTHING || (answer != NOTHING && i / run % 2 == 1);
    }
    return error;
}

int madvise(void *address, size_t size, int advice)
{
    if (purge_fails && advice == MADV_DONTNEED) { /* as of locked memory */
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_madvise, address, size, advice);
}

TEST(zero_whatever_is_said)
{
    static const size_t sizes[] = {256 * KIB, 300 * KIB + 17, MIB, 3 * MIB + 5, 16 * MIB, 40 * MIB};
    look_count = 0;
    for (unsigned said = TRUTH; said <= REFUSED; said++) {
        for (int fails = 0; fails < 2; fails++) {
            for (size_t i = 0; i < COUNT_OF(sizes); i++) {
                answer = (enum answer)said;
                purge_fails = fails;
                char *block = hak_malloc(sizes[i]);
                assert_non_null(block);
                memset(block, 0xa5, sizes[i]);
                hak_free(block);
                errno = ERRNO_UNTOUCHED;
                char *again = hak_calloc(sizes[i], 1);
                assert_non_null(again);
                assert_int_equal(errno, ERRNO_UNTOUCHED);
                assert_int_equal(nonzero_offset(again, sizes[i]), SIZE_MAX);
                memset(again, 0x5a, sizes[i]);
                hak_free(again);
            }
        }
    }
    assert_true(look_count > 0);
}

TESTS(NULL)
