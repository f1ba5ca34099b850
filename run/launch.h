/* SPDX-License-Identifier: MIT */
/* launch.h: hakmem-run, the program behind `./hakmem run`, `record` and `replay`. The launcher
 * builds what it needs and names it in options of its own (struct launch). hakmem-run checks what
 * the user typed, and becomes the program: process id, status and signals are the program's. Only
 * with --fail-above or a guard it stays. */
#ifndef RUN_LAUNCH_H
#define RUN_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>

#include "watch.h"

enum { STATUS_USAGE = 2, STATUS_FAILED = 125, STATUS_CANNOT_RUN = 126, STATUS_NOT_FOUND = 127 };

/* What the launcher says. */
struct launch {
    const char *library;  /* for LD_PRELOAD */
    const char *recorder; /* for LD_PRELOAD, before the library */
    const char *tracer;   /* hakmem-trace */
    const char *path;     /* PATH with folders only that are safe to take helpers from */
    const char *package;  /* what the package in Python is asked by */
    const char *command;  /* run, record or replay */
    bool installed;       /* messages then say hakmem instead of ./hakmem */
};
extern struct launch launch;

int run_program(char **words);
int trace_record(char **words);
int trace_replay(char **words);

/* --- words.c: the command line and messages --- */

/* Prints one line on standard error, and ends the process. */
_Noreturn void words_die(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for a wrong command line; the line begins with the command's name. */
_Noreturn void words_refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same, and the line ends with what prints the command's options. */
_Noreturn void words_misuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* If **words is OPTION=VALUE, or OPTION with a value behind it, returns the value and moves *words
 * to the option's last word. Otherwise NULL. */
const char *words_value(char ***words, const char *option);

/* --install and --no-install, which the launcher has obeyed already. */
bool words_skip(const char *word);

/* A new string. Ends the process if there is no memory. No string is freed: the process soon ends,
 * or becomes the program. */
char *words_join(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* At most 60 bytes of the text; what is not printable is a question mark. A new string. */
char *words_shown(const char *text);

/* The text in small or large letters. A new string. */
char *words_small(const char *text);
char *words_large(const char *text);

/* The name in the current folder, if it is relative. A new string. */
char *words_absolute(const char *name);

/* A new empty file for the program's report. Its name is a new string. */
char *words_file(void);

/* What a program prints, on standard error, too if `errors`; at most 64 KiB. A new string. NULL:
 * it has failed. `environment` NULL: this process's. */
char *words_capture(char *const words[], char *const environment[], bool errors);

/* --- program.c --- */

struct program {
    char *path;
    bool is_plain_script; /* no first line names its interpreter: /bin/sh */
};

/* Finds the program and looks whether a preloaded library would serve it. Ends the process with a
 * sentence if not. */
struct program program_check(const char *word);

/* Becomes the program. */
_Noreturn void program_become(const struct program *program, char **words);

/* --- settings.c: options of the library --- */

/* NAME=VALUE of --set. */
void settings_set(const char *setting);

/* The settings of a file, unless --set has the same. */
void settings_read(const char *file);

/* The program's environment has this as well, and settings_check checks it. */
void settings_add(const char *name, const char *value);

/* Ends the process if the library refuses a value. */
void settings_check(void);

/* --- reports.c --- */

/* True: each process of the tree reports, because the name has %p. */
bool reports_set_file(const char *name);
void reports_set_heap_map(const char *name);

/* --- names.c --- */

/* With HAKMEM_GUARD, returns in a new process, which becomes the program. This process waits for
 * it, prints the names of functions in a report of the guard, and ends as the program has. */
void names_watch(void);

/* --- limit.c --- */

/* Returns in a new process, which becomes the program. This process waits for it and ends with its
 * status, or with 1 if it succeeds and has more than `bytes` in use at its end. */
void limit_watch(const char *bytes, const char *program);

#endif
