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

static void say_little(void *argument)
{
    hak__diagnose_fatal("what was wrong", somewhere, 0, 0);
}

static void say_much(void *argument)
{
    char what[1000];
    memset(what, 'w', sizeof what - 1);
    what[sizeof what - 1] = '\0';
    hak__diagnose_fatal(what, somewhere, 112, 7);
}

static void warn(void *argument)
{
    hak__diagnose_warn("something odd", somewhere);
}

TEST(fatal)
{
    REQUIRE_DEATH(say_all, NULL,
                  "^hakmem: fatal: what was wrong: pointer 0x1234abcd, size class 112 bytes, "
                  "owned by heap 7$");
    REQUIRE_DEATH(say_little, NULL, "^hakmem: fatal: what was wrong: pointer 0x1234abcd$");
    REQUIRE_DEATH(say_little, NULL, "^hakmem: in process [0-9]+; .*; program .*test_diagnose$");
    REQUIRE_DEATH(say_much, NULL, "^hakmem: fatal: w{200}");
}

TEST(warning)
{
    REQUIRE_LIFE(warn, NULL, "^hakmem: warning: something odd: pointer 0x1234abcd$");
}

static void assert_level_1(void *argument)
{
    HAK_ASSERT(argument != NULL);
}

static void assert_level_2(void *argument)
{
    HAK_ASSERT_FULL(argument != NULL);
}

TEST(assertions)
{
    char something;
    REQUIRE_LIFE(assert_level_1, &something, NULL);
    REQUIRE_LIFE(assert_level_2, &something, NULL);
    if (HAK_LEVEL >= 1) {
        REQUIRE_DEATH(assert_level_1, NULL,
                      "assertion failed: argument != [^ ].* \\(.*test_diagnose.c:[0-9]+\\)$");
    } else {
        REQUIRE_LIFE(assert_level_1, NULL, NULL);
    }
    if (HAK_LEVEL >= 2) {
        REQUIRE_DEATH(assert_level_2, NULL, "assertion failed: argument != ");
    } else {
        REQUIRE_LIFE(assert_level_2, NULL, NULL);
    }
}

TESTS(NULL)
