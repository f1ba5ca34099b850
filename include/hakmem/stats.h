/* stats.h: where the memory is, in numbers: totals, classes, heaps, counters, as a struct or as
 * text or JSON. All functions are thread-safe; each takes the locks of one heap at a time, so
 * totals of a running program are a moment's picture heap by heap, exact for heaps at rest. None
 * allocates. */
#ifndef HAKMEM_STATS_H
#define HAKMEM_STATS_H

#include "hakmem/hakmem.h"

#if defined(__cplusplus)
extern "C" {
#endif

/* Bytes unless the name says count. */
struct hak_stats {
    size_t
        bytes_mapped; /* address space taken from the OS for user memory (superslabs and whales) */
    size_t bytes_metadata;   /* address space taken for slab tables, heaps and the whale registry */
    size_t bytes_in_use;     /* objects handed out and not freed, at their usable size */
    size_t bytes_cached;     /* free objects in thread caches and free-but-kept spans and whales */
    size_t bytes_free_dirty; /* free slices whose pages have not been given back */
    size_t objects_in_use_count;
    size_t heaps_count;        /* heaps that exist, parked ones included */
    size_t heaps_parked_count; /* without a thread */
    size_t threads_count;      /* threads that have a cache */
    size_t superslabs_count;
    size_t whales_count;
};

/* Fills `*stats`. */
HAK_API void hak_stats_get(struct hak_stats *stats) HAK_NOEXCEPT;

enum hak_report_format { HAK_REPORT_TEXT = 0, HAK_REPORT_JSON = 1 };

/* Receives the report piece by piece; `text` is not zero-terminated. Must not call back into the
 * report. */
typedef void hak_report_sink(void *argument, const char *text, size_t size);

/* Writes the whole report (totals, size classes, counters, OS calls, heaps, threads, options) to
 * `sink`. */
HAK_API void hak_report(enum hak_report_format format, hak_report_sink *sink,
                        void *argument) HAK_NOEXCEPT;

#if defined(__cplusplus)
}
#endif

#endif
