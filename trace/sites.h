/* SPDX-License-Identifier: MIT */
/* sites.h: call sites: names, as the module and the offset there, and what is known of each. */
#ifndef TRACE_SITES_H
#define TRACE_SITES_H

#include "decode.h"

struct sites {
    struct module *modules;
    size_t count;
};

/* From the frames of modules; a later frame wins. */
void sites_read(struct sites *sites, const struct trace_file *file);
/* "libfoo.so+0x1234", the address of the call as addr2line takes it; or the address alone, where it
 * is in no module. `text` has `room` bytes. */
void site_name(const struct sites *sites, uint64_t site, char *text, size_t room);
/* Prints the build ids of the files of these names, `count` with `room` bytes each. */
void sites_print_ids(const struct sites *sites, const char *names, size_t count, size_t room);
/* Prints them as records of JSON, as profiles of hakmem have mappings of code. */
void sites_print_mappings(const struct sites *sites);
void sites_free(struct sites *sites);

/* What is known of a call site. */
struct site_row {
    uint64_t site, births, bytes, live_bytes, peak_bytes;
    size_t number; /* from 0 on, in the order of their first blocks */
};

struct site_table {
    struct site_row *rows; /* hash table; births 0: empty */
    size_t room, count;
};

/* The row of a site, made if it is new; the caller counts the birth. In summary.c. */
struct site_row *site_find(struct site_table *table, uint64_t site);

#endif
