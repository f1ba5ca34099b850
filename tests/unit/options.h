/* SPDX-License-Identifier: MIT */
/* options.h: what the tests of options share: a program of its own shows its options, one
 * NAME=value a line, with the environment of a case. */
#ifndef TESTS_UNIT_OPTIONS_H
#define TESTS_UNIT_OPTIONS_H

#include "../child.h"
#include "unit.h"

#include "core/options.h"

enum { VARIABLES_MAX = 16 };

extern char **environ;

static inline void show(void *argument)
{
    struct option_view view;
    REQUIRE(hak__start());
    for (uint32_t i = 0; hak__options_view(i, &view); i++) {
        fprintf(stderr, "%s=%s\n", view.name, view.value);
    }
}

/* Exactly these strings, in this order, also when a name comes twice. */
static inline void set_environment(void *argument)
{
    environ = argument;
}

static inline struct child_end run_with(const char *child, const char *const *variables)
{
    static char copies[VARIABLES_MAX][4096];
    char *pointers[VARIABLES_MAX + 1] = {NULL};
    struct child_end end;
    for (size_t i = 0; variables[i] != NULL; i++) {
        REQUIRE(i < VARIABLES_MAX && strlen(variables[i]) < sizeof copies[i]);
        strcpy(copies[i], variables[i]);
        pointers[i] = copies[i];
    }
    child_exec(child, set_environment, pointers, &end);
    REQUIRE(WIFEXITED(end.status) && WEXITSTATUS(end.status) == 0);
    return end;
}

#define SHOW_WITH(...) run_with("show", (const char *const[]){__VA_ARGS__, NULL})

static inline bool has_line(const struct child_end *end, const char *line)
{
    size_t length = strlen(line);
    for (const char *at = strstr(end->text, line); at != NULL; at = strstr(at + 1, line)) {
        if ((at == end->text || at[-1] == '\n') && at[length] == '\n') {
            return true;
        }
    }
    return false;
}

static inline void expect_line(const struct child_end *end, const char *line)
{
    if (!has_line(end, line)) {
        fail_msg("no line <%s> in <%s>", line, end->text);
    }
}

static inline size_t complaints_count(const struct child_end *end)
{
    size_t count = 0;
    for (const char *at = strstr(end->text, "hakmem: "); at != NULL;
         at = strstr(at + 1, "hakmem: ")) {
        count++;
    }
    return count;
}

#endif
