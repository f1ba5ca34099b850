/* SPDX-License-Identifier: MIT */
/* test_data_limit.c: RLIMIT_DATA, which since Linux 4.7 counts private writable mappings, too.
 *
 * ctest: no-qemu no-secure
 */
#include "exhaust.h"

static size_t data_bytes(void)
{
    return support_proc_bytes("/proc/self/status", "\nVmData:");
}

static void limited_data(void *argument)
{
    struct helper helper = {0};
    size_t available = *(size_t *)argument;
    helper_start(&helper);
    struct rlimit limit = {data_bytes() + available, RLIM_INFINITY};
    REQUIRE(setrlimit(RLIMIT_DATA, &limit) == 0);
    exhaust_memory(available, &helper);
}

TEST(data_limits)
{
    static size_t sizes[] = {64 * MIB, 200 * MIB};
    SKIP_IF(SUPPORT_SANITIZED);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        REQUIRE_LIFE(limited_data, &sizes[i], NULL);
    }
}

TESTS(NULL)
