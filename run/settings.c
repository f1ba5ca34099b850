/* SPDX-License-Identifier: MIT */
/* settings.c: see launch.h. Names come from the library's table, core/option_list.h; the library
 * itself says whether a value is right. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/option_list.h"
#include "launch.h"

#define X(kind, name, when, place, help, advice) #name,
static const char *const option_names[] = {OPTIONS(X)};
#undef X
#define X(kind, name, when, place, help, advice) #kind,
static const char *const option_kinds[] = {OPTIONS(X)};
#undef X

struct setting {
    char *name, *value;
    const char *where; /* of the file that has it: "the profile x, line 2: "; empty: --set */
};
static struct setting *settings;
static size_t settings_count;

static void add(const char *name, const char *value, const char *where)
{
    settings = realloc(settings, (settings_count + 1) * sizeof *settings);
    if (settings == NULL) {
        words_die(STATUS_FAILED, "out of memory");
    }
    settings[settings_count++] =
        (struct setting){words_join("%s", name), words_join("%s", value), where};
    setenv(words_large(words_join("HAKMEM_%s", name)), value, 1);
}

void settings_add(const char *name, const char *value)
{
    add(name, value, "");
}

/* The length of the name that the text begins with; 0: with none, or no = follows. */
static size_t name_length(const char *text)
{
    size_t length = 0;
    while (isalnum((unsigned char)text[length]) || text[length] == '_') {
        length++;
    }
    return isalpha((unsigned char)text[0]) && text[length] == '=' ? length : 0;
}

/* The option's name in small letters; the variable's name means the same. A new string. */
static char *option_name(const char *text, size_t length)
{
    char *small = words_small(words_join("%.*s", (int)length, text));
    return strncmp(small, "hakmem_", 7) == 0 ? small + 7 : small;
}

/* Options that the command has flags for. */
static void check_name(const char *name, const char *where)
{
    static const char *const flags[][2] = {
        {"announce", "--quiet"}, {"heap_map_file", "--heap-map"}, {"stats_pid", "--all-processes"}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (strcmp(name, flags[i][0]) == 0) {
            words_refuse("%s%s cannot be set here: use %s", where[0] != 0 ? where : "--set ", name,
                         flags[i][1]);
        }
    }
    for (size_t i = 0; i < sizeof option_names / sizeof *option_names; i++) {
        if (strcmp(name, option_names[i]) == 0) {
            return;
        }
    }
    words_refuse("%sthere is no option '%s' (./hakmem run --help lists them)", where, name);
}

void settings_set(const char *setting)
{
    size_t length = name_length(setting);
    char *name;
    if (length == 0 || setting[length + 1] == 0) {
        words_misuse("--set needs NAME=VALUE, not '%s'", setting);
    }
    name = option_name(setting, length);
    check_name(name, "");
    add(name, setting + length + 1, "");
}

/* --- profile files, which `./hakmem compare` reads as well --- */

static bool is_given(const char *name, size_t given)
{
    for (size_t i = 0; i < given; i++) {
        if (strcmp(settings[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* One line; false: it holds no setting. `given` settings are those of --set. */
static bool read_line(const char *file, unsigned number, char *line, bool is_text, size_t given)
{
    char *shown, *text = line, *end, *name;
    const char *where;
    size_t length;
    line[strcspn(line, "\n")] = 0;
    shown = words_shown(line);
    for (end = line + strlen(line); end > text && isspace((unsigned char)end[-1]);) {
        *--end = 0;
    }
    text += strspn(text, " \t\r\v\f");
    if (is_text && (*text == 0 || *text == '#')) {
        return false;
    }
    length = name_length(text);
    if (!is_text || length == 0 || text[length + 1] == 0 ||
        isspace((unsigned char)text[length + 1])) {
        words_refuse("the profile %s, line %u: '%s' is not NAME=VALUE", file, number, shown);
    }
    name = option_name(text, length);
    if (!is_given(name, given)) {
        where = words_join("the profile %s, line %u: ", file, number);
        check_name(name, where);
        add(name, text + length + 1, where);
    }
    return true;
}

void settings_read(const char *file)
{
    size_t size = 0, given = settings_count;
    unsigned number = 0, count = 0;
    char *line = NULL;
    struct stat status;
    FILE *stream;
    ssize_t length;
    if (stat(file, &status) != 0) {
        words_refuse("the profile %s does not exist", file);
    }
    if (!S_ISREG(status.st_mode)) {
        words_refuse("the profile %s is not a file", file);
    }
    stream = fopen(file, "re");
    if (stream == NULL) {
        words_refuse("the profile %s cannot be read: %s", file,
                     errno == EACCES ? "permission denied" : strerror(errno));
    }
    while ((length = getline(&line, &size, stream)) >= 0) {
        number++;
        count += read_line(file, number, line, strlen(line) == (size_t)length, given);
    }
    fclose(stream);
    if (count == 0) {
        words_refuse("the profile %s holds no setting", file);
    }
}

/* --- values --- */

/* The name by which to ask about the setting's value. With the name of a file to write, the process
 * that is asked would write it; stats_file by itself does nothing. */
static const char *name_to_ask(const char *name)
{
    for (size_t i = 0; i < sizeof option_names / sizeof *option_names; i++) {
        if (strcmp(name, option_names[i]) == 0 && strcmp(option_kinds[i], "PATH") == 0) {
            return "stats_file";
        }
    }
    return name;
}

/* What the library says of the setting when it starts in a process that does nothing; NULL: it
 * takes it. A new string. */
static char *question(const struct setting *setting)
{
    char *variable = words_large(words_join("HAKMEM_%s", name_to_ask(setting->name)));
    char *words[] = {words_join("/proc/self/exe"), words_join("--nothing"), NULL};
    char *environment[] = {words_join("%s=%s", variable, setting->value),
                           words_join("LD_PRELOAD=%s", launch.library), NULL};
    char *said = words_capture(words, environment, true), *why = NULL, *found;
    if (said != NULL && strncmp(said, "hakmem: HAKMEM_", 15) == 0 &&
        (found = strstr(said, " ignored: ")) != NULL) {
        found += strlen(" ignored: ");
        why = words_join("%.*s", (int)strcspn(found, "\n"), found);
    }
    return why;
}

/* Each by itself, so that none of the others does anything. */
void settings_check(void)
{
    for (size_t i = 0; i < settings_count; i++) {
        const struct setting *setting = &settings[i];
        char *why = question(setting);
        if (why != NULL) {
            words_refuse("%s%s %s, not '%s'%s", setting->where, setting->name, why,
                         words_shown(setting->value),
                         strcmp(setting->name, "profile") == 0
                             ? "; the name of a file has a dot or a slash"
                             : "");
        }
    }
}
