/* SPDX-License-Identifier: MIT */
/* test_diagnose.c: core/diagnose and base/check: the words of the last line, the level of an
 * assertion. */
#include "../child.h"
#include "unit.h"

#include "core/diagnose.h"

static void *const somewhere = (void *)0x1234abcd;

static void say_all(void *argument)
{
    hak__diagnose_fatal("what was wrong", somewhere, 112, 7);
}

static void say_given(void *argument)
{
    hak__diagnose_given("what was wrong", 300, somewhere, 112);
}

static void say_much(void *argument)
{
    char what[1000] = "";
    memset(what, 'w', sizeof what - 1);
    hak__diagnose_fatal(what, somewhere, 112, 7);
}

static void warn(void *argument)
{
    hak__diagnose_warn("something odd", somewhere);
}

TEST(lines)
{
    REQUIRE_DEATH(say_all, NULL,
                  "^hakmem: fatal: what was wrong: pointer 0x1234abcd, in a block of 112 bytes, "
                  "owned by arena 7$");
    REQUIRE_DEATH(say_all, NULL, "^hakmem: in process [0-9]+; .*; program .*test_diagnose$");
    REQUIRE_DEATH(say_given, NULL,
                  "^hakmem: fatal: what was wrong \\(300\\): pointer 0x1234abcd, in a block of 112 "
                  "bytes$");
    REQUIRE_DEATH(say_much, NULL, "^hakmem: fatal: w{200}");
    REQUIRE_LIFE(warn, NULL, "^hakmem: warning: something odd: pointer 0x1234abcd$");
}

static void assert_level(void *argument)
{
    if (*(int *)argument == 1) {
        HAK_ASSERT(argument == NULL);
    } else {
        HAK_ASSERT_FULL(argument == NULL);
    }
}

TEST(assertions)
{
    for (int level = 1; level <= 2; level++) {
        if (HAK_LEVEL >= level) {
            REQUIRE_DEATH(assert_level, &level,
                          "assertion failed: argument == [^ ].* \\(.*test_diagnose.c:[0-9]+\\)$");
        } else {
            REQUIRE_LIFE(assert_level, &level, NULL);
        }
    }
}

TESTS(NULL)
