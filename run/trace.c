/* SPDX-License-Identifier: MIT */
/* trace.c: `./hakmem record` and `./hakmem replay`: what the user typed becomes the command line of
 * hakmem-trace (trace/main.c). See launch.h. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launch.h"

enum { ARMS_MAX = 64 };

struct allocator {
    const char *library; /* empty: the C library's */
    char *settings;      /* what it wants in the environment, NAME=VALUE words */
};

static _Noreturn void become_tracer(char **words)
{
    execv(words[0], words);
    words_die(STATUS_FAILED, "cannot start %s: %s", words[0], strerror(errno));
}

static bool is_file(const char *name)
{
    struct stat status;
    return stat(name, &status) == 0 && S_ISREG(status.st_mode);
}

/* An allocator of `./hakmem peers`: whoever installed it has Python. */
static void find_peer(struct allocator *allocator, const char *name)
{
    char *words[] = {words_join("/usr/bin/env"),
                     words_join("PATH=%s", launch.path),
                     words_join("python3"),
                     words_join("-IB"),
                     words_join("%s", launch.package),
                     words_join("--peer"),
                     words_join("%s", name),
                     NULL};
    char *said = words_capture(words, NULL, false), *end;
    if (said == NULL || (end = strchr(said, '\n')) == NULL) {
        words_refuse("there is no allocator '%s' (./hakmem peers list shows which are installed)",
                     name);
    }
    *end = 0;
    allocator->library = said;
    allocator->settings = end + 1;
    for (char *at = allocator->settings; *at != 0; at++) {
        *at = *at == '\n' ? ' ' : *at;
    }
    if (!is_file(said)) {
        words_refuse("the library of '%s' is gone (./hakmem peers install %s)", name, name);
    }
}

static struct allocator find_allocator(const char *name)
{
    static const char *const of_libc[] = {"libc", "glibc", "system"};
    struct allocator allocator = {"", words_join("%s", "")};
    for (size_t i = 0; i < sizeof of_libc / sizeof *of_libc; i++) {
        if (strcmp(name, of_libc[i]) == 0) {
            return allocator;
        }
    }
    if (strcmp(name, "hakmem") == 0) {
        allocator.library = launch.library;
        return allocator;
    }
    if (strchr(name, '/') != NULL) {
        if (!is_file(name) || (allocator.library = realpath(name, NULL)) == NULL) {
            words_refuse("there is no library '%s'", name);
        }
    } else {
        find_peer(&allocator, name);
    }
    if (strpbrk(allocator.library, " \t\n\v\f\r:$") != NULL) {
        words_refuse("LD_PRELOAD cannot hold the name %s", allocator.library);
    }
    return allocator;
}

static void export_settings(char *settings)
{
    char *rest;
    for (char *word = strtok_r(settings, " ", &rest); word != NULL;
         word = strtok_r(NULL, " ", &rest)) {
        putenv(word);
    }
}

static _Noreturn void refuse_option(const char *word)
{
    words_misuse("unknown option '%s'", word);
}

/* Returns the program's words. */
static char **read_record_options(char **words, const char **file, const char **name)
{
    for (; *words != NULL && (*words)[0] == '-'; words++) {
        const char *word = *words, *value;
        if (strcmp(word, "--") == 0) {
            return words + 1;
        }
        if ((value = words_value(&words, "--output")) != NULL ||
            (value = words_value(&words, "-o")) != NULL) {
            *file = value;
        } else if ((value = words_value(&words, "--alloc")) != NULL) {
            *name = value;
        } else if (!words_skip(word)) {
            refuse_option(word);
        }
        if (value != NULL && value[0] == 0) {
            refuse_option(word);
        }
    }
    return words;
}

int trace_record(char **words)
{
    const char *file = "hakmem.trace", *name = "hakmem";
    struct allocator allocator;
    size_t count = 0;
    char **all;
    words = read_record_options(words, &file, &name);
    if (*words == NULL || **words == 0) {
        words_misuse("which program?");
    }
    program_check(*words);
    allocator = find_allocator(name);
    unsetenv("HAKMEM_ANNOUNCE");
    export_settings(allocator.settings);
    while (words[count] != NULL) {
        count++;
    }
    all = calloc(count + 5, sizeof *all);
    if (all == NULL) {
        words_die(STATUS_FAILED, "out of memory");
    }
    all[0] = words_join("%s", launch.tracer);
    all[1] = words_join("record");
    all[2] = words_absolute(file);
    all[3] = words_join("%s%s%s", launch.recorder, allocator.library[0] != 0 ? ":" : "",
                        allocator.library);
    memcpy(all + 4, words, count * sizeof *all);
    become_tracer(all);
}

struct replay_options {
    const char *file, *names, *runs;
    bool summary;
};

static void take_runs(struct replay_options *options, const char *value)
{
    size_t length = strspn(value, "0123456789");
    if (value[length] != 0 || length < 1 || length > 2 || value[0] == '0') {
        words_misuse("--runs needs a number from 1 to 99, not '%s'", value);
    }
    options->runs = value;
}

static void read_replay_options(struct replay_options *options, char **words)
{
    for (; *words != NULL; words++) {
        const char *word = *words, *value;
        if ((value = words_value(&words, "--alloc")) != NULL) {
            if (value[0] == 0) {
                refuse_option(word);
            }
            options->names = value;
        } else if ((value = words_value(&words, "--runs")) != NULL) {
            take_runs(options, value);
        } else if (strcmp(word, "--summary") == 0) {
            options->summary = true;
        } else if (word[0] == '-' && word[1] != 0 && !words_skip(word)) {
            refuse_option(word);
        } else if (!words_skip(word)) {
            if (options->file != NULL) {
                words_misuse("one trace at a time, not '%s' and '%s'", options->file, word);
            }
            options->file = word;
        }
    }
    if (options->file == NULL || options->file[0] == 0) {
        words_misuse("which trace?");
    }
    if (access(options->file, F_OK) != 0) {
        words_die(STATUS_CANNOT_RUN, "replay: there is no file '%s'", options->file);
    }
}

int trace_replay(char **words)
{
    struct replay_options options = {NULL, "hakmem,libc", "3", false};
    char *all[5 + 3 * ARMS_MAX] = {words_join("%s", launch.tracer)};
    size_t count = 1;
    read_replay_options(&options, words);
    unsetenv("LD_PRELOAD");
    all[count++] = words_join(options.summary ? "summary" : "replay");
    all[count++] = words_join("%s", options.file);
    if (options.summary) {
        become_tracer(all);
    }
    all[count++] = words_join("%s", options.runs);
    while (*options.names != 0) {
        int length = (int)strcspn(options.names, ",");
        char *name = words_join("%.*s", length, options.names);
        struct allocator allocator = find_allocator(name);
        if (count + 3 >= sizeof all / sizeof *all) {
            words_refuse("at most %d allocators at a time", ARMS_MAX);
        }
        all[count++] = name;
        all[count++] = words_join("%s", allocator.library);
        all[count++] = allocator.settings;
        options.names += length + (options.names[length] != 0);
    }
    become_tracer(all);
}
