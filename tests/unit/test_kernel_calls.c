/* SPDX-License-Identifier: MIT */
/* test_kernel_calls.c: the library enters the kernel only by system calls that tests/fault/fault.h
 * knows. (By which functions: tools/check_library.sh.) */
#include "../support.h"

/* syscall() hides which: those named in src/ are those of fault_call_of. os/bound.h makes some in
 * the place of wrapped functions, in no program of tests/fault. */
TEST(no_number_is_new)
{
    char names[1024] = "";
    SKIP_IF(getenv("TEST_ROOT") == NULL);
    FILE *output = popen(
        "grep -rhoE '\\b(SYS|__NR)_[a-z0-9_]+' $TEST_ROOT/src | sort -u | while read name; do "
        "case $name in SYS_exit_group | SYS_m*map) continue ;; esac; grep -q \"{$name,\" "
        "$TEST_ROOT/tests/fault/fault.h || echo $name; done",
        "r");
    assert_non_null(output);
    size_t length = fread(names, 1, sizeof names - 1, output);
    assert_int_equal(pclose(output), 0);
    if (length != 0) {
        fail_msg("fault.h has to know: %s", names);
    }
}

TESTS(NULL)
