/* SPDX-License-Identifier: MIT */
/* paths.c: takes one path of the allocator again and again, and is measured doing it.
 *
 *   paths --list              JSON: each path and the environment it needs
 *   paths run PATH ROUNDS     for valgrind; prints where it counts
 *   paths check PATH ROUNDS   prints what the library's counters say of the batches, and faults
 *   paths time PATH ROUNDS    prints the duration of an operation
 *   paths machine             prints what the things cost that the model adds up
 *
 * `run` is made for two tools: callgrind collects in paths_measured only, and lackey's trace has a
 * store to a known address before each operation and after the last of a batch. See paths.h.
 *
 * Exit status: 0, 1 it cannot be done here, 2 usage, 3 another allocator serves malloc.
 */
#include "paths.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "hakmem/hakmem.h"

/* Nothing is purged or trimmed between rounds, and no huge page makes faults rarer here than there.
 */
static const char *const options_of_all[] = {"HAKMEM_PURGE_DELAY_MS=never",
                                             "HAKMEM_HUGE_THRESHOLD=never"};
#define OPTIONS_OF_ALL (sizeof options_of_all / sizeof options_of_all[0])

static const struct path *const path_tables[] = {paths_small, paths_large, paths_remote};
#define PATH_TABLES (sizeof path_tables / sizeof path_tables[0])

void paths_fail(int status, const char *format, ...)
{
    va_list arguments;
    dprintf(STDERR_FILENO, "paths: ");
    va_start(arguments, format);
    vdprintf(STDERR_FILENO, format, arguments);
    va_end(arguments);
    dprintf(STDERR_FILENO, "\n");
    _exit(status);
}

static void list_option(const char *option)
{
    printf("\"%.*s\":\"%s\"", (int)(strchr(option, '=') - option), option, strchr(option, '=') + 1);
}

static void list_paths(void)
{
    const char *separator = "[";
    for (size_t table = 0; table < PATH_TABLES; table++) {
        for (const struct path *path = path_tables[table]; path->name != NULL; path++) {
            printf("%s{\"path\":\"%s\",\"environment\":{", separator, path->name);
            for (size_t i = 0; i < OPTIONS_OF_ALL; i++) {
                printf("%s", i == 0 ? "" : ",");
                list_option(options_of_all[i]);
            }
            if (path->option != NULL) {
                printf(",");
                list_option(path->option);
            }
            printf("}}");
            separator = ",\n ";
        }
    }
    printf("]\n");
}

static const struct path *path_find(const char *name)
{
    for (size_t table = 0; table < PATH_TABLES; table++) {
        for (const struct path *path = path_tables[table]; path->name != NULL; path++) {
            if (strcmp(path->name, name) == 0) {
                return path;
            }
        }
    }
    paths_fail(PATHS_STATUS_USAGE, "there is no path '%s'; paths --list names them.", name);
}

static void require_option(const char *option)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%.*s", (int)(strchr(option, '=') - option), option);
    const char *value = getenv(name);
    if (value == NULL || strcmp(value, strchr(option, '=') + 1) != 0) {
        paths_fail(PATHS_STATUS_USAGE, "this path needs %s in the environment.", option);
    }
}

static unsigned rounds_parse(const char *text)
{
    char *end;
    unsigned long rounds = strtoul(text, &end, 10);
    if (end == text || *end != '\0' || rounds < 1 || rounds > PATHS_ROUNDS_MAX) {
        paths_fail(PATHS_STATUS_USAGE, "ROUNDS must be a whole number from 1 to %d, not '%s'.",
                   PATHS_ROUNDS_MAX, text);
    }
    return (unsigned)rounds;
}

/* Refuses what would measure something else than the path. */
static void check_setting(const struct path *path)
{
    for (size_t i = 0; i < OPTIONS_OF_ALL; i++) {
        require_option(options_of_all[i]);
    }
    if (path->option != NULL) {
        require_option(path->option);
    }
    void *block = paths_allocate(1);
    bool is_ours = hak_owns(block);
    free(block);
    if (!is_ours) {
        paths_fail(PATHS_STATUS_WRONG_ALLOCATOR, "malloc is not served by hakmem.");
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(const struct path *path, unsigned rounds);
    } modes[] = {{"run", paths_mode_run}, {"check", paths_mode_check}, {"time", paths_mode_time}};
    static char output[4096];
    (void)setvbuf(stdout, output, _IOFBF, sizeof output); /* else stdio would use malloc */
    (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        list_paths();
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "machine") == 0) {
        paths_mode_machine();
        return 0;
    }
    for (size_t i = 0; argc == 4 && i < sizeof modes / sizeof modes[0]; i++) {
        if (strcmp(argv[1], modes[i].name) == 0) {
            const struct path *path = path_find(argv[2]);
            unsigned rounds = rounds_parse(argv[3]);
            check_setting(path);
            modes[i].run(path, rounds);
            return fflush(stdout) == 0 ? 0 : PATHS_STATUS_FAILED;
        }
    }
    paths_fail(PATHS_STATUS_USAGE,
               "use: paths --list, paths machine, or paths run|check|time PATH ROUNDS");
}
