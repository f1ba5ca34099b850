/* SPDX-License-Identifier: MIT */
/* summary.h: prints what is in a trace. Returns an exit status. */
#ifndef TRACE_SUMMARY_H
#define TRACE_SUMMARY_H

#include "decode.h"

/* What is known of a call site. */
struct site_row {
    uint64_t site, births, bytes, live_bytes, peak_bytes;
    size_t number; /* from 0 on, in the order of their first blocks */
};

struct site_table {
    struct site_row *rows; /* hash table; births 0: empty */
    size_t room, count;
};

/* The row of a site, made if it is new; the caller counts the birth. */
struct site_row *site_find(struct site_table *table, uint64_t site);

int summary_print(const struct trace_file *file);

#endif
