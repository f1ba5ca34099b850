/* SPDX-License-Identifier: MIT */
/* site_list.h: the sites of a report: the ones that hold the most bytes, and how views show them.
 */
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

/* Bytes or blocks of an estimate, rounded. */
HAK_HIDDEN uint64_t hak__site_round(double estimate);

/* Writes the list `sites`, as JSON or text. */
HAK_HIDDEN void hak__site_list_write(struct report_writer *writer, const struct site_list *list);

/* Appends the site's name; of an address the name of the file, and where addr2line finds the call.
 */
HAK_HIDDEN void hak__site_put_title(struct text *text, const struct site *site,
                                    const struct modules *modules);

#endif
