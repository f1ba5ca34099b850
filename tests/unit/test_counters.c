/* SPDX-License-Identifier: MIT */
/* test_counters.c: core/counters: the names a report shows, and counting. */
#include "unit.h"

struct name {
    const char *name;
    const char *key;
    const char *text;
};

#define X(name, key, text) {#name, key, text},
static const struct name names[] = {HAK_COUNTERS(X)};
#undef X

/* The key is the name in lower case: letters, digits, underscores. */
static void expect_lower_case_of(const char *key, const char *name)
{
    assert_int_equal(strlen(key), strlen(name));
    for (size_t i = 0; name[i] != '\0'; i++) {
        char lower = name[i] >= 'A' && name[i] <= 'Z' ? (char)(name[i] - 'A' + 'a') : name[i];
        assert_int_equal(key[i], lower);
        assert_true((lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9') ||
                    lower == '_');
    }
}

TEST(report_names)
{
    assert_int_equal(COUNT_OF(names), COUNTER_COUNT);
    for (size_t i = 0; i < COUNTER_COUNT; i++) {
        expect_lower_case_of(names[i].key, names[i].name);
        assert_true(strlen(names[i].text) > 10);
        assert_null(strpbrk(names[i].text, "\"\\\n"));
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(names[i].key, names[j].key);
            assert_string_not_equal(names[i].text, names[j].text);
        }
    }
}

TEST(os_call_names)
{
    for (size_t i = 0; i < OS_CALL_COUNT; i++) {
        assert_non_null(hak__os_call_names[i]);
        assert_true(strlen(hak__os_call_names[i]) > 3);
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(hak__os_call_names[i], hak__os_call_names[j]);
        }
    }
}

TEST(each_counter_counts_for_itself)
{
    struct counters counters = {{0}};
    for (uint32_t i = 0; i < COUNTER_COUNT; i++) {
        counter_add(&counters, (enum counter)i, i);
        counter_add(&counters, (enum counter)i, UINT64_C(1) << 40);
    }
    for (uint32_t i = 0; i < COUNTER_COUNT; i++) {
        assert_true(counters.values[i] == (UINT64_C(1) << 40) + i);
    }
}

TESTS(NULL)
