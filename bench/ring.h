/* SPDX-License-Identifier: MIT */
/* ring.h: a bounded queue from one thread to one other, for workloads whose threads pass objects
 * on. After L. Lamport, "Proving the correctness of multiprocess programs", 1977.
 *
 *   slots   [ ][ ][o][o][o][ ]      head: the oldest, tail: where the next goes
 *                 head     tail     head == tail: empty; tail + 1 == head: full
 *
 * Each side keeps the last index it saw of the other, so the line of the other is read only when
 * the queue looks full or empty. Nothing is allocated but by ring_open (bench_map).
 */
#ifndef BENCH_RING_H
#define BENCH_RING_H

#include "harness.h"

#include <stdatomic.h>

struct ring {
    void **slots;
    uint32_t slot_count; /* one stays free */
    /* The producer's line. */
    _Atomic uint32_t shared_tail __attribute__((aligned(BENCH_LINE)));
    uint32_t head_seen;
    /* The consumer's line. */
    _Atomic uint32_t shared_head __attribute__((aligned(BENCH_LINE)));
    uint32_t tail_seen;
};

static inline void ring_open(struct ring *ring, uint32_t capacity)
{
    ring->slots = bench_map(((size_t)capacity + 1) * sizeof *ring->slots);
    ring->slot_count = capacity + 1;
}

/* False if the queue is full. The producer's. */
BENCH_INLINE bool ring_push(struct ring *ring, void *object)
{
    uint32_t tail = atomic_load_explicit(&ring->shared_tail, memory_order_relaxed); /* own */
    uint32_t next = tail + 1 == ring->slot_count ? 0 : tail + 1;
    if (next == ring->head_seen) {
        /* Acquire, with the release of ring_pop: the slot has been read. */
        ring->head_seen = atomic_load_explicit(&ring->shared_head, memory_order_acquire);
        if (next == ring->head_seen) {
            return false;
        }
    }
    ring->slots[tail] = object;
    atomic_store_explicit(&ring->shared_tail, next, memory_order_release); /* with ring_pop */
    return true;
}

/* NULL if the queue is empty. The consumer's. */
BENCH_INLINE void *ring_pop(struct ring *ring)
{
    uint32_t head = atomic_load_explicit(&ring->shared_head, memory_order_relaxed); /* own */
    void *object;
    if (head == ring->tail_seen) {
        /* Acquire, with the release of ring_push: slot and object have been written. */
        ring->tail_seen = atomic_load_explicit(&ring->shared_tail, memory_order_acquire);
        if (head == ring->tail_seen) {
            return NULL;
        }
    }
    object = ring->slots[head];
    head = head + 1 == ring->slot_count ? 0 : head + 1;
    atomic_store_explicit(&ring->shared_head, head, memory_order_release); /* with ring_push */
    return object;
}

#endif
