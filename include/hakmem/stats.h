/* stats.h: where the memory is: totals, size classes, heaps and counters, as a struct, as text or
 * as JSON.
 *
 * All functions are thread-safe and allocate nothing. They take one heap's lock at a time. So the
 * figures of a running program are from slightly different moments. The figures of heaps at rest
 * are exact. In a signal handler that interrupted the allocator, the figures of heaps and threads
 * are zero. */
#ifndef HAKMEM_STATS_H
#define HAKMEM_STATS_H

#include "hakmem/hakmem.h"

#if defined(__cplusplus)
extern "C" {
#endif

/* Bytes, unless the name says count. */
struct hak_stats {
    /* Address space for user memory: superslabs, whales in use and kept, and free memory that the
     * kernel would not unmap yet. */
    size_t bytes_mapped;
    size_t bytes_metadata;   /* address space for tables, heaps, threads and the whale registry */
    size_t bytes_in_use;     /* blocks handed out and not freed, at their usable size */
    size_t bytes_cached;     /* free objects in thread caches, kept spans, kept whales */
    size_t bytes_free_dirty; /* free slices whose pages have not been returned to the OS */
    size_t objects_in_use_count; /* blocks handed out and not freed */
    size_t heaps_count;          /* all heaps, also those without threads */
    size_t heaps_parked_count;   /* heaps without threads */
    size_t threads_count;        /* threads that have a cache */
    size_t superslabs_count;     /* of 2 MiB */
    size_t whales_count;         /* huge allocations (above 2 MiB) in use */
};

/* Fills `*stats`. Waits for the end of a fork that is under way. */
HAK_API void hak_stats_get(struct hak_stats *stats) HAK_NOEXCEPT;

enum hak_report_format { HAK_REPORT_TEXT = 0, HAK_REPORT_JSON = 1 };

/* Receives the report piece by piece: `size` bytes of `text`, not zero-terminated. Must not write
 * another report. Runs without a lock, so it may allocate. */
typedef void hak_report_sink(void *argument, const char *text, size_t size);

/* Writes the whole report to `sink`, which gets `argument`: totals, size classes, counters, OS
 * calls, heaps, threads, options. Waits for the end of a fork that is under way. */
HAK_API void hak_report(enum hak_report_format format, hak_report_sink *sink,
                        void *argument) HAK_NOEXCEPT;

/* Writes a map of the heap to `sink`: one JSON document that says what each 32 KiB slice of the
 * heap is and how much of it is resident, with sums for each size class and all blocks above 2 MiB.
 * `./hakmem heap` makes a page of it; docs/observability/heap-picture.md describes the format. A
 * heap of 1 GiB takes some 250 KB and milliseconds. The sink runs between the superslabs, so the
 * program may go on meanwhile; what the sink allocates may appear in the map. Waits for the end of
 * a fork that is under way. */
HAK_API void hak_heap_map(hak_report_sink *sink, void *argument) HAK_NOEXCEPT;

#if defined(__cplusplus)
}
#endif

#endif
