/* SPDX-License-Identifier: MIT */
/* run.c: `./hakmem run`. See launch.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launch.h"

struct run_options {
    const char *profile_file, *stats, *fail_above; /* NULL: none */
    bool all_processes, quiet, heap_map;
};

/* Profiles of hakmem itself have names without dots and slashes. */
static void take_profile(struct run_options *options, const char *value)
{
    if (value[0] == 0) {
        words_misuse("--profile needs a name");
    }
    if (strpbrk(value, "./") != NULL) {
        options->profile_file = value;
    } else {
        settings_add("profile", value);
    }
}

/* An option with a value; false: the word is none. */
static bool take_value(struct run_options *options, char ***words)
{
    const char *value;
    if ((value = words_value(words, "--profile")) != NULL) {
        take_profile(options, value);
    } else if ((value = words_value(words, "--set")) != NULL) {
        settings_set(value);
    } else if ((value = words_value(words, "--stats-file")) != NULL) {
        options->all_processes |= reports_set_file(value);
        options->stats = options->stats != NULL ? options->stats : "summary";
    } else if ((value = words_value(words, "--fail-above")) != NULL) {
        options->fail_above = value;
    } else if ((value = words_value(words, "--heap-map")) != NULL) {
        reports_set_heap_map(value);
        options->heap_map = true;
    } else {
        return false;
    }
    return true;
}

static void take_flag(struct run_options *options, const char *word)
{
    if (strcmp(word, "--stats") == 0) {
        options->stats = "summary";
    } else if (strncmp(word, "--stats=", 8) == 0) {
        options->stats = word + 8;
    } else if (strcmp(word, "--all-processes") == 0) {
        options->all_processes = true;
    } else if (strcmp(word, "--quiet") == 0) {
        options->quiet = true;
    } else if (strcmp(word, "--secure") != 0 && !words_skip(word)) {
        words_misuse("unknown option '%s'", word);
    }
}

/* Returns the program's words. */
static char **read_options(struct run_options *options, char **words)
{
    for (; *words != NULL && (*words)[0] == '-'; words++) {
        if (strcmp(*words, "--") == 0) {
            return words + 1;
        }
        if (!take_value(options, &words)) {
            take_flag(options, *words);
        }
    }
    return words;
}

/* Our library, and what LD_PRELOAD had before but other forms of hakmem: the program may be started
 * by one that runs on hakmem, and of two forms only the first would serve. */
static char *preload_list(const char *before)
{
    char *list = words_join("%s", launch.library), *rest = words_join("%s", before);
    for (char *name, *at = rest; (name = strtok_r(at, ": ", &at)) != NULL;) {
        const char *slash = strrchr(name, '/'), *base = slash != NULL ? slash + 1 : name;
        if (strncmp(base, "libhakmem.so", 12) != 0 &&
            strncmp(base, "libhakmem-secure.so", 19) != 0) {
            list = words_join("%s:%s", list, name);
        }
    }
    return list;
}

int run_program(char **words)
{
    struct run_options options = {0};
    struct program program;
    const char *before = getenv("LD_PRELOAD");
    char *process;
    words = read_options(&options, words);
    if (*words == NULL || **words == 0) {
        words_misuse("which program?");
    }
    if (options.fail_above != NULL) {
        if (options.stats != NULL) {
            words_misuse("--fail-above reads the report itself, so it does not go with --stats");
        }
        options.stats = "json";
        limit_watch(options.fail_above, *words);
    }
    if (options.profile_file != NULL) {
        settings_read(options.profile_file);
    }
    if (options.stats != NULL) {
        settings_add("stats", options.stats);
    }
    program = program_check(*words);
    settings_check();
    names_watch();
    process = words_join("%d", (int)getpid());
    if (options.stats != NULL || options.heap_map) {
        setenv("HAKMEM_STATS_PID", options.all_processes ? "0" : process, 1);
    }
    unsetenv("HAKMEM_ANNOUNCE");
    if (!options.quiet) {
        setenv("HAKMEM_ANNOUNCE", process, 1);
    }
    setenv("LD_PRELOAD", preload_list(before != NULL ? before : ""), 1);
    program_become(&program, words);
}
