/* SPDX-License-Identifier: MIT */
/* test_text.c: base/text: building texts in a bounded buffer, parsing sizes, comparing. */
#include "unit.h"

#include "base/text.h"

#define GUARD '#'

/* A text of `size` bytes with guards behind it. */
struct fixture {
    char data[64];
    struct text text;
};

static struct fixture fixture_create(size_t size)
{
    struct fixture fixture;
    memset(fixture.data, GUARD, sizeof fixture.data);
    fixture.text = (struct text){NULL, size, 0};
    return fixture;
}

static void fixture_expect(const struct fixture *fixture, const char *expected)
{
    size_t length = strlen(expected);
    assert_int_equal(fixture->text.length, length);
    assert_memory_equal(fixture->data, expected, length);
    for (size_t i = length; i < sizeof fixture->data; i++) {
        assert_int_equal(fixture->data[i], GUARD);
    }
}

TEST(put)
{
    struct fixture fixture = fixture_create(40);
    fixture.text.data = fixture.data;
    hak__text_put(&fixture.text, "");
    fixture_expect(&fixture, "");
    hak__text_put(&fixture.text, "one ");
    hak__text_put_part(&fixture.text, "twothree", 3);
    hak__text_put_part(&fixture.text, "x", 0);
    hak__text_put(&fixture.text, " ");
    hak__text_format(&fixture.text, "%lu", (uint64_t)0);
    hak__text_put(&fixture.text, " ");
    hak__text_format(&fixture.text, "%lu", (uint64_t)1234567890);
    hak__text_put(&fixture.text, " ");
    hak__text_format(&fixture.text, "%#lx", (uint64_t)0xbeef);
    fixture_expect(&fixture, "one two 0 1234567890 0xbeef");
}

TEST(put_extremes)
{
    struct fixture fixture = fixture_create(sizeof fixture.data);
    fixture.text.data = fixture.data;
    hak__text_format(&fixture.text, "%lu", (uint64_t)UINT64_MAX);
    hak__text_put(&fixture.text, " ");
    hak__text_format(&fixture.text, "%#lx", (uint64_t)UINT64_MAX);
    hak__text_format(&fixture.text, "%#lx", (uint64_t)0);
    fixture_expect(&fixture, "18446744073709551615 0xffffffffffffffff0x0");
}

TEST(a_full_text_is_cut)
{
    static const char whole[] = "abc123450xff";
    for (size_t size = 0; size < sizeof whole; size++) {
        struct fixture fixture = fixture_create(size);
        fixture.text.data = fixture.data;
        hak__text_put(&fixture.text, "abc");
        hak__text_format(&fixture.text, "%lu", (uint64_t)12345);
        hak__text_format(&fixture.text, "%#lx", (uint64_t)255);
        char expected[sizeof whole];
        memcpy(expected, whole, sizeof whole);
        expected[size] = '\0';
        fixture_expect(&fixture, expected);
        hak__text_put(&fixture.text, "");
        assert_true(fixture.text.length <= size);
    }
}

TEST(put_numbers_like_printf)
{
    uint64_t random = 1;
    for (int i = 0; i < 2000; i++) {
        uint64_t value = random_size(&random, 62) * (1 + random_below(&random, 4));
        char expected[64];
        snprintf(expected, sizeof expected, "%llu 0x%llx", (unsigned long long)value,
                 (unsigned long long)value);
        struct fixture fixture = fixture_create(sizeof fixture.data);
        fixture.text.data = fixture.data;
        hak__text_format(&fixture.text, "%lu", (uint64_t)value);
        hak__text_put(&fixture.text, " ");
        hak__text_format(&fixture.text, "%#lx", (uint64_t)value);
        fixture_expect(&fixture, expected);
    }
}

TEST(parse_size_accepts)
{
    static const struct {
        const char *string;
        uint64_t value;
    } cases[] = {{"0", 0},
                 {"1", 1},
                 {"007", 7},
                 {"65536", 65536},
                 {"18446744073709551615", UINT64_MAX},
                 {"0k", 0},
                 {"1k", 1024},
                 {"1K", 1024},
                 {"3m", UINT64_C(3) << 20},
                 {"3M", UINT64_C(3) << 20},
                 {"5g", UINT64_C(5) << 30},
                 {"5G", UINT64_C(5) << 30},
                 {"2t", UINT64_C(2) << 40},
                 {"2T", UINT64_C(2) << 40},
                 {"8kb", 8192},
                 {"8KB", 8192},
                 {"8kib", 8192},
                 {"8KiB", 8192},
                 {"8MiB", UINT64_C(8) << 20},
                 {"9b", 9},
                 {"9B", 9},
                 {"16777215t", UINT64_C(16777215) << 40},
                 {"18014398509481983k", UINT64_C(18014398509481983) << 10}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint64_t value = 42;
        assert_true(hak__text_parse_size(cases[i].string, &value));
        assert_true(value == cases[i].value);
    }
}

TEST(parse_size_refuses)
{
    static const char *const cases[] = {"",
                                        " ",
                                        "k",
                                        "b",
                                        "-1",
                                        "+1",
                                        " 1",
                                        "1 ",
                                        "1x",
                                        "1kk",
                                        "1km",
                                        "1kx",
                                        "1bb",
                                        "1kbb",
                                        "1.5",
                                        "1.5k",
                                        "0x10",
                                        "1e3",
                                        "1ib",
                                        "1p",
                                        "ten",
                                        "1k ",
                                        "never",
                                        "1,024",
                                        "18446744073709551616",
                                        "99999999999999999999999",
                                        "16777216t",
                                        "18014398509481984k",
                                        "18446744073709551615k"};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        uint64_t value = 42;
        if (hak__text_parse_size(cases[i], &value)) {
            fail_msg("\"%s\" was accepted as %llu", cases[i], (unsigned long long)value);
        }
        assert_true(value == 42);
    }
}

TEST(equal)
{
    static const char *const strings[] = {"", "a", "b", "ab", "abc", "abd", "A", "ab "};
    for (size_t i = 0; i < COUNT_OF(strings); i++) {
        for (size_t j = 0; j < COUNT_OF(strings); j++) {
            assert_int_equal(hak__text_equal(strings[i], strings[j]), i == j);
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

/* As printf. */
TEST(formats)
{
    char data[128];
    assert_string_equal(
        hak__text_make(data, sizeof data, "%s|%.*s|%c|100 %%", "one", 2, "two", 'x'),
        "one|tw|x|100 %");
    assert_string_equal(hak__text_make(data, sizeof data, "%u %lu %zu %x %#lx", 1u, (uint64_t)2,
                                       (size_t)3, 0xau, (uint64_t)0xbeef),
                        "1 2 3 a 0xbeef");
    assert_string_equal(hak__text_make(data, sizeof data, "[%4s][%-4s][%5u][%03lu][%02x]", "ab",
                                       "ab", 42u, (uint64_t)7, 5u),
                        "[  ab][ab  ][   42][007][05]");
    assert_string_equal(hak__text_make(data, 5, "%s", "too long"), "too ");
    assert_string_equal(hak__text_make(data, 1, "%s", "x"), "");
}

TESTS(NULL)
