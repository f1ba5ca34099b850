/* SPDX-License-Identifier: MIT */
/* sites.h: the table of sites: what was allocated and freed at each place of the program.
 *
 *   named     the program gave it a name (hakmem/site.h)
 *   number    the program gave it an id, and no name
 *   address   no id: the innermost return address outside hakmem, the C and the C++ library
 *   other     one entry for all that finds no room, and for blocks without id and stack
 *
 * Samples alone feed it (samples.c), so allocations that are not sampled cost nothing. Sites are
 * never removed.
 *
 * Bounds: SITES_NAMED_MAX named sites, and as many others as SITES_MAX leaves.
 *
 * Lock: the caller holds SAMPLES, except for hak__site_find, hak__site_name and
 * hak__site_current. */
#ifndef HAK_OBSERVE_SITES_H
#define HAK_OBSERVE_SITES_H

#include "core/limits.h"
#include "learn/learner.h"

/* Sites in the table. A site takes 320 bytes, so all take 1.3 MiB. Half: large programs have more
 * callers of malloc than that, and the rarely sampled ones share the entry "other". */
#define SITES_MAX 4096u
/* Of these for names, which so find room whatever was sampled before. Also the most series
 * of a site's figure. Twice as many: monitoring systems store twice as many. */
#define SITES_NAMED_MAX 1024u
/* Counters of lifetimes: 0 ms, then up to 3 ms, 15 ms, 63 ms and so on by powers of 4; the last
 * one, from 17 minutes on. One more: lifetimes of more than 70 minutes stand apart. */
#define SITE_LIFETIMES 12u

/* The id of the entry "other". A program's own numbers are small ones, hashes or addresses. */
#define SITE_ID_OTHER UINTPTR_MAX

/* Sums of weighted samples. Counts are numbers of blocks, estimated. */
struct site_sums {
    double allocated_count;
    double allocated_bytes; /* as requested */
    double freed_count;
    double freed_bytes;
    double freed_remote;              /* count of blocks that another thread freed */
    double live_usable_bytes;         /* of blocks in use: with what was not requested */
    double lifetime_ms;               /* of freed blocks, each times its weight */
    double lifetimes[SITE_LIFETIMES]; /* counts of freed blocks by their lifetimes */
    uint64_t size_min, size_max;      /* of the samples, as requested */
    uint64_t began_ms;                /* clock of the first sample (samples.c) */
    uint64_t samples_count;           /* not weighted */
    uint64_t samples_live;            /* not weighted: of blocks in use */
};

HAK_INLINE double site_live_bytes(const struct site_sums *sums)
{
    return sums->allocated_bytes - sums->freed_bytes;
}

struct site {
    struct site *next;  /* in its bucket; constant */
    struct site *older; /* in the list of all; constant */
    uintptr_t key;      /* the id, or the address with a number (loaded.h); constant */
    bool is_address;
    bool shared_apart;         /* its objects are placed (below); relaxed, written under SAMPLES */
    bool shared_is_named;      /* `name` is complete, and constant from then on */
    char name[SITE_NAME_SIZE]; /* zero-terminated */
    struct site_sums sums;     /* under SAMPLES */
};

/* The calling thread's site, an id; 0: none. */
HAK_HIDDEN extern HAK_TLS uintptr_t hak__site_current;

/* The site of an id, or of an address. Makes it if there is none, or returns "other"; of 0, too.
 * NULL: no memory at all. */
HAK_HIDDEN struct site *hak__site_of(uintptr_t key, bool is_address);
/* The site of an id. NULL: there is none. Any thread, no lock. */
HAK_HIDDEN struct site *hak__site_find(uintptr_t id);
/* Gives the name an id, which is not 0. `name` is complete and not empty. 0: no memory. */
HAK_HIDDEN uintptr_t hak__site_named(const char name[SITE_NAME_SIZE]);

/* Notes that a sample of the site begins, and that it ends. */
HAK_HIDDEN void hak__site_begin(struct site *site, double weight, size_t size, size_t usable,
                                uint64_t now_ms);
HAK_HIDDEN void hak__site_end(struct site *site, double weight, size_t size, size_t usable,
                              uint64_t lifetime_ms, bool remote);

/* The first of all sites, newest first; follow `older`. */
HAK_HIDDEN struct site *hak__site_first(void);

/* True if the program has given the site a name. Any thread, no lock. */
HAK_HIDDEN bool hak__site_is_named(const struct site *site);
/* The name for people: of a number "site 0x1234", of an address "". Any thread, no lock. */
HAK_HIDDEN void hak__site_name(const struct site *site, char name[SITE_NAME_SIZE]);

/* --- placement: objects of sites that are proven long-lived lie in slabs of their own, so that one
 * such object does not hold a slab of dead ones (docs/learning.md).
 *
 * A thread inside the scope of such a site (hakmem/site.h) uses its second struct, whose bins are
 * filled from a heap for long-lived objects (hak__thread_turn). malloc and free do not know it. The
 * sampled blocks of a site say how long they live. Only named sites are placed, and only while the
 * process learns (HAKMEM_LEARN). */

/* True once the process learns and has named a site. Relaxed. */
HAK_HIDDEN extern bool hak__placement_on;

/* True if the site is long-lived by its samples, false if not. `apart` is the answer until now.
 * Exported for tests. */
HAK_HIDDEN bool hak__placement_judge(const struct site_sums *sums, bool apart, uint64_t now_ms);

#endif
