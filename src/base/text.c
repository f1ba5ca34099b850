/* SPDX-License-Identifier: MIT */
/* text.c: see text.h. */
#include "base/text.h"

void hak__text_put_part(struct text *text, const char *part, size_t length)
{
    for (size_t i = 0; i < length && text->length < text->size; i++) {
        text->data[text->length++] = part[i];
    }
}

size_t hak__text_length(const char *string, size_t most)
{
    size_t length = 0;
    while (length < most && string[length] != '\0') {
        length++;
    }
    return length;
}

void hak__text_put(struct text *text, const char *string)
{
    hak__text_put_part(text, string, hak__text_length(string, SIZE_MAX));
}

/* Puts the digits at the end of the array. Returns the first one. */
static const char *text_digits(char digits[24], uint64_t value, unsigned base)
{
    char *first = digits + 24;
    do {
        *--first = "0123456789abcdef"[value % base];
        value /= base;
    } while (value != 0);
    return first;
}

void hak__text_put_list(struct text *text, const char *at, va_list values)
{
    for (; *at != '\0'; at++) {
        if (*at != '%' || *++at == '%') {
            hak__text_put_part(text, at, 1);
            continue;
        }
        char digits[24];
        const char *piece = digits, *prefix = "", *fill = *at == '0' ? "0" : " ";
        bool left = *at == '-';
        at += left;
        prefix = *at == '#' ? "0x" : "";
        at += *at == '#';
        size_t width = 0, length = 1, most = SIZE_MAX;
        for (; *at >= '0' && *at <= '9'; at++) {
            width = width * 10 + (size_t)(*at - '0');
        }
        if (*at == '.') {
            most = (size_t)va_arg(values, int);
            at += 2;
        }
        bool wide = *at == 'l' || *at == 'z';
        at += wide;
        if (*at == 's') {
            piece = va_arg(values, const char *);
            length = hak__text_length(piece, most);
        } else if (*at == 'c') {
            digits[0] = (char)va_arg(values, int);
        } else {
            uint64_t value = wide ? va_arg(values, uint64_t) : va_arg(values, unsigned);
            piece = text_digits(digits, value, *at == 'x' ? 16 : 10);
            length = (size_t)(digits + sizeof digits - piece);
        }
        for (size_t i = length; !left && i < width; i++) {
            hak__text_put(text, fill);
        }
        hak__text_put(text, prefix);
        hak__text_put_part(text, piece, length);
        for (size_t i = length; left && i < width; i++) {
            hak__text_put(text, " ");
        }
    }
}

void hak__text_format(struct text *text, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    hak__text_put_list(text, format, values);
    va_end(values);
}

char *hak__text_make(char *data, size_t size, const char *format, ...)
{
    struct text text = {data, size - 1, 0};
    va_list values;
    va_start(values, format);
    hak__text_put_list(&text, format, values);
    va_end(values);
    data[text.length] = '\0';
    return data;
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

uint64_t hak__text_number(const char **string)
{
    uint64_t number = 0;
    for (; **string >= '0' && **string <= '9'; ++*string) {
        uint64_t digit = (uint64_t)(**string - '0');
        number = number < (UINT64_MAX - digit) / 10 ? number * 10 + digit : UINT64_MAX;
    }
    return number;
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
