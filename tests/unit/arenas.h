/* SPDX-License-Identifier: MIT */
/* arenas.h: what the tests of arena/ share. */
#ifndef TESTS_UNIT_ARENAS_H
#define TESTS_UNIT_ARENAS_H

#include "unit.h"

static inline bool is_held(const struct lock *lock)
{
    return __atomic_load_n(&lock->shared_state, __ATOMIC_RELAXED) != 0;
}

static inline size_t arenas_count(void)
{
    size_t count = 0;
    for (const struct arena *arena = hak__arena_first(); arena != NULL; arena = arena->next) {
        count++;
    }
    return count;
}

static inline size_t threads_count(void)
{
    size_t count = 0;
    for (const struct thread *thread = hak__thread_first(); thread != NULL; thread = thread->next) {
        count++;
    }
    return count;
}

static inline struct thread *adopt(void)
{
    struct thread *thread = hak__thread_adopt();
    REQUIRE(thread != NULL);
    REQUIRE(thread->arena != NULL && thread->cache.slabs == &thread->arena->slabs);
    REQUIRE(thread->cache.key == thread->arena->slabs.key);
    REQUIRE(__atomic_load_n(&thread->arena->threads_count, __ATOMIC_RELAXED) >= 1);
    return thread;
}

/* As if `thread` were this thread's. */
static inline void count_operation(struct thread *thread)
{
    struct thread *own = hak__thread;
    hak__thread = thread;
    hak__thread_count_operation();
    hak__thread = own;
}

static inline void *thread_allocate(struct thread *thread, uint32_t class_index)
{
    REQUIRE(lock_acquire_soon(&thread->arena->lock));
    void *object = unit_cache_allocate(&thread->cache, class_index);
    lock_release(&thread->arena->lock);
    REQUIRE(object != NULL);
    return object;
}

static inline void thread_free(struct thread *thread, uint32_t class_index, void *object)
{
    REQUIRE(lock_acquire_soon(&thread->arena->lock));
    unit_cache_free(&thread->cache, class_index, object);
    lock_release(&thread->arena->lock);
}

/* A span that is freed and kept. */
static inline void keep_a_span(struct thread *thread)
{
    struct arena *arena = thread->arena;
    struct counters *counters = &thread->cache.counters;
    REQUIRE(lock_acquire_soon(&arena->lock));
    struct span span = hak__span_allocate(&arena->spans, counters, MIB, SLICE_SIZE);
    REQUIRE(span.pointer != NULL);
    hak__span_free(&arena->spans, counters, window_slice_of(span.pointer));
    lock_release(&arena->lock);
}

/* cmocka group setup: every thread has an arena of its own. */
static inline int start_with_many_arenas(void **state)
{
    int result = unit_start(state);
    hak__knobs.arenas_max = hak__knobs.arenas_crowded_max = ARENA_ID_MAX;
    return result;
}

/* In a program in which there is no arena yet: that many, and not one more. */
static inline void start_sharing(uint32_t arenas_max)
{
    REQUIRE(unit_start(NULL) == 0 && hak__arena_first() == NULL);
    hak__knobs.arenas_max = hak__knobs.arenas_crowded_max = arenas_max;
}

/* The threads of all arenas are `joined`, and no arena has two more than another. */
static inline void require_even(size_t joined)
{
    size_t sum = 0, least = SIZE_MAX, most = 0;
    for (const struct arena *arena = hak__arena_first(); arena != NULL; arena = arena->next) {
        size_t count = arena->threads_count;
        sum += count;
        least = count < least ? count : least;
        most = count > most ? count : most;
    }
    REQUIRE_SIZE(sum, ==, joined);
    REQUIRE(sum == 0 || most <= least + 1);
}

#endif
