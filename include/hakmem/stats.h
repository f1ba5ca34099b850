/* SPDX-License-Identifier: MIT */
/* stats.h: where the memory is: what the resident memory is used for, totals, size classes, arenas
 * and counters, as structs, by name, as text or as JSON.
 *
 * All functions are thread-safe and allocate nothing. They take one arena's lock at a time. So the
 * figures of a running program are from slightly different moments. The figures of arenas at rest
 * are exact. Sums are exact always. In a signal handler that interrupted the allocator, the figures
 * of arenas and threads are zero.
 *
 * Counters only grow. A reader computes rates from the difference of two readings. In the child of
 * a fork they go on from the parent's values. */
#ifndef HAKMEM_STATS_H
#define HAKMEM_STATS_H

#include "hakmem/hakmem.h"

#if defined(__cplusplus)
extern "C" {
#endif

/* The structs below grow at their ends only, and then the version does. A program passes the size
 * of the struct that it was compiled with. The library fills so much of it, and says in `size` how
 * many bytes it has filled. */
#define HAK_STATS_VERSION 1

/* Bytes of address space, resident or not, unless the name says count.
 *
 *   bytes_mapped = bytes_in_use + bytes_cached + bytes_free_in_slabs + bytes_free_dirty
 *                  + bytes_free_clean + bytes_discarded */
struct hak_stats {
    uint32_t version; /* HAK_STATS_VERSION of the library */
    uint32_t size;    /* bytes that the library has filled */
    /* Address space for user memory: superslabs, huge blocks in use and kept, and free memory that
     * the kernel would not unmap yet. */
    size_t bytes_mapped;
    size_t bytes_metadata;   /* address space for tables, arenas, threads and the huge registry */
    size_t bytes_in_use;     /* blocks handed out and not freed, at their usable size */
    size_t bytes_cached;     /* free objects in thread caches, kept spans, kept huge blocks */
    size_t bytes_free_dirty; /* free slices whose pages have not been returned to the OS */
    size_t objects_in_use_count; /* blocks handed out and not freed */
    size_t arenas_count;         /* all arenas, also those without threads */
    size_t arenas_parked_count;  /* arenas without threads */
    size_t threads_count;        /* threads that have a cache */
    size_t superslabs_count;     /* of 2 MiB */
    size_t huge_count;           /* blocks in use that have a mapping of their own: above 2 MiB, and
                                  * small ones with large alignments or from emergency memory */
    size_t bytes_free_in_slabs;  /* free objects in slabs, memory not carved, unused ends */
    size_t bytes_free_clean;     /* free slices without memory: untouched, or returned to the OS */
    size_t bytes_discarded;      /* free memory that the kernel would not unmap yet */
    /* The most bytes since the start, or since hak_stats_reset_peaks: mapped for user memory and
     * tables together; in slabs, spans and huge blocks together. The latter includes free objects
     * in slabs and kept spans. */
    size_t peak_bytes_mapped;
    size_t peak_bytes_taken;
};

/* Fills `*stats`, at most `size` bytes of it. Waits for the end of a fork that is under way. */
HAK_API void hak_stats_read(struct hak_stats *stats, size_t size) HAK_NOEXCEPT;

/* hak_stats_read with the struct that the program was compiled with. */
static inline void hak_stats_get(struct hak_stats *stats) HAK_NOEXCEPT
{
    hak_stats_read(stats, sizeof *stats);
}

/* What the resident memory of the process (RSS) is used for, in bytes. UINT64_MAX: unknown.
 *
 *   rss = in_use + rounding + thread_caches + free_in_slabs + kept + tables + not_hakmem */
struct hak_summary {
    uint32_t version; /* HAK_STATS_VERSION of the library */
    uint32_t size;    /* bytes that the library has filled */
    uint64_t rss;
    uint64_t in_use;        /* blocks handed out and not freed */
    uint64_t rounding;      /* of these, bytes beyond what was asked for: an estimate */
    uint64_t thread_caches; /* free objects in thread caches */
    uint64_t free_in_slabs; /* free objects and unused memory in slabs */
    uint64_t kept;       /* free slices, kept spans and huge blocks: hak_trim would return them */
    uint64_t tables;     /* page map, slab metadata, arenas, threads, huge registry */
    uint64_t not_hakmem; /* the rest: code, stacks, the program's own mappings */
    uint64_t peak_rss;   /* the most that was resident since exec; not reset */
    uint64_t swapped;    /* in swap areas, and so not part of rss */
    uint64_t rounding_requests_count; /* that the estimate rests on; 0: rounding is unknown, and
                                         part of in_use */
    uint64_t fragmentation_permille;  /* free_in_slabs, as a part of it and in_use and rounding */
};

/* Fills `*summary`, at most `size` bytes of it. It asks the kernel about all of hakmem's pages,
 * which takes about 2 ms for each GiB mapped. False: the parts are unknown, because the kernel does
 * not answer, because a signal handler asks that interrupted the allocator, or because another
 * thread holds a lock and has not run for 50 ms. */
HAK_API bool hak_summary_read(struct hak_summary *summary, size_t size) HAK_NOEXCEPT;

/* The number of that name in the JSON report: the keys that lead to it, with dots between them,
 * such as "summary.in_use_bytes", "totals.bytes_mapped", "counters.malloc_slow", "os_calls.mmap",
 * "classes.64.in_use" (64: the size of the objects), "arenas.1.threads" (1: the arena's id). False:
 * there is no such number, or it is unknown now; *value stays as it was. */
HAK_API bool hak_stats_value(const char *name, uint64_t *value) HAK_NOEXCEPT;

/* From now on the two peaks of hak_stats count from the present values. */
HAK_API void hak_stats_reset_peaks(void) HAK_NOEXCEPT;

/* What the calling thread has allocated and freed, in bytes at their usable size (objects of the
 * secure form: with what it adds). Both only grow, and start at 0 with the thread; in fork's child,
 * with the child.
 *
 *   allocated - freed   is exact: the blocks that this thread allocated, less those that it freed,
 *                       whichever thread allocated them. Below 0 (as int64_t) if it frees more.
 *   allocated           lies between the bytes that the thread asked for and the usable bytes of
 *                       the blocks that it got. So it may lack some of the rounding.
 *
 * A block that realloc resizes in place counts by the difference. Not counted are objects of heaps
 * (hakmem/heap.h), but the chunks of their default provider are; and what a thread does in
 * destructors after its end, or in a signal handler that interrupted the allocator. */
struct hak_thread_bytes {
    uint32_t version; /* HAK_STATS_VERSION of the library */
    uint32_t size;    /* bytes that the library has filled */
    uint64_t allocated;
    uint64_t freed;
};

/* Fills `*bytes`, at most `size` bytes of it, for the calling thread. It slows no malloc or free; a
 * call takes 0.1 to 0.3 microseconds, and no lock. */
HAK_API void hak_thread_bytes_read(struct hak_thread_bytes *bytes, size_t size) HAK_NOEXCEPT;

enum hak_report_format {
    HAK_REPORT_TEXT = 0,    /* the summary, then all figures, for people */
    HAK_REPORT_JSON = 1,    /* all figures, in one line */
    HAK_REPORT_SUMMARY = 2, /* the summary alone, some 15 lines for people */
};

/* Receives the report piece by piece: `size` bytes of `text`, not zero-terminated. Must not write
 * another report. Runs without a lock, so it may allocate. */
typedef void hak_report_sink(void *argument, const char *text, size_t size);

/* Writes a report to `sink`, which gets `argument`: summary, totals, size classes, counters, OS
 * calls, arenas, threads, options. Waits for the end of a fork that is under way. */
HAK_API void hak_report(enum hak_report_format format, hak_report_sink *sink,
                        void *argument) HAK_NOEXCEPT;

/* Writes a map of the heap to `sink`: one JSON document that says what each 32 KiB slice of the
 * heap is and how much of it is resident, with sums for each size class and all blocks above 2
 * MiB. `./hakmem heap` makes a page of it; docs/observability/formats.md describes the format. A
 * heap of 1 GiB takes some 250 KB and milliseconds. The sink runs between the superslabs, so the
 * program may go on meanwhile; what the sink allocates may appear in the map. Waits for the end of
 * a fork that is under way. */
HAK_API void hak_heap_map(hak_report_sink *sink, void *argument) HAK_NOEXCEPT;

#if defined(__cplusplus)
}
#endif

#endif
