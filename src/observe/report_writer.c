/* SPDX-License-Identifier: MIT */
/* report_writer.c: see report_writer.h. */
#include "observe/report_writer.h"

#include <string.h>

static void report_flush(struct report_writer *writer)
{
    if (writer->text.length != 0 && writer->visit == NULL) {
        writer->sink(writer->argument, writer->buffer, writer->text.length);
    }
    writer->text.length = 0;
}

static void report_put_char(struct report_writer *writer, char c)
{
    if (writer->visit != NULL) {
        return;
    }
    if (writer->text.length == writer->text.size) {
        report_flush(writer);
    }
    hak__text_put_part(&writer->text, &c, 1);
}

static void report_put(struct report_writer *writer, const char *string)
{
    for (; *string != '\0'; string++) {
        report_put_char(writer, *string);
    }
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
            hak__report_put(writer, "\\u%04x", c);
        }
    }
    report_put_char(writer, '"');
}

/* Text: every byte that is not printable ASCII becomes '?'. Blanks before it fill the width. */
static void report_put_plain(struct report_writer *writer, const char *string, size_t width)
{
    for (size_t length = strlen(string); length < width; length++) {
        report_put_char(writer, ' ');
    }
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

/* --- numbers by name: the report is written as JSON, and goes nowhere --- */

void hak__report_visit(struct report_writer *writer, report_visit *visit, void *argument)
{
    hak__report_begin(writer, HAK_REPORT_JSON, NULL, argument);
    writer->text.length = 0;
    writer->visit = visit;
}

static void visit_enter(struct report_writer *writer, const char *name)
{
    hak__text_format(&writer->text, "%s%s", writer->text.length != 0 ? "." : "", name);
}

static void visit_leave(struct report_writer *writer)
{
    size_t *length = &writer->text.length;
    while (*length != 0 && writer->buffer[--*length] != '.') {
    }
}

static void visit_number(struct report_writer *writer, const char *key, const char *digits,
                         uint64_t value, const char *help)
{
    char name[160];
    if (writer->names) {
        visit_enter(writer, digits);
        writer->names = false;
    }
    hak__text_make(name, sizeof name, "%.*s.%s", (int)writer->text.length, writer->buffer, key);
    writer->visit(writer->argument, name, value, help);
}

/* --- JSON --- */

static void report_json_open(struct report_writer *writer, const char *key, char bracket)
{
    if (writer->visit != NULL && key != NULL) {
        visit_enter(writer, key);
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
    if (writer->visit != NULL) {
        visit_leave(writer);
    }
}

void hak__report_begin(struct report_writer *writer, enum hak_report_format format,
                       hak_report_sink *sink, void *argument)
{
    *writer =
        (struct report_writer){.sink = sink, .argument = argument, .format = format, .first = true};
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
    } else if (!writer->in_list) {
        hak__report_put(writer, "%s\n", key);
    }
}

void hak__report_section_end(struct report_writer *writer)
{
    if (report_is_json(writer)) {
        report_json_close(writer, '}');
    }
}

void hak__report_list_begin(struct report_writer *writer, const char *key)
{
    writer->in_list = true;
    if (report_is_json(writer)) {
        report_json_open(writer, key, '[');
    } else {
        hak__report_put(writer, "%s\n", key);
    }
}

void hak__report_list_end(struct report_writer *writer)
{
    writer->in_list = false;
    if (report_is_json(writer)) {
        report_json_close(writer, ']');
    }
}

void hak__report_record_begin(struct report_writer *writer)
{
    if (report_is_json(writer)) {
        report_json_open(writer, NULL, '{');
    } else {
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

/* Text: one field. */
static void report_put_field(struct report_writer *writer, const char *key, const char *value,
                             const char *unit, const char *help)
{
    if (writer->in_list) {
        hak__report_put(writer, " %s ", key);
        report_put_plain(writer, value, 0);
        return;
    }
    /* the longest key has 24 characters; 14 digits are enough for 90 TiB */
    hak__report_put(writer, "  %-26s", key);
    report_put_plain(writer, value, 14);
    if (*unit != '\0' || *help != '\0') {
        hak__report_put(writer, " %-12s%s", unit, help);
    }
    report_put_char(writer, '\n');
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

void hak__report_number(struct report_writer *writer, const char *key, uint64_t value,
                        const char *help)
{
    char digits[24], unit[16] = "";
    bool known = value != UINT64_MAX;
    hak__text_make(digits, sizeof digits, "%lu", value);
    if (report_is_json(writer)) {
        report_json_next(writer, key);
        report_put(writer, known ? digits : "null");
        if (writer->visit != NULL) {
            visit_number(writer, key, digits, value, help);
        }
        return;
    }
    if (known && strstr(key, "bytes") != NULL) {
        hak__report_scale(unit, value);
    }
    report_put_field(writer, key, known ? digits : "unknown", unit, help);
}

void hak__report_numbers(struct report_writer *writer, const struct report_number *numbers)
{
    for (; numbers->key != NULL; numbers++) {
        hak__report_number(writer, numbers->key, numbers->value, "");
    }
}

void hak__report_figures(struct report_writer *writer, const struct report_figure *figures)
{
    for (; figures->key != NULL; figures++) {
        hak__report_number(writer, figures->key, figures->value, figures->help);
    }
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
                     uint32_t count, bool hex)
{
    const char *quote = report_is_json(writer) ? "\"" : "";
    if (report_is_json(writer)) {
        report_json_next(writer, key);
    } else {
        hak__report_put(writer, " %s ", key);
    }
    report_put(writer, quote);
    for (uint32_t i = 0; i < count; i++) {
        report_put(writer, i == 0 ? "" : " ");
        hak__report_put(writer, hex ? "%#lx" : "%lu", numbers[i]);
    }
    report_put(writer, quote);
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
