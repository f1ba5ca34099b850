/* heap.h: who owns slabs, and who works on them.
 *
 *   struct heap    owns slabs and kept spans; one lock for all its slow paths
 *   struct thread  one thread's cache, drawing from one heap
 *
 * There are about as many heaps as threads that can run at once (knobs.heaps_max), not as many as
 * there are threads: each heap has a slab in use for each class that is asked for, half of it
 * unused on average, and what an idle thread freed is only of use to others that draw from its heap
 * (docs/decisions/0015). Up to that number every thread has a heap of its own.
 *
 * Both outlive threads. A thread's first slow operation joins a heap, one without threads, else a
 * new one, else one with no more threads than the others, and takes a thread struct. At its end the
 * bins go back to the slabs, with all objects still in use where they are: no owner word is ever
 * rewritten.
 *
 *   struct thread:  made -> a thread's <-> parked (nobody's)
 *                   parked -> borrowed -> parked (one operation of an ended thread)
 *
 * Locks: the heap's own (rank HEAP) around every slow path on it, by its threads or by others
 * (collection, borrowing, reports, fork). Bins and remote buffer of a struct thread belong to its
 * thread alone. hak__heaps_lock (rank HEAPS) guards the lists and who draws from which heap.
 * Neither struct is ever freed: reading one needs no lock.
 */
#ifndef HAK_HEAP_HEAP_H
#define HAK_HEAP_HEAP_H

#include "cache/cache.h"
#include "core/gate.h"
#include "hakmem/hakmem.h"
#include "large/span.h"

struct heap {
    struct slab_set slabs;
    struct lock lock;
    struct span_cache spans;
    uint32_t id;
    uint32_t threads_count; /* that draw from it; written under HEAPS, read relaxed by reports */
    struct heap *next;      /* of all heaps; constant once listed */
};

struct thread {
    struct heap *heap;          /* NULL while parked; written under HEAPS */
    struct thread *next;        /* of all; constant once listed */
    struct thread *next_parked; /* under HEAPS */
    uint32_t ticked_ms;         /* of the last tick */
    uint32_t trimmed_ms;        /* of the last that trimmed */
    uint32_t operations;        /* slow ones since the last tick */
    uint32_t batches;           /* remote batches sent, wraps */
    uint32_t interval;          /* bytes from one look of malloc's to the next */
    uint32_t eager_looks;       /* mallocs left that each look */
    uint32_t freed_much;        /* superslab_freed_much() as last seen */
    uint32_t waits;             /* for its heap's lock, since waits_ms */
    uint32_t waits_ms;
    uint32_t epoch;     /* the process it was last used in; of another: its thread is gone */
    struct cache cache; /* last: its end is seldom touched */
};

/* This thread's struct, or one of the two that nobody owns anything in: before the thread's first
 * slow operation and after its end. Both have empty bins and a key that matches nothing, so the
 * fast paths need no test. Nobody writes to them: they cost a process no page of its own. */
HAK_HIDDEN extern HAK_TLS struct thread *hak__thread;
HAK_HIDDEN extern const struct thread hak__thread_none;
HAK_HIDDEN extern const struct thread hak__thread_ended;

/* start.c. Reads the machine and the options, chooses the window, once. False: not possible now (no
 * memory); may be tried again. Any thread, no lock held. */
HAK_HIDDEN bool hak__start(void);
/* Reads the options; the constructor's part. What came before it (the loader allocates) started
 * without an environment, and a program that never allocates pays for no more than this. */
HAK_HIDDEN void hak__start_read_options(char *const *environment);
/* The pthread key whose destructor ends threads could be had. */
HAK_HIDDEN bool hak__start_has_key(void);
/* Has the key's destructor called with `thread` when this thread ends. False: it will not be. */
HAK_HIDDEN bool hak__start_watch_thread(struct thread *thread);

/* thread.c. Begins a slow operation: this thread's struct with its heap's lock taken; a borrowed
 * one for a thread that has ended. NULL: no memory, or refused (core/gate.h). */
HAK_HIDDEN struct thread *hak__thread_enter(void);
/* The same, without a call where the thread has a struct already. */
HAK_INLINE struct thread *thread_enter(void)
{
    struct thread *thread = hak__thread;
    if (HAK_UNLIKELY(thread->cache.key == CACHE_KEY_NONE)) {
        return hak__thread_enter();
    }
    return gate_lock(&thread->heap->lock) ? thread : NULL;
}
/* The same to return a full bin, and counts how often it has to wait; false: refused. Waits of an
 * allocation are not counted: a thread that only allocates, and moves, leaves a heap of objects
 * behind that nobody allocates from (docs/decisions/0021). */
HAK_INLINE bool thread_lock_heap(struct thread *thread)
{
    struct lock *lock = &thread->heap->lock;
    if (!gate_begin()) {
        return false;
    }
    if (HAK_LIKELY(lock_try(lock))) {
        return true;
    }
    thread->waits++;
    return gate_finish(lock);
}
/* Ends it: releases the lock, and counts the operation. No other lock held. */
HAK_HIDDEN void hak__thread_leave(struct thread *thread);
/* Its two parts. */
HAK_INLINE void thread_unlock(struct thread *thread)
{
    lock_release(&thread->heap->lock);
    gate_end();
}
HAK_HIDDEN void hak__thread_left(struct thread *thread);
/* This thread's struct without the lock, for the remote buffer. NULL: it has none and can have
 * none now. */
HAK_HIDDEN struct thread *hak__thread_current(void);
/* The key's destructor: the calling thread ends, whatever the value is. */
HAK_HIDDEN void hak__thread_end(void *value);
/* It draws from another heap from now on, if one can be had. No lock held. */
HAK_HIDDEN void hak__thread_move(struct thread *thread);
/* A thread struct that draws from a heap: a parked one or a new one. NULL: no memory. */
HAK_HIDDEN struct thread *hak__thread_adopt(void);
/* All that this thread, or one that no thread uses, has cached goes to the slabs. No lock held. */
HAK_HIDDEN void hak__thread_flush(struct thread *thread);
/* Flushes and parks one that no thread uses. */
HAK_HIDDEN void hak__thread_park(struct thread *thread);
/* First of all; follow `next`. Any thread. */
HAK_HIDDEN struct thread *hak__thread_first(void);
/* A thread of this process works with it. Any thread; a hint but for the thread itself. */
HAK_HIDDEN bool hak__thread_is_used(const struct thread *thread);
/* In fork's child: every other thread is gone, and what its cache holds with it. */
HAK_HIDDEN void hak__thread_abandon_others(struct thread *own);

/* heap.c */
HAK_HIDDEN extern struct lock hak__heaps_lock;
/* A heap for one thread more, of at most `heaps_max`. NULL: no memory. */
HAK_HIDDEN struct heap *hak__heap_join(uint32_t heaps_max);
/* A thread in a crowd could have one that no other draws from. */
HAK_HIDDEN bool hak__heap_is_to_spare(void);
/* Its thread draws from it no more. */
HAK_HIDDEN void hak__heap_part(struct heap *heap);
/* In fork's child: only this thread is left; NULL: it draws from none. */
HAK_HIDDEN void hak__heap_part_all_but(const struct heap *own);
/* First of all heaps; follow `next`. Any thread. */
HAK_HIDDEN struct heap *hak__heap_first(void);

/* metadata.c. Zeroed memory at a cache line, never freed; NULL: none. No lock held. */
HAK_HIDDEN void *hak__metadata_allocate(size_t size);
HAK_HIDDEN size_t hak__metadata_bytes(void);

HAK_INLINE struct heap *heap_of_slabs(struct slab_set *slabs)
{
    return (struct heap *)(void *)((unsigned char *)slabs - offsetof(struct heap, slabs));
}

/* heartbeat.c. For this thread's struct, no lock held; each may tick. After a slow operation: */
HAK_HIDDEN void hak__thread_count_operation(struct thread *thread);
/* After a remote batch was sent: */
HAK_HIDDEN void hak__thread_count_batch(struct thread *thread);
/* The countdown of malloc's fast path is below zero, at a request for `size` bytes: sets it anew.
 */
HAK_HIDDEN void hak__thread_countdown_ended(struct thread *thread, size_t size);

/* collect.c. What others may do to any heap: take its notifications and free objects, give back its
 * kept spans. */
HAK_HIDDEN void hak__heap_collect(struct heap *heap, bool everything);
/* Up to `most` free objects of the class from another heap than `own`; count 0: none was found. No
 * lock held. */
HAK_HIDDEN struct object_list hak__heap_borrow(const struct heap *own, uint32_t class_index,
                                               uint32_t most);
/* Drains for the owner that `thread` (this one's) found lagging. Inside the gate, no lock held. */
HAK_HIDDEN HAK_COLD void hak__heap_help(struct thread *thread);
/* Sends the remote batches of `thread` (this one's), trims its bins and purges what is due, by the
 * clock. No lock held. */
HAK_HIDDEN void hak__heap_tick(struct thread *thread);
/* Milliseconds from one tick of a thread to the next. */
HAK_HIDDEN uint32_t hak__heap_tick_period_ms(void);
/* What ticks do for all heaps, for a program that has none now because it idles. Begins at the
 * gate, by any thread. */
HAK_HIDDEN void hak__heap_scavenge(void);
/* While tasks wait for memory, free memory goes back after LIMIT_DELAY_MS. */
HAK_HIDDEN void hak__heap_set_pressed(bool pressed);
/* Everything that is free goes back to the OS now; returns bytes. With `unmap` also the addresses.
 * Begins at the gate: 0 when refused. */
HAK_HIDDEN size_t hak__heap_reclaim(bool unmap);

/* limit.c. `soft` and `hard` in bytes mapped, UINT64_MAX: none. Any thread, no lock held. */
HAK_HIDDEN void hak__limit_set(uint64_t soft, uint64_t hard, hak_limit_function *callback,
                               void *argument);
/* More than `soft` is mapped. */
HAK_HIDDEN bool hak__limit_is_exceeded(void);
/* Calls the callback if that is new. By a thread of the program, no lock held. */
HAK_HIDDEN void hak__limit_notice(void);

/* fork.c: pthread_atfork handlers. */
HAK_HIDDEN void hak__fork_prepare(void);
HAK_HIDDEN void hak__fork_parent(void);
HAK_HIDDEN void hak__fork_child(void);

#endif
