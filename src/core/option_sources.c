/* SPDX-License-Identifier: MIT */
/* option_sources.c: where the options come from when the process starts. A later source overrides
 * an earlier one:
 *
 *   file          HAKMEM_CONFIG_FILE, usually /etc/hakmem.conf: lines NAME=VALUE, for all programs
 *                 or in sections for some (docs/options.md)
 *   program       the string hak_options of the program (hakmem/control.h)
 *   environment   HAKMEM_<NAME>=value
 *
 * The sources are read three times: for the name of the file, for the profile, which sets all
 * knobs, and for all other options. So a profile of any source leaves single options of the others
 * in force.
 *
 * A program with more rights than its caller (setuid) takes options from hak_options only: its
 * caller chooses the environment, and may choose when such a program writes to a file that the
 * system's file of options names.
 *
 * This code runs before the C library is ready: no getenv, no allocation, no printf. A value that
 * is empty counts as not set. Names that start with HAKMEM_TEST_ belong to the tests, those with
 * HAKMEM_TRACE_ to the recorder (trace/output.h). State: under START, or before there are
 * threads. */
#include "core/options.h"

#include "base/text.h"
#include "core/limits.h"
#include "core/option_table.h"
#include "hakmem/control.h"
#include "os/os.h"

/* Most programs have none. */
#pragma weak hak_options

/* Bytes of a file that is read; a larger one is ignored. Twice: 16 KiB more of addresses, which are
 * touched only where there is such a file. Half: some 200 lines. */
#define OPTION_FILE_SIZE 16384u

enum option_pass { PASS_FILE, PASS_PROFILE, PASS_OTHERS };

static char option_file_text[OPTION_FILE_SIZE] HAK_SELDOM;
static size_t option_file_length;
static char option_setting[OPTION_VALUE_SIZE + 64] HAK_SELDOM; /* one NAME=VALUE, zero-terminated */

/* A part of a text that is not zero-terminated. */
struct piece {
    const char *at;
    const char *end;
};

/* Writes "hakmem: WHERE ignored: REASON" and a line break, with a question mark for each
 * unprintable character. A long `where` is cut. */
static void option_refuse(const char *where, const char *reason, const char *more)
{
    char line[TEXT_LINE_SIZE];
    struct text text = {line, sizeof line - 120, 0};
    hak__text_put(&text, "hakmem: ");
    for (; *where != '\0' && text.length < text.size; where++) {
        hak__text_put_part(&text, *where >= ' ' && *where <= '~' ? where : "?", 1);
    }
    text.size = sizeof line; /* the reason always fits */
    hak__text_format(&text, " ignored: %s%s\n", reason, more);
    hak__os_write_error(line, text.length);
}

static enum option_pass option_pass_of(const struct option *option)
{
    if (option->kind == KIND_INPUT) {
        return PASS_FILE;
    }
    return option->kind == KIND_PROFILE ? PASS_PROFILE : PASS_OTHERS;
}

/* --- the environment --- */

/* The value in "NAME=value" when NAME is `name` in capitals, else NULL. */
static const char *option_value_of(const char *string, const char *name)
{
    while (*name != '\0') {
        char capital = *name >= 'a' && *name <= 'z' ? (char)(*name - 'a' + 'A') : *name;
        if (*string != capital) {
            return NULL;
        }
        string++;
        name++;
    }
    return *string == '=' ? string + 1 : NULL;
}

static void option_read_variable(const char *string, enum option_pass pass)
{
    const char *name = hak__text_after(string, "HAKMEM_");
    if (name == NULL || hak__text_after(string, "HAKMEM_TEST_") != NULL ||
        hak__text_after(string, "HAKMEM_TRACE_") != NULL) {
        return;
    }
    for (uint32_t i = 0; i < hak__option_count; i++) {
        const struct option *option = &hak__option_table[i];
        const char *value = option_value_of(name, option->name);
        if (value != NULL) {
            bool due = option_pass_of(option) == pass && *value != '\0';
            if (due && !hak__option_store(option, option->place, value)) {
                option_refuse(string, "must be ", hak__option_allowed(option));
            }
            return;
        }
    }
    if (pass == PASS_OTHERS) {
        option_refuse(string, "unknown option", "");
    }
}

static void options_read_environment(char *const *environment, enum option_pass pass)
{
    for (char *const *string = environment; *string != NULL; string++) {
        option_read_variable(*string, pass);
    }
}

/* --- settings of the file and of the program --- */

static bool option_is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static struct piece option_trim(struct piece span)
{
    while (span.at != span.end && option_is_space(*span.at)) {
        span.at++;
    }
    while (span.at != span.end && option_is_space(span.end[-1])) {
        span.end--;
    }
    return span;
}

/* Takes off what `rest` has before the first of the characters `ends`, and that one. */
static struct piece option_word(struct piece *rest, const char *ends)
{
    struct piece word = {rest->at, rest->at};
    for (; word.end != rest->end; word.end++) {
        for (const char *end = ends; *end != '\0'; end++) {
            if (*word.end == *end) {
                rest->at = word.end + 1;
                return word;
            }
        }
    }
    rest->at = rest->end;
    return word;
}

/* Reads one NAME=VALUE in the pass that it is for. NULL, or why it is ignored: a sentence that goes
 * on with `*more`. */
static const char *option_read_setting(struct piece setting, enum option_pass pass,
                                       const char **more)
{
    struct piece name = option_word(&setting, "="), value = option_trim(setting);
    bool assigns = name.end != setting.end;
    name = option_trim(name);
    *more = "";
    const struct option *option = hak__option_find(name.at, (size_t)(name.end - name.at));
    if (!assigns || option == NULL || option->kind == KIND_INPUT) {
        const char *reason = !assigns         ? "it is not of the form NAME=VALUE"
                             : option == NULL ? "unknown option"
                                              : "only the environment sets this option";
        return pass == PASS_OTHERS ? reason : NULL;
    }
    struct text text = {option_setting, sizeof option_setting - 1, 0};
    hak__text_put_part(&text, value.at, (size_t)(value.end - value.at));
    option_setting[text.length] = '\0';
    if (option_pass_of(option) != pass || text.length == 0 ||
        hak__option_store(option, option->place, option_setting)) {
        return NULL;
    }
    *more = hak__option_allowed(option);
    return "must be ";
}

/* --- the program's own options --- */

/* Settings with commas or white space between them. */
static void options_read_program(enum option_pass pass)
{
    if (hak_options == NULL) {
        return;
    }
    struct piece rest = {hak_options, hak_options + hak__text_length(hak_options, SIZE_MAX)};
    while (rest.at != rest.end) {
        struct piece setting = option_word(&rest, ", \t\r\n");
        const char *more, *reason = NULL;
        if (setting.at != setting.end) {
            reason = option_read_setting(setting, pass, &more);
        }
        if (reason != NULL) {
            char where[TEXT_LINE_SIZE];
            hak__text_make(where, sizeof where, "hak_options: %.*s",
                           (int)(setting.end - setting.at), setting.at);
            option_refuse(where, reason, more);
        }
    }
}

/* --- the file --- */

/* The name by which the program was started, without directories. */
static const char *option_program(void)
{
    const char *path = hak__os_program(), *base = path != NULL ? path : "";
    for (const char *at = base; *at != '\0'; at++) {
        base = *at == '/' ? at + 1 : base;
    }
    return base;
}

/* True if the word is the program's name, or its beginning with a star behind it. */
static bool option_matches(struct piece word, const char *program)
{
    for (; word.at != word.end; word.at++, program++) {
        if (*word.at == '*' && word.at + 1 == word.end) {
            return true;
        }
        if (*word.at != *program) {
            return false;
        }
    }
    return *program == '\0';
}

/* True if one of the words of a section's head stands for the program. */
static bool option_section_is_ours(struct piece head, const char *program)
{
    bool ours = false;
    while (head.at != head.end) {
        struct piece word = option_word(&head, " \t\r");
        ours = ours || (word.at != word.end && option_matches(word, program));
    }
    return ours;
}

/* "FILE:LINE", with the end of a long path. */
static void option_file_where(uint32_t line, char where[TEXT_LINE_SIZE])
{
    const size_t most = TEXT_LINE_SIZE / 2;
    const char *path = hak__settings.config_file;
    size_t length = hak__text_length(path, SIZE_MAX), cut = length > most ? length - most : 0;
    char number[16] = "";
    if (line != 0) {
        hak__text_make(number, sizeof number, ":%u", line);
    }
    hak__text_make(where, TEXT_LINE_SIZE, "%s%s%s", cut != 0 ? "..." : "", path + cut, number);
}

/* While the file is read. */
struct option_reader {
    const char *program;
    enum option_pass pass;
    uint32_t line;  /* its number, from 1 */
    uint32_t wrong; /* lines so far */
    bool ours;      /* the section concerns this program */
};

/* NULL, or why the line is ignored, as option_read_setting says it. */
static const char *option_read_line(struct option_reader *reader, struct piece line,
                                    const char **more)
{
    line = option_trim(line);
    *more = "";
    if (line.at == line.end || *line.at == '#' || *line.at == ';') {
        return NULL;
    }
    if (*line.at == '[') {
        bool whole = line.end[-1] == ']';
        reader->ours = whole && option_section_is_ours((struct piece){line.at + 1, line.end - 1},
                                                       reader->program);
        return whole || reader->pass != PASS_OTHERS ? NULL : "a section begins with [PROGRAM]";
    }
    return reader->ours ? option_read_setting(line, reader->pass, more) : NULL;
}

static void options_read_file(enum option_pass pass)
{
    const char *end = option_file_text + option_file_length;
    struct option_reader reader = {option_program(), pass, 0, 0, true};
    for (struct piece rest = {option_file_text, end}; rest.at != rest.end;) {
        struct piece line = option_word(&rest, "\n");
        reader.line++;
        const char *more, *reason = option_read_line(&reader, line, &more);
        /* Lines of a file that are reported at most. A file that is no file of options has many. */
        if (reason != NULL && reader.wrong++ < 10) {
            char where[TEXT_LINE_SIZE];
            option_file_where(reader.line, where);
            option_refuse(where, reason, more);
        }
    }
}

/* The file's text, if it is one. `named`: the environment names it, so it should be there. */
static void options_load_file(bool named)
{
    const char *path = hak__settings.config_file, *reason = NULL;
    char where[TEXT_LINE_SIZE];
    if (*path == '\0') {
        return;
    }
    long size = hak__os_read_file(path, option_file_text, sizeof option_file_text);
    if (size < 0) {
        reason = named ? hak__os_read_error((int)size) : NULL;
    } else if ((size_t)size == sizeof option_file_text) {
        reason = "it is longer than 16383 bytes";
    }
    for (long i = 0; i < size && reason == NULL; i++) {
        unsigned char c = (unsigned char)option_file_text[i];
        reason = c < ' ' && c != '\n' && c != '\t' && c != '\r' ? "it is not a text" : NULL;
    }
    if (reason != NULL) {
        option_file_where(0, where);
        option_refuse(where, reason, "");
    } else if (size > 0) {
        option_file_length = (size_t)size;
    }
}

HAK_STATIC_ASSERT(OPTION_FILE_SIZE == 16384, "options_load_file says how long a file may be");

void hak__options_read(char *const *environment)
{
    static bool options_done;
    if (environment == NULL || options_done) {
        return;
    }
    options_done = true;
    bool secure = hak__os_is_secure();
    if (!secure) {
        const char *usual = hak__settings.config_file;
        options_read_environment(environment, PASS_FILE);
        options_load_file(hak__settings.config_file != usual);
    }
    for (enum option_pass pass = PASS_PROFILE; pass <= PASS_OTHERS; pass++) {
        if (!secure) {
            options_read_file(pass);
        }
        options_read_program(pass);
        if (!secure) {
            options_read_environment(environment, pass);
        }
    }
    if (hak__settings.ignore_filter) {
        hak__os_ignore_filters();
    }
}
