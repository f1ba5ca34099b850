/* SPDX-License-Identifier: MIT */
/* test_version.c: the version string is the header's numbers. */
#include "../support.h"

static void test_version_is_the_headers(void **state)
{
    char expected[64];
    (void)state;
    snprintf(expected, sizeof expected, "%d.%d.%d", HAKMEM_VERSION_MAJOR, HAKMEM_VERSION_MINOR,
             HAKMEM_VERSION_PATCH);
    assert_string_equal(hak_version(), expected);
    assert_ptr_equal(hak_version(), hak_version());
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_version_is_the_headers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
