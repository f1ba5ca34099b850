/* SPDX-License-Identifier: MIT */
/* summary.h: what the resident memory of the process (RSS) is used for.
 *
 *   RSS = in use + rounding inside blocks + free in thread caches + free in slabs + kept for reuse
 *         + tables + not hakmem's
 *
 * The last part is what the others leave, so the sum is exact. Within a class, the resident bytes
 * of its slabs are shared out in proportion to the bytes of its objects: in use, in thread caches,
 * free in slabs. What is resident beyond all carved objects is free, too. */
#ifndef HAK_OBSERVE_SUMMARY_H
#define HAK_OBSERVE_SUMMARY_H

#include "control/census.h"
#include "os/os.h"

/* X(part, key, title, help): `key` is the name in JSON and of hak_stats_value, `title` is for
 * people. */
#define SUMMARY_PART_LIST(X)                                                                       \
    X(SUMMARY_IN_USE, "in_use_bytes", "in use", "blocks handed out and not freed")                 \
    X(SUMMARY_ROUNDING, "rounding_bytes", "rounding inside blocks",                                \
      "bytes of blocks in use beyond what was asked for, estimated")                               \
    X(SUMMARY_THREAD_CACHES, "thread_caches_bytes", "free in thread caches",                       \
      "free objects in thread caches")                                                             \
    X(SUMMARY_FREE_IN_SLABS, "free_in_slabs_bytes", "free in slabs",                               \
      "free objects and unused memory in slabs")                                                   \
    X(SUMMARY_KEPT, "kept_bytes", "kept for reuse",                                                \
      "free slices, kept spans and kept huge allocations")                                         \
    X(SUMMARY_TABLES, "tables_bytes", "tables", "page map, slab metadata, heaps, registry")        \
    X(SUMMARY_NOT_HAKMEM, "not_hakmem_bytes", "not hakmem's",                                      \
      "code, stacks, the program's own mappings")

#define X(part, key, title, help) part,
enum summary_part { SUMMARY_PART_LIST(X) SUMMARY_PARTS };
#undef X
struct summary_name {
    const char *key;
    const char *title;
    const char *help;
};
HAK_HIDDEN extern const struct summary_name hak__summary_names[SUMMARY_PARTS];

/* Bytes. */
struct resident {
    bool known; /* false: the kernel did not answer, or this thread was refused; all others are 0 */
    uint64_t classes[CLASS_COUNT]; /* slabs */
    uint64_t spans;                /* in use */
    uint64_t spans_kept;           /* that heaps keep, and slices on their way to a new owner */
    uint64_t slices_free;          /* in free slices of superslabs */
    uint64_t whales;               /* in use */
    uint64_t whales_kept;
    uint64_t tables; /* owner words, slab metadata, heaps, threads, tables of whales */
};

/* Fills `*resident`. Begins at the gate, and lets a fork that waits go first. No lock held. */
HAK_HIDDEN void hak__resident_take(struct resident *resident);

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

/* The class of slabs, spans (CLASS_COUNT) or whales (CLASS_COUNT + 1) with the most resident bytes
 * that is not among the first `count` of `found`. 0: no further one has any. */
HAK_HIDDEN uint32_t hak__summary_next_largest(const struct summary *summary, const uint32_t *found,
                                              uint32_t count);
/* Resident bytes of such a class. */
HAK_HIDDEN uint64_t hak__summary_class_bytes(const struct summary *summary, uint32_t class_index);

#endif
