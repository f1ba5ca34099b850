/* SPDX-License-Identifier: MIT */
/* heaps.h: what the tests of heap/ share. */
#ifndef TESTS_UNIT_HEAPS_H
#define TESTS_UNIT_HEAPS_H

#include "unit.h"

static inline bool is_held(const struct lock *lock)
{
    return __atomic_load_n(&lock->shared_state, __ATOMIC_RELAXED) != 0;
}

static inline size_t heaps_count(void)
{
    size_t count = 0;
    for (const struct heap *heap = hak__heap_first(); heap != NULL; heap = heap->next) {
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
    REQUIRE(thread->heap != NULL && thread->cache.slabs == &thread->heap->slabs);
    REQUIRE(thread->cache.key == thread->heap->slabs.key);
    REQUIRE(__atomic_load_n(&thread->heap->threads_count, __ATOMIC_RELAXED) >= 1);
    return thread;
}

static inline void *thread_allocate(struct thread *thread, uint32_t class_index)
{
    lock_acquire(&thread->heap->lock);
    void *object = unit_cache_allocate(&thread->cache, class_index);
    lock_release(&thread->heap->lock);
    REQUIRE(object != NULL);
    return object;
}

static inline void thread_free(struct thread *thread, uint32_t class_index, void *object)
{
    lock_acquire(&thread->heap->lock);
    unit_cache_free(&thread->cache, class_index, object);
    lock_release(&thread->heap->lock);
}

/* A span that is freed and kept. */
static inline void keep_a_span(struct thread *thread)
{
    struct heap *heap = thread->heap;
    struct counters *counters = &thread->cache.counters;
    lock_acquire(&heap->lock);
    struct span span = hak__span_allocate(&heap->spans, counters, MIB, SLICE_SIZE);
    REQUIRE(span.pointer != NULL);
    hak__span_free(&heap->spans, counters, window_slice_of(span.pointer));
    lock_release(&heap->lock);
}

/* cmocka group setup: every thread has a heap of its own. */
static inline int start_with_many_heaps(void **state)
{
    int result = unit_start(state);
    hak__knobs.heaps_max = hak__knobs.heaps_crowded_max = HEAP_ID_MAX;
    return result;
}

/* In a program in which there is no heap yet: that many, and not one more. */
static inline void start_sharing(uint32_t heaps_max)
{
    REQUIRE(unit_start(NULL) == 0 && hak__heap_first() == NULL);
    hak__knobs.heaps_max = hak__knobs.heaps_crowded_max = heaps_max;
}

/* The threads of all heaps are `joined`, and no heap has two more than another. Nobody draws from
 * those that fork's child has from its parent. */
static inline void require_even(size_t joined)
{
    size_t sum = 0, least = SIZE_MAX, most = 0;
    for (const struct heap *heap = hak__heap_first(); heap != NULL; heap = heap->next) {
        size_t count = heap->threads_count;
        if (heap_is_inherited(heap)) {
            REQUIRE_SIZE(count, ==, 0);
            continue;
        }
        sum += count;
        least = count < least ? count : least;
        most = count > most ? count : most;
    }
    REQUIRE_SIZE(sum, ==, joined);
    REQUIRE(sum == 0 || most <= least + 1);
}

#endif
