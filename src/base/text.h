/* text.h: builds short messages in a caller's buffer, without printf and without allocation.
 * A text that does not fit is cut; `length` never exceeds `size`. Not zero-terminated. */
#ifndef HAK_BASE_TEXT_H
#define HAK_BASE_TEXT_H

#include "base/compiler.h"

struct text {
    char *data;
    size_t size;
    size_t length;
};

HAK_HIDDEN void hak__text_put(struct text *text, const char *string);
HAK_HIDDEN void hak__text_put_part(struct text *text, const char *part, size_t length);
HAK_HIDDEN void hak__text_put_unsigned(struct text *text, uint64_t value);
HAK_HIDDEN void hak__text_put_hex(struct text *text, uint64_t value); /* with 0x */

/* Parses a decimal number with an optional suffix k, m, g, t (powers of 1024, either case, an
 * optional "ib" or "b" after it). False for anything else, including overflow and the empty string.
 */
HAK_HIDDEN bool hak__text_parse_size(const char *string, uint64_t *value);
HAK_HIDDEN bool hak__text_equal(const char *a, const char *b);
/* What follows `prefix` in `string`, NULL when that does not begin so. */
HAK_HIDDEN const char *hak__text_after(const char *string, const char *prefix);

#endif
