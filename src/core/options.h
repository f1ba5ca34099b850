/* SPDX-License-Identifier: MIT */
/* options.h: the run options. Three sources set them when the process starts
 * (core/option_sources.c), and the program may change some of them later (hakmem/control.h).
 * hakmem reports a bad value or an unknown name in one line on standard error and ignores it.
 * Whoever changes one later calls seal_open before (core/seal.h). */
#ifndef HAK_CORE_OPTIONS_H
#define HAK_CORE_OPTIONS_H

#include "core/seal.h"

/* STATS_SUMMARY: the summary for people; STATS_FULL: and all other figures after it. */
enum stats_format { STATS_NONE = 0, STATS_SUMMARY, STATS_FULL, STATS_JSON };

/* The options that slow paths do not read; the others are knobs (core/knobs.h). */
struct settings {
    const char *profile;       /* name of the profile in force */
    const char *stats_file;    /* NULL: standard error. A copy of the variable's value, with %p */
    const char *profile_file;  /* NULL: no profile at exit. A copy of the variable's value */
    uint32_t profile_signal;   /* lets the process append a profile; 0: none */
    const char *profile_dump;  /* NULL, or when it writes one by itself: struct dump_when; a copy */
    uint64_t sample_bytes;     /* bytes from one sample to the next on average; UINT64_MAX: none */
    const char *learn;         /* NULL or "off", "on", or the name of a state file; a copy */
    const char *heap_map_file; /* NULL: none. A copy, too; "%p" stands for the process id */
    const char *config_file;   /* file of options; a copy, or a constant */
    const char *guard_file;    /* NULL: none. A copy, too, with %p */
    uint64_t stats_process;    /* id of the only process that reports; 0: every process */
    uint64_t announce_process; /* id of the process that announces hakmem at start; 0: none */
    uint32_t stats;            /* enum stats_format */
    uint32_t learn_memory_percent; /* weight of memory, beside 100 for time */
    bool ignore_filter;            /* filters of system calls do not count */
    bool keep_deepbind;            /* RTLD_DEEPBIND gives another malloc */
    bool stats_signal;             /* a signal that ends the process lets it report first */
    bool scavenger;       /* a background thread returns free memory while the program idles */
    bool profile_threads; /* profiles keep the stacks of each thread apart */
    bool observe;         /* a background thread answers tools that look at the process */
};
HAK_HIDDEN extern struct settings hak__settings;

/* Reads the options from the file, from the program's hak_options and from `environment`:
 * strings "NAME=value", NULL at the end. Only the first call with an environment has an effect; a
 * call with NULL does nothing. Not thread-safe: arena/start.c and control/life.c call it before
 * there are threads, or under START. */
HAK_HIDDEN void hak__options_read(char *const *environment);

/* Sets the options whose default depends on the machine: arenas and cache_bytes_total. Called at
 * start, and again if options are read after it. Not thread-safe. */
HAK_HIDDEN void hak__options_settle(void);

/* When the process writes a profile by itself; 0: not for this reason. */
struct dump_when {
    uint64_t peak_percent;  /* so much more is resident than at the last time */
    uint64_t above;         /* more bytes are resident */
    uint64_t every_s;       /* seconds have passed */
    uint64_t limit_percent; /* so full is the hard limit or the cgroup's */
};
/* Reads "none", or words with commas between them: peak=50,above=4g,every_s=600,limit=90. False:
 * they are not allowed. */
HAK_HIDDEN bool hak__options_parse_dump(const char *words, struct dump_when *when);

/* For core/seal.c: the pages that hold the options, part by part from 0. Size 0: no such part. */
HAK_HIDDEN struct seal_pages hak__options_pages(uint32_t part);

/* For reports: fills `view` with the name, the help text and the present value of option `index`,
 * counted from 0. False: there is no such option. Any thread. */
struct option_view {
    const char *name; /* in lower case, without HAKMEM_ */
    const char *help;
    char value[32]; /* zero-terminated; a longer value is cut */
};
HAK_HIDDEN bool hak__options_view(uint32_t index, struct option_view *view);

#endif
