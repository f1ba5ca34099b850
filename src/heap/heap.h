/* heap.h: a thread's heap: its cache, its slabs, its freed spans, one lock.
 *
 * Heaps outlive threads. A thread's first slow operation adopts a parked heap whole, or makes one;
 * at its end the bins go back to the slabs and the heap is parked with its id and all objects still
 * in use, so no owner word is ever rewritten.
 *
 *   made -> live (a thread's) <-> parked (nobody's)
 *   parked -> borrowed -> parked (one operation of an ended thread)
 *
 * Locks: the heap's own (rank HEAP) around every slow path on it, by its thread or by others
 * (collection, reports, fork). Bins and remote buffer of a live heap belong to its thread alone.
 * hak__heaps_lock (rank HEAPS) guards the list and the parked stack. Heap structs are never freed:
 * reading one needs no lock.
 */
#ifndef HAK_HEAP_HEAP_H
#define HAK_HEAP_HEAP_H

#include "cache/cache.h"
#include "core/lock.h"
#include "large/span.h"

struct heap {
    struct cache cache; /* first: the fast paths read it */
    struct lock lock;
    uint32_t id;
    bool parked; /* under the lock */
    struct span_cache spans;
    struct heap *next;        /* of all heaps; constant once listed */
    struct heap *next_parked; /* under HEAPS */
    uint32_t trimmed_ms;      /* of the last trim; its thread only */
    uint32_t batches;         /* remote batches sent, wraps; its thread only */
    uint32_t sent_ms;         /* of the last tick that sent them all; its thread only */
};

/* This thread's heap, or one of the two that nobody owns anything in: before the thread's first
 * slow operation and after its end. Both have empty bins and a key that matches nothing, so the
 * fast paths need no test. */
HAK_HIDDEN extern HAK_TLS struct heap *hak__thread_heap;
HAK_HIDDEN extern struct heap hak__heap_none;
HAK_HIDDEN extern struct heap hak__heap_ended;

/* start.c. Reads the machine and the options, chooses the window, once. False: not possible now (no
 * memory); may be tried again. Any thread, no lock held. */
HAK_HIDDEN bool hak__start(void);
/* The pthread key whose destructor ends threads could be had. */
HAK_HIDDEN bool hak__start_has_key(void);
/* Has the key's destructor called with `heap` when this thread ends. False: it will not be. */
HAK_HIDDEN bool hak__start_watch_thread(struct heap *heap);

/* thread.c. This thread's heap with its lock taken; a borrowed one for a thread that has ended.
 * NULL: no memory. */
HAK_HIDDEN struct heap *hak__heap_enter(void);
/* Releases it; every so often also trims and purges. No other lock held. */
HAK_HIDDEN void hak__heap_leave(struct heap *heap);
/* This thread's heap without the lock, for the remote buffer. NULL: it has none and can have none.
 */
HAK_HIDDEN struct heap *hak__heap_current(void);
/* Counts a slow operation; every so often sends all remote batches and ticks. No lock held. */
HAK_HIDDEN void hak__heap_count_operation(struct heap *heap);
/* Counts a remote batch sent; every so often ticks. No lock held. */
HAK_HIDDEN void hak__heap_count_batch(struct heap *heap);
/* The key's destructor. */
HAK_HIDDEN void hak__thread_end(void *heap);

/* heap.c */
HAK_HIDDEN extern struct lock hak__heaps_lock;
/* Any heap, listed, not parked: a parked one or a new one. NULL: no memory. */
HAK_HIDDEN struct heap *hak__heap_adopt(void);
/* Flushes and parks a heap that no thread uses. */
HAK_HIDDEN void hak__heap_park(struct heap *heap);
/* First of all heaps; follow `next`. Any thread. */
HAK_HIDDEN struct heap *hak__heap_first(void);
/* In fork's child, all locks held: every heap but `own` becomes a parked one. */
HAK_HIDDEN void hak__heap_park_all_but(const struct heap *own);
HAK_HIDDEN size_t hak__heap_metadata_bytes(void);

/* collect.c. What others may do to any heap: take its notifications, give back its cached spans. */
HAK_HIDDEN void hak__heap_collect(struct heap *heap, bool everything);
/* Drains for the owner that `heap` (this thread's) found lagging. No lock held. */
HAK_HIDDEN HAK_COLD void hak__heap_help(struct heap *heap);
/* Trims `heap` (this thread's) and purges what is due, by the clock. No lock held. */
HAK_HIDDEN void hak__heap_tick(struct heap *heap);
/* Everything that is free goes back to the OS now; returns bytes. With `unmap` also the addresses.
 * No lock held. */
HAK_HIDDEN size_t hak__heap_reclaim(bool unmap);

/* fork.c: pthread_atfork handlers. */
HAK_HIDDEN void hak__fork_prepare(void);
HAK_HIDDEN void hak__fork_parent(void);
HAK_HIDDEN void hak__fork_child(void);

#endif
