/* SPDX-License-Identifier: MIT */
/* report.h: all that a report describes, taken at once. */
#ifndef HAK_OBSERVE_REPORT_H
#define HAK_OBSERVE_REPORT_H

#include "control/census.h"
#include "observe/heap_look.h"
#include "observe/modules.h"
#include "observe/report_writer.h"
#include "observe/sites.h"
#include "os/os.h"

/* --- summary.c: what the resident memory of the process (RSS) is used for ---
 *
 *   RSS = in use + rounding inside blocks + free in thread caches + free in slabs + kept for reuse
 *         + tables + not hakmem's
 *
 * The last part is what the others leave, so the sum is exact. Within a class, the resident bytes
 * of its slabs are shared out in proportion to the bytes of its objects: in use, in thread caches,
 * free in slabs. What is resident beyond all carved objects is free, too. */

/* X(part, name, title, help): `name`_bytes is the key in JSON and of hak_stats_value, `name` the
 * field of struct hak_summary; `title` is for people. */
#define SUMMARY_PART_LIST(X)                                                                       \
    X(SUMMARY_IN_USE, in_use, "in use", "blocks handed out and not freed")                         \
    X(SUMMARY_ROUNDING, rounding, "rounding inside blocks",                                        \
      "bytes of blocks in use beyond what was asked for, estimated")                               \
    X(SUMMARY_THREAD_CACHES, thread_caches, "free in thread caches",                               \
      "free objects in thread caches")                                                             \
    X(SUMMARY_FREE_IN_SLABS, free_in_slabs, "free in slabs",                                       \
      "free objects and unused memory in slabs")                                                   \
    X(SUMMARY_KEPT, kept, "kept for reuse", "free slices, kept spans and kept huge blocks")        \
    X(SUMMARY_TABLES, tables, "tables", "page map, slab metadata, arenas, registry")               \
    X(SUMMARY_NOT_HAKMEM, not_hakmem, "not hakmem's", "code, stacks, the program's own mappings")

#define X(part, name, title, help) part,
enum summary_part { SUMMARY_PART_LIST(X) SUMMARY_PARTS };
#undef X
struct summary_name {
    const char *key;
    const char *title;
    const char *help;
};
HAK_HIDDEN extern const struct summary_name hak__summary_names[SUMMARY_PARTS];

/* --- huge_use.c: how much of the heap lies in huge pages, and why not more ---
 *
 * The kernel says it of each superslab and huge block (os.h). Cost: up to 0.8 ms for each GiB, and
 * 12 us for each huge block. In superslabs that may have huge pages, blocks are counted as for the
 * heap map, under the locks of their arenas. */
struct huge_use {
    bool unknown;            /* the kernel does not say: `bytes` is too little */
    uint64_t heap_bytes;     /* resident, of superslabs and huge blocks */
    uint64_t bytes;          /* of these in huge pages */
    size_t superslabs_count; /* in huge pages */
    uint64_t used_bytes;     /* of blocks in use or in thread caches in these superslabs */
    size_t refused_count;    /* superslabs with small pages although hakmem asked for huge ones */
    size_t unasked_count;    /* or because it did not ask */
    size_t groups;           /* of superslabs, up to the one that `found` is about */
    uint64_t found;          /* its superslabs in huge pages */
};

/* Adds a superslab. True: it lies in a huge page. In rising order. */
HAK_HIDDEN bool hak__huge_use_add(struct huge_use *use, const struct heap_look *look);
HAK_HIDDEN void hak__huge_use_add_block(struct huge_use *use, const struct huge_view *view,
                                        uint64_t resident);
/* Used bytes in thousandths of the superslabs' size. UINT64_MAX: there are none. */
HAK_HIDDEN uint64_t hak__huge_use_permille(const struct huge_use *use);
/* Why not more of the heap, in words; "": there is no reason, or it is unknown. */
HAK_HIDDEN const char *hak__huge_use_why(char why[TEXT_LINE_SIZE], const struct huge_use *use);
/* Writes the section "huge_pages". */
HAK_HIDDEN void hak__huge_use_write(struct report_writer *writer, const struct huge_use *use);

/* Bytes. */
struct resident {
    bool known; /* false: the kernel did not answer, or this thread was refused */
    bool refused;
    uint32_t answers, failures;    /* system calls */
    uint64_t classes[CLASS_COUNT]; /* slabs */
    uint64_t slices[SLICE_KINDS];  /* other slices of superslabs */
    uint64_t huge;                 /* in use */
    uint64_t huge_kept;
    struct huge_use huge_use;
    uint64_t tables; /* owner words, slab metadata, arenas, threads, tables of huge blocks */
};

/* Fills `*resident`. Begins at the gate several times, and waits for forks. No lock held. */
HAK_HIDDEN void hak__resident_take(struct resident *resident);
/* Resident bytes of the pages from `start` to `end`; parts that are unmapped count 0. Adds to the
 * answers and failures of `resident`. */
HAK_HIDDEN uint64_t hak__resident_bytes(struct resident *resident, uintptr_t start, uintptr_t end);
/* hak__huge_list_next, inside the gate for as long as it takes. False: also if refused. */
HAK_HIDDEN bool hak__resident_next_huge(struct resident *resident, struct huge_list *list);

struct summary {
    struct os_memory memory;
    bool known;                    /* the parts are; else all are 0 */
    uint64_t parts[SUMMARY_PARTS]; /* bytes; NOT_HAKMEM is unknown if the RSS is */
    uint64_t requests_count;       /* that the estimate of rounding rests on; 0: it is unknown */
    uint32_t fragmentation;        /* in thousandths, see hak__summary_take */
    struct resident resident;
};

/* Fills `*summary` from `census`, which was taken just before. fragmentation: FREE_IN_SLABS as a
 * part of IN_USE, ROUNDING and FREE_IN_SLABS together, that is of all memory that blocks in use
 * hold or keep from others. No lock held. */
HAK_HIDDEN void hak__summary_take(struct summary *summary, const struct census *census);

/* True if the RSS is known. */
HAK_INLINE bool summary_has_rss(const struct summary *summary)
{
    return summary->memory.rss != UINT64_MAX;
}

/* Bytes of the part; UINT64_MAX: unknown. */
HAK_HIDDEN uint64_t hak__summary_part(const struct summary *summary, uint32_t part);

/* --- site_list.c: the sites that hold the most bytes --- */

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
/* Writes the list `sites`, as JSON or text. */
HAK_HIDDEN void hak__site_list_write(struct report_writer *writer, const struct site_list *list);
/* Writes the list `named_sites` of all sites that the program has named, whatever they hold: the
 * same in each run, for series of figures over time. */
HAK_HIDDEN void hak__named_sites_write(struct report_writer *writer);

/* The site's name; of an address the name of the file, and where addr2line finds the call. */
HAK_HIDDEN void hak__site_title(const struct site *site, const struct modules *modules,
                                char title[TEXT_LINE_SIZE]);

struct report {
    struct census census;
    struct hak_stats stats;
    struct summary summary;
    struct site_list sites;
};

/* Writes the section "totals". */
HAK_HIDDEN void hak__totals_write(struct report_writer *writer, const struct hak_stats *stats);

/* Tells `sink` the names of hak_stats_value but those in records: a line for each, with two tabs
 * and its help behind the name. */
HAK_HIDDEN void hak__report_names(hak_report_sink *sink, void *argument);

/* hak_report in the format of the name. */
HAK_HIDDEN void hak__report_summary(hak_report_sink *sink, void *argument);
HAK_HIDDEN void hak__report_text(hak_report_sink *sink, void *argument);
HAK_HIDDEN void hak__report_json(hak_report_sink *sink, void *argument);

/* The summary as text, with the sites that hold most if there are any. Figures in MiB and in
 * percent are rounded so that their sums are exact, too. */
HAK_HIDDEN void hak__summary_write_text(struct report_writer *writer, const struct report *report);

#endif
