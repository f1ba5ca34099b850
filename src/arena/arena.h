/* SPDX-License-Identifier: MIT */
/* arena.h: arenas own slabs, and threads draw objects from arenas.
 *
 *   struct arena    owns slabs and kept spans; one lock for all slow paths on it
 *   struct thread   one thread's cache, which draws from one arena
 *
 * Number: about as many arenas as threads that can run at once (knobs.arenas_max), not one per
 * thread. Each arena keeps a partly used slab for each class it serves, half of it unused on
 * average. And objects that an idle thread has freed are of use only to threads of the same arena
 * (docs/decisions/0015). Up to that number each thread has an arena of its own. Threads that often
 * wait for their arena's lock may add more (knobs.arenas_crowded_max).
 *
 * Life: a thread's first slow operation takes a thread struct and joins an arena. That is an arena
 * without threads, else a new one, else one with no more threads than the average. When the thread
 * ends, the objects in its bins go back to their slabs, and objects in use stay where they are: no
 * owner word changes. Arenas and thread structs are never freed, so reading one needs no lock.
 *
 * Fork's child goes on with all arenas and with the structs of the thread that forked. What other
 * threads had cached comes back when a thread of the child takes their struct, or at a trim.
 *
 *   struct thread:  made -> used by a thread <-> parked (used by none)
 *                   parked -> borrowed -> parked (one operation of a thread that has ended)
 *
 * Locks: an arena's own lock (rank ARENA) is held in every slow path on it, by its threads and by
 * others (collection, borrowing objects, reports, fork). Bins and remote buffer of a struct thread
 * belong to its thread alone. hak__arenas_lock (rank ARENAS) guards both lists, and which thread
 * draws from which arena. */
#ifndef HAK_ARENA_ARENA_H
#define HAK_ARENA_ARENA_H

#include "arena/thread.h"
#include "core/gate.h"
#include "core/knobs.h"
#include "hakmem/hakmem.h"
#include "large/span.h"
#include "region/numa.h"
#include "slab/slab.h"

/* Requests of one class that were seen when the countdown ran out, and the parts of their objects
 * beyond what was asked for, in REQUEST_UNITS of an object: for the estimate of rounding in
 * summaries. If a sum gets large, both are halved. Any thread of the arena writes them without a
 * lock: if two do so at the same moment, one request may be missing. */
#define REQUEST_UNITS 256u
struct request_sums {
    uint16_t count;
    uint16_t unused;
};

/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): the list has a line of its own */
struct arena {
    struct lock lock;
    uint32_t threads_count; /* drawing from it; written under ARENAS, read relaxed by reports */
    /* Hints of hak__arena_borrow; any thread of the arena writes them, without a lock. */
    uint32_t shared_vain;        /* rounds that found nothing, in a row; at most 2 */
    struct arena *shared_lender; /* whom it asks first; NULL: the first arena */
    uint32_t shared_silent;      /* refills that do not ask before the next one does */
    /* Constant once listed. In its own cache line, because walking the list must not disturb the
     * threads of each arena. */
    struct arena *next __attribute__((aligned(HAK_CACHE_LINE))); /* in the list of all arenas */
    uint32_t id;
    /* No thread joins it by itself: it is for long-lived objects or for samples; in the secure form
     * also from before a fork. */
    bool apart;
    uint8_t node; /* of its first thread (region/numa.h) */
    struct slab_set slabs __attribute__((aligned(HAK_CACHE_LINE)));
    /* Small processes do not touch the rest, nor the end of the slab set. */
    struct span_cache spans;
    struct request_sums requests[CLASS_COUNT];
};

/* The start of the first arena shares an OS page with the first thread's struct. */
HAK_STATIC_ASSERT(HAK_SECURE || sizeof(struct thread) + offsetof(struct arena, slabs) +
                                        offsetof(struct slab_set, kept) <=
                                    ARCH_PAGE_SIZE_MIN,
                  "a page holds what a small process touches of both");

/* Notes a request of `size` bytes that got an object of the class. */
HAK_INLINE void arena_note_request(struct arena *arena, uint32_t class_index, size_t size)
{
    struct request_sums *sums = &arena->requests[class_index];
    uint32_t whole = (uint32_t)size_class_bytes(class_index), rest = whole - (uint32_t)size;
    uint32_t count = atomic_load_relaxed(&sums->count) + 1u;
    uint32_t unused = atomic_load_relaxed(&sums->unused);
    unused += (rest * REQUEST_UNITS + whole / 2) / whole;
    uint32_t shift = ((count | unused) >> 15) & 1;
    atomic_store_relaxed(&sums->count, (uint16_t)(count >> shift));
    atomic_store_relaxed(&sums->unused, (uint16_t)(unused >> shift));
}

/* start.c. Starts hakmem, once a process: reads the machine and the options, chooses the window.
 * False: no memory; a later call tries again. Any thread, no lock held. */
HAK_HIDDEN bool hak__start(void);
/* Ends a process that hakmem must not serve. In override/family.c, so not in every library. */
HAK_HIDDEN __attribute__((weak)) void hak__start_refuse(void);
/* Reads the options from `environment`. The constructor calls it: allocations before that (by the
 * loader) may have started hakmem without an environment. A program that never allocates pays for
 * no more than this. */
HAK_HIDDEN void hak__start_read_options(char *const *environment);
/* True if hakmem has its pthread key, whose destructor ends threads. */
HAK_HIDDEN bool hak__start_has_key(void);
/* Makes the end of this thread call the key's destructor. False: it will not be called. */
HAK_HIDDEN bool hak__start_watch_thread(struct thread *thread);

/* thread.c. Begins a slow operation. Returns this thread's struct with its arena's lock held, or a
 * borrowed struct for a thread that has ended. NULL: no memory, or refused (core/gate.h). */
HAK_HIDDEN struct thread *hak__thread_enter(void);
/* For a thread that was refused its arena's lock. If the lock's holder seems to be stopped by a
 * signal (core/lock.h), the thread goes on with another struct, which draws from another arena.
 * Returns that with its arena's lock held. NULL: still refused. */
HAK_HIDDEN HAK_COLD struct thread *hak__thread_escape(struct thread *thread);
/* As hak__thread_enter, without a call if the thread has a struct. */
HAK_INLINE struct thread *thread_enter(void)
{
    struct thread *thread = hak__thread;
    if (HAK_UNLIKELY(thread->cache.key == CACHE_KEY_NONE)) {
        return hak__thread_enter();
    }
    return HAK_LIKELY(gate_lock(&thread->arena->lock)) ? thread : hak__thread_escape(thread);
}
/* Ends a slow operation: releases the arena's lock and counts the operation, which may tick. No
 * other lock held. */
HAK_HIDDEN void hak__thread_leave(struct thread *thread);
/* Begins an operation that returns objects of a full bin, and counts the waits for the lock. False:
 * refused. Allocations do not count waits: a thread that only allocates would move away from the
 * arena that others return its objects to (docs/decisions/0021). */
HAK_INLINE bool thread_lock_arena(struct thread *thread)
{
    struct lock *lock = &thread->arena->lock;
    if (!gate_begin()) {
        return false;
    }
    if (HAK_LIKELY(lock_try(lock))) {
        return true;
    }
    thread->waits++;
    if (HAK_LIKELY(hak__gate_acquire(lock))) {
        return true;
    }
    gate_end();
    struct thread *other = hak__thread_escape(thread); /* its bins are empty: nothing to return */
    if (other != NULL) {
        hak__thread_leave(other);
    }
    return false;
}
/* The first part of hak__thread_leave: releases the lock. */
HAK_INLINE void thread_unlock(struct thread *thread)
{
    lock_release(&thread->arena->lock);
    gate_end();
}
/* The second part: counts the operation, or parks a borrowed struct. */
HAK_HIDDEN void hak__thread_left(struct thread *thread);
/* This thread's struct without a lock, for its remote buffer. Makes one if the thread has not
 * begun. NULL: the thread has ended, or can have no struct now. */
HAK_HIDDEN struct thread *hak__thread_current(void);
/* The key's destructor: ends the calling thread, whatever `value` is. */
HAK_HIDDEN void hak__thread_end(void *value);
/* Lets this thread draw from the arena for long-lived objects, or from its ordinary one again.
 * Stays as it is if there is no memory, during another thread's fork, in a thread that has ended,
 * and at the first turn of a thread in a signal handler that interrupted an operation. No lock
 * held. */
HAK_HIDDEN void hak__thread_turn(bool apart);
/* Lets this thread draw from another arena from now on, if it can have one. No lock held. */
HAK_HIDDEN void hak__thread_move(struct thread *thread);
/* Returns a thread struct, a parked or a new one, that draws from an arena. NULL: no memory. No
 * lock held. */
HAK_HIDDEN struct thread *hak__thread_adopt(void);
/* Returns all cached objects of `thread` to their slabs. It is this thread's struct, or one that no
 * thread uses. False: a stopped thread holds the arena's lock, and nothing was returned. The caller
 * is inside the gate and holds no lock. */
HAK_HIDDEN bool hak__thread_flush(struct thread *thread);
/* Flushes and parks a struct that no thread uses any more. The caller is inside the gate and holds
 * no lock. */
HAK_HIDDEN void hak__thread_park(struct thread *thread);
/* Does what was put off: marks slices free, registers and frees blocks of emergency memory. The
 * caller is inside the gate and holds no lock. False: it was refused in between
 * (hak__emergency_settle), and is no longer inside. */
HAK_HIDDEN bool hak__thread_settle(void);
/* True: there is something to settle. A hint. */
HAK_HIDDEN bool hak__thread_settle_waits(void);
/* The first of all thread structs; follow `next`. Any thread. */
HAK_HIDDEN struct thread *hak__thread_first(void);
/* Forks from the first process to this one; wraps. Any thread. */
HAK_HIDDEN uint32_t hak__thread_epoch(void);
/* Who wants to know of the end of threads, and of fork in the child. `ended` is called outside the
 * gate, when the thread still has its struct; `forked` inside fork, when other threads are gone and
 * the epoch has changed. NULL: nobody. A thread sees at least what it has stored itself. */
struct thread_listener {
    void (*ended)(void);
    void (*forked)(void);
};
HAK_HIDDEN extern const struct thread_listener *hak__thread_listener;
/* True if a thread of this process uses the struct. Any thread; for other threads the answer is a
 * hint. */
HAK_HIDDEN bool hak__thread_is_used(const struct thread *thread);
/* In fork's child: this thread is the only one. No arena's lock is needed. */
HAK_HIDDEN void hak__thread_fork_child(void);
/* In fork's child: returns what threads had cached that are gone, and parks their structs. Inside
 * the gate, no lock held. */
HAK_HIDDEN void hak__thread_settle_gone(void);

/* arena.c. Guards the lists of arenas and threads; rank ARENAS. */
HAK_HIDDEN extern struct lock hak__arenas_lock;
/* Chooses or makes an arena for one more thread, which draws from it now. At most `arenas_max`
 * arenas are made. NULL: no memory. No lock held, inside the gate. If threads have run on several
 * memory nodes, it is an arena of the calling thread's node, unless there may be only one arena.
 * Then at most `arenas_max` arenas have threads, but for a first one of each node. ARENA_ESCAPE: an
 * arena that no stopped thread holds, for a thread that found its own so. Only if all others are
 * held it may be one more than the most. */
#define ARENA_ESCAPE 0u
HAK_HIDDEN struct arena *hak__arena_join(uint32_t arenas_max);
/* The arena for long-lived objects, from which one more thread draws now. Makes it at the first
 * call. NULL: no memory. No lock held. */
HAK_HIDDEN struct arena *hak__arena_join_apart(void);
/* True if there is an arena without threads, or a crowded thread may have a new one. A hint. */
HAK_HIDDEN bool hak__arena_is_to_spare(void);
/* Takes a free object of the class from the arena of samples, which no thread draws from and which
 * lends nothing. So the object never lies in a bin, and free finds its owner word on a slow path.
 * NULL: no memory, or a stopped thread holds the arena's lock. Inside the gate; SAMPLES may be
 * held. */
HAK_HIDDEN void *hak__arena_take_sample(uint32_t class_index);
/* A thread stops drawing from `arena`. The last thread's part also gives back what the arena keeps.
 * No lock held. */
HAK_HIDDEN void hak__arena_part(struct arena *arena);
/* In fork's child: no thread draws from any arena; then one more does. */
HAK_HIDDEN void hak__arena_fork_child(void);
HAK_HIDDEN void hak__arena_add_thread(struct arena *arena);
/* The first of all arenas; follow `next`. Any thread. */
HAK_HIDDEN struct arena *hak__arena_first(void);

/* metadata.c. Returns `size` bytes, less than METADATA_CHUNK_SIZE, of zeroed memory at a cache
 * line. It is never freed. NULL: no memory. No lock held. */
HAK_HIDDEN void *hak__metadata_allocate(size_t size);
/* The same, and sets *far to `far_size` bytes more, in which a process touches little. They lie
 * behind the result, and both in one chunk. */
HAK_HIDDEN void *hak__metadata_allocate_far(size_t size, size_t far_size, void **far);
/* Bytes mapped for such memory. Any thread. */
HAK_HIDDEN size_t hak__metadata_bytes(void);
/* The chunk that was mapped for it before `chunk`; NULL: the newest one. Sets *size to its bytes.
 * NULL: there are no more, as the first one is not among them. Any thread. */
HAK_HIDDEN const void *hak__metadata_before(const void *chunk, size_t *size);

/* The arena whose slab set this is. */
HAK_INLINE struct arena *arena_of_slabs(struct slab_set *slabs)
{
    return (struct arena *)(void *)((unsigned char *)slabs - offsetof(struct arena, slabs));
}

/* thread_bytes.c. Each is for structs that only this thread uses. A thread that begins, or is alone
 * in fork's child, has allocated nothing yet: */
HAK_HIDDEN void hak__thread_bytes_begin(struct thread *thread);
/* `to`, which has just begun, goes on where `from` is: */
HAK_HIDDEN void hak__thread_bytes_hand_on(struct thread *from, struct thread *to);

/* heartbeat.c. Each is for this thread's struct, with no lock held, and may tick. After a slow
 * operation: */
HAK_HIDDEN void hak__thread_count_operation(void);
/* After a remote batch was sent: */
HAK_HIDDEN void hak__thread_count_batch(struct thread *thread);
/* When the countdown of malloc's fast path is below zero, at a request for `size` bytes. Sets a new
 * countdown. Returns the period of the sample if the request is to be sampled, else 0. */
HAK_HIDDEN uint64_t hak__thread_countdown_ended(struct thread *thread, size_t size);

/* sampling.c. */
struct sampling {
    uint64_t period; /* bytes from one sample to the next on average; 0: sampling is off. Relaxed */
    uint32_t epoch;  /* grows with each change; relaxed */
    bool adapts;     /* fast threads sample less often; relaxed */
};
HAK_HIDDEN extern struct sampling hak__sampling;
/* Who wants samples: the process itself, and the tools that look at it (observe/claims.h). */
enum sampling_side { SAMPLING_OWN, SAMPLING_TOOLS };
/* Starts or changes what that side wants; `period` 0: no samples. The shorter period of both sides
 * is in force. Any thread may call it; other threads notice it when they next look at the clock. */
HAK_HIDDEN void hak__sampling_set(enum sampling_side side, uint64_t period, bool adapts);
/* The period that the side wants; 0: no samples. */
HAK_HIDDEN uint64_t hak__sampling_of(enum sampling_side side);
/* True if sampling is on. A hint. */
HAK_INLINE bool sampling_is_on(void)
{
    return HAK_UNLIKELY(atomic_load_relaxed(&hak__sampling.period) != 0);
}
/* Both are for this thread's struct. Starts a countdown of `interval` bytes, or of fewer if the
 * next sample is nearer. */
HAK_HIDDEN void hak__sampling_set_countdown(struct thread *thread, uint32_t interval);
/* Returns the bytes that the thread has allocated since the last call, roughly: those of large
 * requests count only while sampling is on. */
HAK_HIDDEN uint64_t hak__sampling_take_bytes(struct thread *thread);
/* Counts the bytes of the countdown so far, and the `size` bytes of a request that the fast path
 * did not count. Returns the period of the sample, in bytes, if the bytes to the next sample have
 * run out; else 0. */
HAK_HIDDEN uint64_t hak__sampling_count(struct thread *thread, size_t size);

/* True if HAKMEM_GUARD is set. */
HAK_INLINE bool guarding_is_on(void)
{
    return HAK_UNLIKELY(hak__knobs.guard != 0);
}
/* True: the request of `size` bytes, which hak__sampling_count has counted last, is to be guarded.
 */
HAK_HIDDEN bool hak__sampling_guards(struct thread *thread, size_t size);

/* Called at each tick of a thread, inside the gate and without a lock; NULL: nobody listens. Set
 * once. */
typedef void tick_listener(struct thread *thread);
HAK_HIDDEN extern tick_listener *hak__tick_listener;

/* collect.c. Takes the notifications of any arena and gives back its kept spans: those not used
 * since the last time, or all if `everything`. Inside the gate, no lock held. */
HAK_HIDDEN void hak__arena_collect(struct arena *arena, bool everything);
/* The same for an arena whose last thread has left it: everything. But the secure form keeps idle
 * slabs until a purge pass, because each new one takes two system calls. */
HAK_HIDDEN void hak__arena_rest(struct arena *arena);

/* pages.c. Does a part of a pass over slabs in use, of about `bytes`; `begin`: a new pass if none
 * is under way. Inside the gate, no lock held. The last function does a whole pass, and purges
 * free pages whether or not they were in use since the pass before. */
HAK_HIDDEN bool hak__arena_pages_are_under_way(void);
HAK_HIDDEN void hak__arena_pages_part(bool begin, size_t bytes);
HAK_HIDDEN void hak__arena_pages_now(void);
/* Does a part because superslab_has_grown. Inside the gate, no lock held. */
HAK_HIDDEN void hak__arena_pages_grew(void);

/* Returns up to `most` free objects of the class from another arena than `own`; count 0: none was
 * found, or `own` did not ask because it had asked in vain. An arena that has none, but keeps idle
 * slabs, gives some back to the region, where `own` finds them. No lock held. */
HAK_HIDDEN struct object_list hak__arena_borrow(struct arena *own, uint32_t class_index,
                                                uint32_t most);
/* Drains the lagging owner that `thread`, the calling one, has found. Inside an operation, no lock
 * held. */
HAK_HIDDEN HAK_COLD void hak__arena_help(struct thread *thread);
/* A tick of `thread`, the calling one: sends its remote batches, gives back what is kept too long,
 * trims its bins and purges what is due by the clock. Inside the gate, no lock held. */
HAK_HIDDEN void hak__arena_tick(struct thread *thread);
/* The part of a tick that concerns `thread`, the calling one, alone and is not due by the clock:
 * sends its remote batches and gives back spans that were not used again. No lock held. */
HAK_HIDDEN void hak__arena_tidy(struct thread *thread);
/* Gives back at once what is free beyond what the program is expected to use soon
 * (hak__superslab_expected), 1 GiB at most. Does nothing where ticks purge nothing. Inside the
 * gate, where this thread may not be any more at the end; no lock held. */
HAK_HIDDEN void hak__arena_give_back(void);
/* Milliseconds from one tick of a thread to the next: TICK_MS, or less if the purge delay is short
 * or a purge pass is under way. */
HAK_HIDDEN uint32_t hak__arena_tick_period_ms(void);
/* The scavenger's work: what ticks do, for all arenas of a program that idles and so does not tick.
 * Begins at the gate. Any thread, no lock held. */
HAK_HIDDEN void hak__arena_scavenge(void);
/* `pressed`: tasks wait for memory. Until it is set to false, free memory goes back after
 * 10 ms. Any thread. */
HAK_HIDDEN void hak__arena_set_pressed(bool pressed);
/* Gives free memory back to the OS now: this thread's cache, kept spans, freed huge blocks, free
 * slices. With `unmap` it unmaps wholly free superslabs instead of purging free slices, so that
 * their addresses go back. Returns bytes. Begins at the gate: 0 if refused. No lock held. */
HAK_HIDDEN size_t hak__arena_reclaim(bool unmap);

/* limit.c. What to call above the soft limit; function NULL: nothing. */
struct limit_call {
    hak_limit_function *function;
    void *argument;
};
/* Sets the limits on mapped memory, in bytes (UINT64_MAX: none), and the call. What is NULL stays
 * as it is. Waits for the end of a fork. False: this thread is inside an operation, and nothing
 * changes. Any thread, no lock held. */
HAK_HIDDEN bool hak__limit_set(const uint64_t *soft, const uint64_t *hard,
                               const struct limit_call *call);
/* True if more than the soft limit is mapped. Any thread. */
HAK_HIDDEN bool hak__limit_is_exceeded(void);
/* Calls the callback if the soft limit has just been exceeded. A thread of the program, no lock
 * held. */
HAK_HIDDEN void hak__limit_notice(void);

/* fork.c: the handlers of pthread_atfork: before a fork, after it in the parent, after it in the
 * child. */
HAK_HIDDEN void hak__fork_prepare(void);
HAK_HIDDEN void hak__fork_parent(void);
HAK_HIDDEN void hak__fork_child(void);

#endif
