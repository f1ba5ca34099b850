/* SPDX-License-Identifier: MIT */
/* report_writer.c: see report_writer.h. */
#include "observe/report_writer.h"

#include <string.h>

/* Widths in characters. The longest key has 24; 14 digits are enough for 90 TiB. */
#define REPORT_KEY_WIDTH 26
#define REPORT_VALUE_WIDTH 14
#define REPORT_UNIT_WIDTH 12
#define REPORT_COLUMN_WIDTH 12

static void report_flush(struct report_writer *writer)
{
    if (writer->text.length != 0) {
        writer->sink(writer->argument, writer->buffer, writer->text.length);
        writer->text.length = 0;
    }
}

static void report_put_char(struct report_writer *writer, char c)
{
    if (writer->text.length == writer->text.size) {
        report_flush(writer);
    }
    hak__text_put_part(&writer->text, &c, 1);
}

static uint32_t report_put(struct report_writer *writer, const char *string)
{
    uint32_t length = 0;
    for (; string[length] != '\0'; length++) {
        report_put_char(writer, string[length]);
    }
    return length;
}

static void report_put_spaces(struct report_writer *writer, uint32_t from, uint32_t to)
{
    for (uint32_t column = from; column < to; column++) {
        report_put_char(writer, ' ');
    }
}

static void report_put_right(struct report_writer *writer, const char *string, uint32_t width)
{
    report_put_spaces(writer, (uint32_t)strlen(string), width);
    report_put(writer, string);
}

static bool report_is_json(const struct report_writer *writer)
{
    return writer->format == HAK_REPORT_JSON;
}

/* JSON: a quoted string. Every byte that is not printable ASCII is escaped. */
static void report_put_quoted(struct report_writer *writer, const char *string)
{
    report_put_char(writer, '"');
    for (; *string != '\0'; string++) {
        unsigned char c = (unsigned char)*string;
        if (c == '"' || c == '\\') {
            report_put_char(writer, '\\');
            report_put_char(writer, (char)c);
        } else if (c >= ' ' && c <= '~') {
            report_put_char(writer, (char)c);
        } else {
            report_put(writer, "\\u00");
            report_put_char(writer, "0123456789abcdef"[c >> 4]);
            report_put_char(writer, "0123456789abcdef"[c & 15]);
        }
    }
    report_put_char(writer, '"');
}

/* Text: every byte that is not printable ASCII becomes '?'. */
static void report_put_plain(struct report_writer *writer, const char *string)
{
    for (; *string != '\0'; string++) {
        report_put_char(writer, *string >= ' ' && *string <= '~' ? *string : '?');
    }
}

/* JSON: writes a comma unless this is the group's first, then "key": unless the key is NULL. */
static void report_json_next(struct report_writer *writer, const char *key)
{
    if (!writer->first) {
        report_put(writer, ", ");
    }
    writer->first = false;
    if (key != NULL) {
        report_put_quoted(writer, key);
        report_put(writer, ": ");
    }
}

/* --- looking for one number ---
 *
 * The report is then written as JSON, to nobody. */

static void find_nobody(void *argument, const char *text, size_t size)
{
    (void)argument;
    (void)text;
    (void)size;
}

void hak__report_find(struct report_writer *writer, const char *wanted)
{
    hak__report_begin(writer, HAK_REPORT_JSON, find_nobody, NULL);
    writer->wanted = wanted;
}

void hak__report_list_names(struct report_writer *writer, hak_report_sink *sink, void *argument)
{
    hak__report_find(writer, "");
    writer->tell = sink;
    writer->tell_argument = argument;
}

static void find_enter(struct report_writer *writer, const char *name)
{
    hak__text_format(&writer->group, "%s%s", writer->group.length != 0 ? "." : "", name);
    writer->group_name[writer->group.length] = '\0';
}

static void find_leave(struct report_writer *writer)
{
    size_t length = writer->group.length;
    while (length != 0 && writer->group_name[--length] != '.') {
    }
    writer->group.length = length;
    writer->group_name[length] = '\0';
}

/* For hak__report_list_names. Records begin with a number for a name, so inside one the group's
 * name has a part that is a number. */
static void find_tell_name(const struct report_writer *writer, const char *key, const char *help)
{
    char line[2 * REPORT_NAME_SIZE + 160];
    struct text text = {line, sizeof line - 1, 0};
    for (const char *at = writer->group_name; *at != '\0'; at++) {
        if (*at == '.' && at[1] >= '0' && at[1] <= '9') {
            return;
        }
    }
    hak__text_format(&text, "%s.%s\t\t%s\n", writer->group_name, key, help);
    line[text.length] = '\0';
    writer->tell(writer->tell_argument, line, text.length);
}

static void find_look_at(struct report_writer *writer, const char *key, const char *digits,
                         uint64_t value, const char *help)
{
    if (writer->names) {
        find_enter(writer, digits);
        writer->names = false;
    }
    if (writer->tell != NULL) {
        find_tell_name(writer, key, help);
        return;
    }
    const char *rest = hak__text_after(writer->wanted, writer->group_name);
    if (!writer->found && value != UINT64_MAX && rest != NULL && *rest == '.' &&
        hak__text_equal(rest + 1, key)) {
        writer->found = true;
        writer->value = value;
    }
}

/* --- JSON --- */

static void report_json_open(struct report_writer *writer, const char *key, char bracket)
{
    if (writer->wanted != NULL && key != NULL) {
        find_enter(writer, key);
    }
    writer->names = key == NULL;
    report_json_next(writer, key);
    report_put_char(writer, bracket);
    writer->first = true;
}

static void report_json_close(struct report_writer *writer, char bracket)
{
    report_put_char(writer, bracket);
    writer->first = false;
    if (writer->wanted != NULL) {
        find_leave(writer);
    }
}

void hak__report_begin(struct report_writer *writer, enum hak_report_format format,
                       hak_report_sink *sink, void *argument)
{
    writer->sink = sink;
    writer->argument = argument;
    writer->format = format;
    writer->layout = REPORT_LINES;
    writer->first = true;
    writer->wanted = NULL;
    writer->found = writer->names = false;
    writer->tell = NULL;
    writer->group = (struct text){writer->group_name, REPORT_NAME_SIZE, 0};
    writer->group_name[0] = '\0';
    writer->text = (struct text){writer->buffer, sizeof writer->buffer, 0};
    if (report_is_json(writer)) {
        report_put_char(writer, '{');
    }
}

void hak__report_end(struct report_writer *writer)
{
    if (report_is_json(writer)) {
        report_put(writer, "}\n");
    }
    report_flush(writer);
}

void hak__report_section_begin(struct report_writer *writer, const char *key)
{
    if (report_is_json(writer)) {
        report_json_open(writer, key, '{');
    } else if (writer->layout == REPORT_LINES) {
        report_put(writer, key);
        report_put_char(writer, '\n');
    }
}

void hak__report_section_end(struct report_writer *writer)
{
    if (report_is_json(writer)) {
        report_json_close(writer, '}');
    }
}

void hak__report_list_begin(struct report_writer *writer, const char *key,
                            const char *const *columns)
{
    writer->layout = columns != NULL ? REPORT_COLUMNS : REPORT_INLINE;
    if (report_is_json(writer)) {
        report_json_open(writer, key, '[');
        return;
    }
    report_put(writer, key);
    report_put_char(writer, '\n');
    if (columns != NULL) {
        for (; *columns != NULL; columns++) {
            report_put_char(writer, ' ');
            report_put_right(writer, *columns, REPORT_COLUMN_WIDTH);
        }
        report_put_char(writer, '\n');
    }
}

void hak__report_list_end(struct report_writer *writer)
{
    writer->layout = REPORT_LINES;
    if (report_is_json(writer)) {
        report_json_close(writer, ']');
    }
}

void hak__report_record_begin(struct report_writer *writer)
{
    if (report_is_json(writer)) {
        report_json_open(writer, NULL, '{');
    } else if (writer->layout == REPORT_INLINE) {
        report_put_char(writer, ' ');
    }
}

void hak__report_record_end(struct report_writer *writer)
{
    if (report_is_json(writer)) {
        report_json_close(writer, '}');
    } else {
        report_put_char(writer, '\n');
    }
}

/* Text: one field. In REPORT_LINES its unit and help follow the value. */
static void report_put_field(struct report_writer *writer, const char *key, const char *value,
                             const char *unit, const char *help)
{
    switch (writer->layout) {
    case REPORT_LINES:
        report_put(writer, "  ");
        report_put_spaces(writer, report_put(writer, key), REPORT_KEY_WIDTH);
        report_put_spaces(writer, (uint32_t)strlen(value), REPORT_VALUE_WIDTH);
        report_put_plain(writer, value);
        if (*unit != '\0' || *help != '\0') {
            report_put_char(writer, ' ');
            report_put_spaces(writer, report_put(writer, unit), REPORT_UNIT_WIDTH);
            report_put(writer, help);
        }
        report_put_char(writer, '\n');
        break;
    case REPORT_INLINE:
        report_put_char(writer, ' ');
        report_put(writer, key);
        report_put_char(writer, ' ');
        report_put_plain(writer, value);
        break;
    case REPORT_COLUMNS:
        report_put_char(writer, ' ');
        report_put_right(writer, value, REPORT_COLUMN_WIDTH);
        break;
    }
}

const char *hak__report_scale(char text[16], uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    uint64_t whole = bytes, rest = 0;
    uint32_t unit = 0;
    for (; whole >= 1024 && unit < 4; unit++) {
        rest = whole % 1024;
        whole /= 1024;
    }
    text[0] = '\0';
    return unit == 0
               ? text
               : hak__text_make(text, 16, "%lu.%lu %s", whole, rest * 10 / 1024, units[unit - 1]);
}

static bool report_is_of_bytes(const char *key)
{
    while (*key != '\0' && hak__text_after(key, "bytes") == NULL) {
        key++;
    }
    return *key != '\0';
}

void hak__report_number(struct report_writer *writer, const char *key, uint64_t value,
                        const char *help)
{
    char digits[24], unit[16] = "";
    bool known = value != UINT64_MAX;
    hak__text_make(digits, sizeof digits, "%lu", value);
    if (report_is_json(writer)) {
        report_json_next(writer, key);
        report_put(writer, known ? digits : "null");
        if (writer->wanted != NULL) {
            find_look_at(writer, key, digits, value, help);
        }
        return;
    }
    if (known && report_is_of_bytes(key)) {
        hak__report_scale(unit, value);
    }
    report_put_field(writer, key, known ? digits : "unknown", unit, help);
}

void hak__report_numbers(struct report_writer *writer, const struct report_number *numbers)
{
    for (; numbers->key != NULL; numbers++) {
        const char *help = numbers->help != NULL ? numbers->help : "";
        hak__report_number(writer, numbers->key, numbers->value, help);
    }
}

void hak__report_section(struct report_writer *writer, const char *key,
                         const struct report_number *numbers)
{
    hak__report_section_begin(writer, key);
    hak__report_numbers(writer, numbers);
    hak__report_section_end(writer);
}

void hak__report_record(struct report_writer *writer, const struct report_number *numbers)
{
    hak__report_record_begin(writer);
    hak__report_numbers(writer, numbers);
    hak__report_record_end(writer);
}

void hak__report_string(struct report_writer *writer, const char *key, const char *value,
                        const char *help)
{
    if (report_is_json(writer)) {
        report_json_next(writer, key);
        report_put_quoted(writer, value);
        return;
    }
    report_put_field(writer, key, value, "", help);
}

void hak__report_hex(struct report_writer *writer, const char *key, uint64_t value, bool known)
{
    char digits[24];
    hak__report_string(writer, key,
                       known ? hak__text_make(digits, sizeof digits, "%#lx", value) : "", "");
}

void hak__report_row(struct report_writer *writer, const char *key, const uint64_t *numbers,
                     uint32_t count)
{
    char line[REPORT_ROW_MAX * sizeof "18446744073709551615 "];
    struct text text = {line, sizeof line - 1, 0};
    for (uint32_t i = 0; i < count; i++) {
        hak__text_format(&text, i == 0 ? "%lu" : " %lu", numbers[i]);
    }
    line[text.length] = '\0';
    hak__report_string(writer, key, line, "");
}

void hak__report_put(struct report_writer *writer, const char *format, ...)
{
    char piece[512];
    struct text text = {piece, sizeof piece - 1, 0};
    va_list values;
    va_start(values, format);
    hak__text_put_list(&text, format, values);
    va_end(values);
    piece[text.length] = '\0';
    report_put(writer, piece);
}

uint64_t hak__report_round(double estimate)
{
    return estimate <= 0 ? 0 : (uint64_t)(estimate + 0.5);
}
