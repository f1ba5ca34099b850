/* option_table.h: the table of options, for the files that read and show them. */
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
    KIND_PATH,           /* const char * */
    KIND_PROCESS,        /* uint64_t */
    KIND_SIGNAL          /* uint32_t */
};

struct option {
    const char *name;
    const char *help;
    void *place;
    enum option_kind kind;
};

HAK_HIDDEN extern const struct option hak__option_table[];
HAK_HIDDEN extern const uint32_t hak__option_count;
/* By enum stats_format. */
HAK_HIDDEN extern const char *const hak__option_stats_names[];

#endif
