/* SPDX-License-Identifier: MIT */
/* text.c: see text.h. */
#include "base/text.h"

void hak__text_put_part(struct text *text, const char *part, size_t length)
{
    for (size_t i = 0; i < length && text->length < text->size; i++) {
        text->data[text->length++] = part[i];
    }
}

void hak__text_put(struct text *text, const char *string)
{
    size_t length = 0;
    while (string[length] != '\0') {
        length++;
    }
    hak__text_put_part(text, string, length);
}

static void text_put_digits(struct text *text, uint64_t value, unsigned base)
{
    char digits[20]; /* 2^64 has 20 decimal digits */
    size_t first = sizeof digits;
    do {
        digits[--first] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value != 0);
    hak__text_put_part(text, digits + first, sizeof digits - first);
}

void hak__text_put_unsigned(struct text *text, uint64_t value)
{
    text_put_digits(text, value, 10);
}

void hak__text_put_hex(struct text *text, uint64_t value)
{
    hak__text_put(text, "0x");
    text_put_digits(text, value, 16);
}

static char text_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

bool hak__text_parse_size(const char *string, uint64_t *value)
{
    uint64_t number = 0;
    const char *at = string;
    if (*at < '0' || *at > '9') {
        return false;
    }
    for (; *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(number, UINT64_C(10), &number) ||
            __builtin_add_overflow(number, (uint64_t)(*at - '0'), &number)) {
            return false;
        }
    }
    const char *suffixes = "kmgt";
    for (unsigned i = 0; i < 4 && *at != '\0'; i++) {
        if (text_lower(*at) == suffixes[i]) {
            uint64_t unit = UINT64_C(1) << (10 * (i + 1));
            if (__builtin_mul_overflow(number, unit, &number)) {
                return false;
            }
            at++;
            if (text_lower(*at) == 'i') {
                at++;
            }
            break;
        }
    }
    if (text_lower(*at) == 'b') {
        at++;
    }
    if (*at != '\0') {
        return false;
    }
    *value = number;
    return true;
}

const char *hak__text_after(const char *string, const char *prefix)
{
    while (*prefix != '\0' && *string == *prefix) {
        string++;
        prefix++;
    }
    return *prefix == '\0' ? string : NULL;
}

const char *hak__text_line(const char *text, const char *key)
{
    while (*text != '\0') {
        const char *after = hak__text_after(text, key);
        if (after != NULL) {
            return after;
        }
        while (*text != '\0' && *text++ != '\n') {
        }
    }
    return NULL;
}

bool hak__text_equal(const char *a, const char *b)
{
    while (*a != '\0' && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}
