/* SPDX-License-Identifier: MIT */
/* test_version.c: the version string is the header's numbers. */
#include "../support.h"

TEST(version_is_the_headers)
{
    char expected[64];
    snprintf(expected, sizeof expected, "%d.%d.%d", HAK_VERSION_MAJOR, HAK_VERSION_MINOR,
             HAK_VERSION_PATCH);
    assert_string_equal(hak_version(), expected);
    assert_ptr_equal(hak_version(), hak_version());
}

TESTS(NULL)
