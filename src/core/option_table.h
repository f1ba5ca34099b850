/* SPDX-License-Identifier: MIT */
/* option_table.h: the table of options, for the files that read, set and show them. */
#ifndef HAK_CORE_OPTION_TABLE_H
#define HAK_CORE_OPTION_TABLE_H

#include "base/compiler.h"

enum option_kind {
    KIND_PROFILE,        /* const char * */
    KIND_MILLISECONDS,   /* uint32_t, UINT32_MAX is never */
    KIND_NUMBER,         /* uint32_t */
    KIND_BYTES_32,       /* uint32_t */
    KIND_BYTES,          /* uint64_t */
    KIND_BYTES_OR_NEVER, /* uint64_t, UINT64_MAX is never */
    KIND_SWITCH,         /* bool */
    KIND_STATS,          /* uint32_t, enum stats_format */
    KIND_PATH,           /* const char *, of a file that is written */
    KIND_INPUT,          /* const char *, of a file that is read */
    KIND_PROCESS,        /* uint64_t */
    KIND_SIGNAL,         /* uint32_t */
    KIND_DUMP            /* const char *, words for hak__options_parse_dump */
};

/* When an option may change. The slow paths read the ones of the last two kinds each time that they
 * use them. What happens once at start, such as starting a thread or opening a file, is START. */
enum option_when {
    WHEN_START,    /* never after the process's start */
    WHEN_ANY,      /* at any time */
    WHEN_UNLEARNED /* at any time, unless the process learns: it is then the learner's to change */
};

struct option {
    const char *name;
    const char *help;
    void *place;
    enum option_kind kind;
    enum option_when when;
};

/* Bytes of a value with its end: no longer one is allowed, as option_allowed says, too. */
#define OPTION_VALUE_SIZE 1024

HAK_HIDDEN extern const struct option hak__option_table[];
HAK_HIDDEN extern const uint32_t hak__option_count;
/* By enum stats_format. */
HAK_HIDDEN extern const char *const hak__option_stats_names[];

/* The option of that name, which has `length` bytes: in any case, with or without HAKMEM_ before
 * it. NULL: there is none. */
HAK_HIDDEN const struct option *hak__option_find(const char *name, size_t length);
/* The values that the option allows, as words that go on after "must be ". */
HAK_HIDDEN const char *hak__option_allowed(const struct option *option);
/* Stores the value at `place`, which is the option's own or one of the same type. False: the value
 * is not allowed, and nothing changes. Numbers and switches are stored at once, so any thread may
 * do so; the other kinds are for the start. */
HAK_HIDDEN bool hak__option_store(const struct option *option, void *place, const char *value);

struct text;
/* Appends the present value. Any thread. */
HAK_HIDDEN void hak__option_put_value(struct text *text, const struct option *option);

#endif
