/* SPDX-License-Identifier: MIT */
/* cases.h: TEST(name) { ... } is a test of cmocka, and TESTS(start) at the end of the file the main
 * function, which runs them in the order of the file, or only the one that TEST_CASE=NAME in the
 * environment names. CHILD(name) { ... } is what the program does instead when it is started as
 * `PROGRAM --child NAME` (child_exec of child.h). */
#ifndef TESTS_CASES_H
#define TESTS_CASES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    const char *wanted = getenv("TEST_CASE");
    for (const struct test_case *const *at = __start_test_cases; at < __stop_test_cases; at++) {
        if (wanted != NULL && strcmp((*at)->test.name, wanted) != 0) {
            continue;
        }
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
    if (count == 0) {
        fprintf(stderr, "there is no case %s here\n", wanted != NULL ? wanted : "");
        return 1;
    }
    return _cmocka_run_group_tests("tests", tests, count, start, end);
}

struct child_case {
    const char *name;
    void (*body)(void *argument);
};

extern const struct child_case *const __start_child_cases[] __attribute__((weak));
extern const struct child_case *const __stop_child_cases[] __attribute__((weak));

#define CHILD(name)                                                                                \
    static void child_##name(void *argument);                                                      \
    static const struct child_case child_case_##name = {#name, child_##name};                      \
    static const struct child_case *const child_listed_##name                                      \
        __attribute__((used, section("child_cases"))) = &child_case_##name;                        \
    static void child_##name(__attribute__((unused)) void *argument)

/* Runs the child of this name, and ends the process, if this is that child. */
static inline void child_run_case(const struct child_case *child, int count, char **arguments)
{
    if (count == 3 && strcmp(arguments[1], "--child") == 0 &&
        strcmp(arguments[2], child->name) == 0) {
        child->body(NULL);
        fflush(NULL);
        _exit(0);
    }
}

static inline int tests_main(int count, char **arguments, CMFixtureFunction start,
                             CMFixtureFunction end)
{
    for (const struct child_case *const *at = __start_child_cases; at < __stop_child_cases; at++) {
        child_run_case(*at, count, arguments);
    }
    if (count > 1 && strcmp(arguments[1], "--child") == 0) {
        return 99; /* there is no such child */
    }
    return tests_run(start, end);
}

#define TESTS_WITH(start, end)                                                                     \
    int main(int count, char **arguments)                                                          \
    {                                                                                              \
        return tests_main(count, arguments, start, end);                                           \
    }

#define TESTS(start) TESTS_WITH(start, NULL)

#endif
