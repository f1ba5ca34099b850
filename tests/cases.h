/* SPDX-License-Identifier: MIT */
/* cases.h: TEST(name) { ... } is a test of cmocka, and TESTS(start) at the end of the file the main
 * function, which runs them in the order of the file. */
#ifndef TESTS_CASES_H
#define TESTS_CASES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct test_case {
    int line;
    struct CMUnitTest test;
};

/* Compilers list them in any order. */
extern const struct test_case *const __start_test_cases[], *const __stop_test_cases[];

/* `setup` and `teardown` run around the test. */
#define TEST_WITH(name, setup, teardown)                                                           \
    static void test_##name(void **state);                                                         \
    static const struct test_case case_##name = {__LINE__,                                         \
                                                 {#name, test_##name, setup, teardown, NULL}};     \
    static const struct test_case *const listed_##name                                             \
        __attribute__((used, section("test_cases"))) = &case_##name;                               \
    static void test_##name(__attribute__((unused)) void **state)

#define TEST(name) TEST_WITH(name, NULL, NULL)

/* What main returns. */
static inline int tests_run(CMFixtureFunction start, CMFixtureFunction end)
{
    struct CMUnitTest tests[64];
    int lines[sizeof tests / sizeof tests[0]];
    size_t count = 0;
    for (const struct test_case *const *at = __start_test_cases; at < __stop_test_cases; at++) {
        size_t i = count++;
        if (count > sizeof tests / sizeof tests[0]) {
            return 1;
        }
        for (; i > 0 && lines[i - 1] > (*at)->line; i--) {
            lines[i] = lines[i - 1];
            tests[i] = tests[i - 1];
        }
        lines[i] = (*at)->line;
        tests[i] = (*at)->test;
    }
    return _cmocka_run_group_tests("tests", tests, count, start, end);
}

#define TESTS(start)                                                                               \
    int main(void)                                                                                 \
    {                                                                                              \
        return tests_run(start, NULL);                                                             \
    }

#endif
