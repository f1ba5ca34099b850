/* SPDX-License-Identifier: MIT */
/* text.h: builds short messages in a caller's buffer, and parses option values.
 *
 * Why: printf may allocate. A text that does not fit is cut: `length` never exceeds `size`. No
 * terminating zero is written. A text belongs to one thread; no locks. */
#ifndef HAK_BASE_TEXT_H
#define HAK_BASE_TEXT_H

#include "base/compiler.h"

#include <stdarg.h>

/* Bytes for a line of a message, or for a path in one: longer paths are cut. Twice: messages need
 * twice as much of any thread's stack. Half: paths of deep build directories are cut. */
#define TEXT_LINE_SIZE 512u

struct text {
    char *data;    /* the caller's buffer */
    size_t size;   /* of the buffer, bytes */
    size_t length; /* bytes in use */
};

/* Each of these appends to the text. */

HAK_HIDDEN void hak__text_put(struct text *text, const char *string);
HAK_HIDDEN void hak__text_put_part(struct text *text, const char *part, size_t length);
/* As printf with %s, %.*s, %c, %u, %x, %lu, %lx, %zu and %zx; `#` puts 0x before a number. A width
 * is filled with blanks at the left; after `-` at the right; after `0` with zeroes. */
HAK_HIDDEN void hak__text_format(struct text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
HAK_HIDDEN void hak__text_put_list(struct text *text, const char *format, va_list values)
    __attribute__((format(printf, 2, 0)));

/* Makes a string of it in `data`, which has `size` bytes, and returns it. */
HAK_HIDDEN char *hak__text_make(char *data, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Parses a size in bytes: a decimal number, a unit k, m, g or t (powers of 1024; "ki" and so on are
 * the same) or none, and a "b" or none, in either case. False for anything else, for the empty
 * string and for 2^64 bytes or more; *value is then unchanged. */
HAK_HIDDEN bool hak__text_parse_size(const char *string, uint64_t *value);
/* Reads the decimal number at *string and moves *string behind it. 0: there is none. UINT64_MAX: it
 * is too large. */
HAK_HIDDEN uint64_t hak__text_number(const char **string);
/* Bytes of the string, `most` at most. */
HAK_HIDDEN size_t hak__text_length(const char *string, size_t most);
/* True if the two strings are equal. */
HAK_HIDDEN bool hak__text_equal(const char *a, const char *b);
/* The rest of `string` after `prefix`; NULL if `string` does not begin with it. */
HAK_HIDDEN const char *hak__text_after(const char *string, const char *prefix);
/* What follows `key` in the first line that begins with it; NULL: there is no such line. */
HAK_HIDDEN const char *hak__text_line(const char *text, const char *key);

#endif
