/* options.h: the run options: one table, read once from the environment, HAKMEM_<NAME>=value.
 *
 * Programs that run with more rights than their caller (setuid) ignore them. A bad value or an
 * unknown name is reported in one line on standard error and ignored. HAKMEM_PROFILE is applied
 * first, single options after it.
 */
#ifndef HAK_CORE_OPTIONS_H
#define HAK_CORE_OPTIONS_H

#include "base/compiler.h"

enum stats_format { STATS_NONE = 0, STATS_TEXT, STATS_JSON };

/* What is no knob of the data plane. */
struct settings {
    const char *profile;       /* name of the profile in force */
    const char *stats_file;    /* NULL: standard error. A copy of the variable's value */
    uint64_t stats_process;    /* 0: any process */
    uint64_t announce_process; /* process to say hello in; 0: none */
    uint32_t stats;            /* enum stats_format */
    bool keep_deepbind;        /* dlopen keeps RTLD_DEEPBIND */
    bool scavenger;            /* a thread gives memory back while the program idles */
};
HAK_HIDDEN extern struct settings hak__settings;

/* Reads `environment` ("NAME=value" strings, NULL at the end), once: later calls do nothing. NULL
 * is ignored and may be followed by a real one. Not thread-safe: heap/start.c and control/life.c
 * call it before there are threads or under START. */
HAK_HIDDEN void hak__options_read(char *const *environment);

/* Gives the options that follow the machine their values. At start, and again when options are read
 * after it. */
HAK_HIDDEN void hak__options_settle(void);

/* For reports: option `index` as name, help and present value in `value` (at least 32 bytes,
 * zero-terminated). False past the last. */
struct option_view {
    const char *name; /* HAKMEM_ is left out; lower case */
    const char *help;
    char value[32];
};
HAK_HIDDEN bool hak__options_view(uint32_t index, struct option_view *view);

#endif
