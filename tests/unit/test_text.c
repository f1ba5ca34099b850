/* SPDX-License-Identifier: MIT */
/* test_text.c: base/text: building texts in a bounded buffer, parsing sizes, lines. */
#include "unit.h"

#include "base/text.h"

/* As printf, and nothing is written behind a buffer that is too small. */
TEST(formats)
{
    uint64_t random = 1;
    char data[128], expected[128];
    for (size_t i = 0; i < 2000; i++) {
        uint64_t value = i == 0 ? 0 : i == 1 ? UINT64_MAX : random_size(&random, 62) << i % 3;
        unsigned small = (unsigned)value;
        int length =
            snprintf(expected, sizeof expected,
                     "%s|%.*s|%c|100 %%|%llu 0x%llx %u %x|[%4s][%-4s][%5u][%03lu][%02x]", "one", 2,
                     "two", 'x', (unsigned long long)value, (unsigned long long)value, small, small,
                     "ab", "ab", small % 1000, (unsigned long)value % 10000, small % 300);
        size_t size = i % 2 == 0 ? sizeof data : i % 64;
        memset(data, '#', sizeof data);
        struct text text = {data, size, 0};
        hak__text_put(&text, "one|");
        hak__text_put_part(&text, "twothree", 2);
        hak__text_format(&text, "|%c|100 %%|%lu %#lx %u %x|[%4s][%-4s][%5u][%03lu][%02x]", 'x',
                         value, value, small, small, "ab", "ab", small % 1000, value % 10000,
                         small % 300);
        size_t kept = (size_t)length < size ? (size_t)length : size;
        assert_int_equal(text.length, kept);
        assert_memory_equal(data, expected, kept);
        assert_true(kept == sizeof data || data[kept] == '#');
    }
    assert_string_equal(hak__text_make(data, sizeof data, "%s %zu", "x", (size_t)3), "x 3");
    assert_string_equal(hak__text_make(data, 5, "%s", "too long"), "too ");
    assert_string_equal(hak__text_make(data, 1, "%s", "x"), "");
}

TEST(sizes)
{
    static const struct {
        const char *string;
        uint64_t value;
    } cases[] = {{"0", 0},
                 {"007", 7},
                 {"18446744073709551615", UINT64_MAX},
                 {"0k", 0},
                 {"1K", 1024},
                 {"3m", UINT64_C(3) << 20},
                 {"5G", UINT64_C(5) << 30},
                 {"2t", UINT64_C(2) << 40},
                 {"8kb", 8192},
                 {"8MiB", UINT64_C(8) << 20},
                 {"9B", 9},
                 {"16777215t", UINT64_C(16777215) << 40}};
    static const char *const refused[] = {
        "",          " ",    "k",    "-1",  "+1", " 1",  "1 ",    "1x",    "1kk",
        "1bb",       "1.5k", "0x10", "1e3", "1p", "ten", "never", "1,024", "18446744073709551616",
        "16777216t",
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint64_t value = 42;
        assert_true(hak__text_parse_size(cases[i].string, &value));
        assert_true(value == cases[i].value);
    }
    for (size_t i = 0; i < COUNT_OF(refused); i++) {
        uint64_t value = 42;
        if (hak__text_parse_size(refused[i], &value) || value != 42) {
            fail_msg("\"%s\" was accepted as %llu", refused[i], (unsigned long long)value);
        }
    }
}

TEST(lines)
{
    const char *text = "one: 1\nkey one: 2\n\nkey: 3\nkey: 4";
    assert_string_equal(hak__text_line(text, "key: "), "3\nkey: 4");
    assert_string_equal(hak__text_line(text, "one"), ": 1\nkey one: 2\n\nkey: 3\nkey: 4");
    assert_null(hak__text_line(text, "two"));
    assert_null(hak__text_line(text, "key: 45"));
    assert_null(hak__text_line("", "key"));
}

TESTS(NULL)
