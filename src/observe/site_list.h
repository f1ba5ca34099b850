/* SPDX-License-Identifier: MIT */
/* site_list.h: the sites of a report: the ones that hold the most bytes, and how views show
 * them. */
#ifndef HAK_OBSERVE_SITE_LIST_H
#define HAK_OBSERVE_SITE_LIST_H

#include "observe/modules.h"
#include "observe/report_writer.h"
#include "observe/sites.h"

/* Sites of a list. Twice as many: a JSON report is up to 40 KB longer. Half: the tail of a large
 * program's sites is missing sooner. */
#define SITE_LIST_MAX 100u

/* Sites by live bytes, the largest first; then those without live bytes, by allocated bytes. Sites
 * that were never sampled are not among them. */
struct site_list {
    uint32_t count;
    uint64_t samples_count; /* behind the sums of all sites */
    const struct site *sites[SITE_LIST_MAX];
};

/* Takes the list. It is empty if nothing was sampled, or if the thread was refused. */
HAK_HIDDEN void hak__site_list_take(struct site_list *list);

/* Copies the sums of a site. False: refused. */
HAK_HIDDEN bool hak__site_copy(const struct site *site, struct site_sums *sums);
/* The first of all sites; NULL: there is none, or refused. Follow `older`, which is constant. */
HAK_HIDDEN const struct site *hak__site_list_first(void);

/* What a report says of a site: estimates, rounded; a mean of lifetimes, and how many of 1,000
 * freed blocks another thread freed. */
enum site_figure {
    SITE_LIVE_BYTES,
    SITE_LIVE_COUNT,
    SITE_LIVE_USABLE_BYTES,
    SITE_ALLOCATED_BYTES,
    SITE_ALLOCATED_COUNT,
    SITE_FREED_BYTES,
    SITE_FREED_COUNT,
    SITE_SIZE_MIN,
    SITE_SIZE_MAX,
    SITE_LIFETIME_MS,
    SITE_REMOTE_PERMILLE,
    SITE_SAMPLES,
    SITE_SAMPLES_LIVE,
    SITE_FIGURES
};
HAK_HIDDEN void hak__site_figures(const struct site_sums *sums, uint64_t figures[SITE_FIGURES]);

/* Writes the list `sites`, as JSON or text. */
HAK_HIDDEN void hak__site_list_write(struct report_writer *writer, const struct site_list *list);

/* The site's name; of an address the name of the file, and where addr2line finds the call. */
#define SITE_TITLE_SIZE 320u
HAK_HIDDEN void hak__site_title(const struct site *site, const struct modules *modules,
                                char title[SITE_TITLE_SIZE]);

#endif
