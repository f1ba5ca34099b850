/* SPDX-License-Identifier: MIT */
/* stress.c: rounds of threads that build trees and arrays of random sizes, and pass some on.
 *
 * Imitates: a server under load, in phases. In each of ROUNDS rounds THREADS threads start, with
 * unequal amounts of work; each has SLOTS slots and takes STEPS steps: what a random slot holds is
 * freed, or, once in four, exchanged for what another thread left in a place all share; then a new
 * item comes into the slot. An item is a tree of up to six levels of nodes of 32 to 159 bytes (one
 * in four), else an array of 32 bytes and up: each power of two half as frequent as the one before,
 * to 128 KiB, and one in a thousand of 1 MiB. At the end of a round each thread frees a half of its
 * items, leaves the rest to its successor in the next round and ends. Each block carries its size,
 * a mark made of it, and its last byte; all are checked before it is freed. After the description
 * of `mstress` in the README of mimalloc-bench (D. Leijen): threads with unequal work, all
 * destroyed after each phase, objects that migrate between threads or survive phases.
 *
 * Does not show: one thing at a time; it is for peak RSS, for mistakes (the checks) and for the
 * whole under load, and a difference in time must be explained by other workloads. What is
 * exchanged depends on how threads are scheduled, so that operations differ a little between runs.
 */
#include "harness.h"

#include <stdatomic.h>

enum { ROUNDS, STEPS, SLOTS, SEED, THREADS, ARGUMENT_COUNT };

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_COUNT(ROUNDS, "times that all threads start and end", 6, 4, 1, UINT64_C(1000000000)),
    BENCH_COUNT(STEPS, "items a thread makes in a round", 20000, 500, 8, UINT64_C(1000000000)),
    BENCH_COUNT(SLOTS, "items a thread holds", 10000, 200, 1, 100000000),
    BENCH_SEED,
    BENCH_COUNT(THREADS, "threads of a round", 8, 8, 1, BENCH_THREADS_MAX),
};

BENCH_WORKLOAD("stress", "Rounds of threads that build trees and arrays, exchange some, and end.");

enum {
    TREE_LEVELS = 6,
    CHILDREN_MAX = 3,
    NODE_MIN = 32, /* room for the head and a last byte of its own */
    NODE_RANGE = 128,
    ARRAY_POWER_MAX = 12,
    HUGE_SIZE = 1 << 20,
    PLACE_COUNT = 1024 /* where items wait for another thread */
};

/* The head of every block. */
struct node {
    uint32_t size;
    uint32_t mark;
    struct node *child; /* the first of them */
    struct node *sibling;
};

struct lane {
    struct bench_thread *record;
    struct node **slots;
    uint32_t random;
    uint64_t operations;
} __attribute__((aligned(BENCH_LINE)));

/* Exchanged with acquire and release: who takes an item sees what its maker wrote. */
static _Atomic(struct node *) shared_places[PLACE_COUNT];

static uint32_t mark_make(uint32_t size)
{
    return size * UINT32_C(0x9E3779B9) ^ UINT32_C(0x5bd1e995);
}

static struct node *node_new(struct lane *lane, uint32_t size)
{
    struct node *node = bench_malloc(lane->record->latency, size);
    *node = (struct node){.size = size, .mark = mark_make(size)};
    ((unsigned char *)node)[size - 1] = (unsigned char)node->mark;
    lane->operations++;
    return node;
}

/* The node and all below it. */
static void tree_free(struct lane *lane, struct node *node)
{
    struct node *child = node->child;
    if (node->mark != mark_make(node->size) ||
        ((unsigned char *)node)[node->size - 1] != (unsigned char)node->mark) {
        bench_fail_run("a block was overwritten while it was live.");
    }
    while (child != NULL) {
        struct node *sibling = child->sibling;
        tree_free(lane, child);
        child = sibling;
    }
    bench_free(lane->record->latency, node);
    lane->operations++;
}

static struct node *tree_new(struct lane *lane, int level_count)
{
    struct node *node = node_new(lane, NODE_MIN + bench_random_below(&lane->random, NODE_RANGE));
    uint32_t child_count =
        level_count == 1 ? 0 : bench_random_below(&lane->random, CHILDREN_MAX + 1);
    for (uint32_t i = 0; i < child_count; i++) {
        struct node *child = tree_new(lane, level_count - 1);
        child->sibling = node->child;
        node->child = child;
    }
    return node;
}

static struct node *item_new(struct lane *lane)
{
    uint32_t r = bench_random(&lane->random);
    int power = __builtin_ctz(bench_random(&lane->random)); /* each half as frequent */
    uint32_t size = (uint32_t)NODE_MIN << (power < ARRAY_POWER_MAX ? power : ARRAY_POWER_MAX);
    if (r % 4 == 0) {
        return tree_new(lane, TREE_LEVELS);
    }
    return node_new(lane, r % 1000 == 1 ? HUGE_SIZE : size);
}

static void slot_renew(struct lane *lane, struct node **slot)
{
    struct node *old = *slot;
    if (old != NULL && bench_random_below(&lane->random, 4) == 0) {
        uint32_t place = bench_random_below(&lane->random, PLACE_COUNT);
        old = atomic_exchange_explicit(&shared_places[place], old, memory_order_acq_rel);
    }
    if (old != NULL) {
        tree_free(lane, old);
    }
    *slot = item_new(lane);
}

/* One thread's life: a round. */
static void *lane_round(void *argument)
{
    struct lane *lane = argument;
    uint64_t slot_count = arguments[SLOTS].value;
    uint64_t step_count = arguments[STEPS].value;
    step_count -= step_count / 8 * (lane->record->index % 4); /* all, 7/8, 6/8, 5/8 of it */
    for (uint64_t step = 0; step < step_count; step++) {
        slot_renew(lane, &lane->slots[bench_random_below(&lane->random, (uint32_t)slot_count)]);
    }
    for (uint64_t i = 0; i < slot_count; i++) {
        if (lane->slots[i] != NULL && bench_random_below(&lane->random, 2) == 0) {
            tree_free(lane, lane->slots[i]);
            lane->slots[i] = NULL;
        }
    }
    return NULL;
}

static void rounds_run(struct lane *lanes, struct bench_thread *records)
{
    unsigned count = bench_thread_count();
    bench_interval_open();
    records[0].start_ns = bench_now_ns();
    for (uint64_t round = 0; round < arguments[ROUNDS].value; round++) {
        for (unsigned i = 0; i < count; i++) {
            records[i].handle = bench_thread_create(lane_round, &lanes[i]);
        }
        for (unsigned i = 0; i < count; i++) {
            (void)pthread_join(records[i].handle, NULL);
        }
    }
    for (unsigned i = 0; i < count; i++) {
        records[i].start_ns = records[0].start_ns;
        records[i].end_ns = bench_now_ns();
        records[i].operations = lanes[i].operations;
    }
    bench_interval_close();
}

static void items_drain(struct lane *lanes)
{
    struct bench_thread unmeasured = {.latency = NULL};
    for (unsigned i = 0; i < bench_thread_count(); i++) {
        lanes[i].record = &unmeasured;
        for (uint64_t j = 0; j < arguments[SLOTS].value; j++) {
            if (lanes[i].slots[j] != NULL) {
                tree_free(&lanes[i], lanes[i].slots[j]);
            }
        }
    }
    for (size_t i = 0; i < PLACE_COUNT; i++) {
        struct node *item = atomic_load_explicit(&shared_places[i], memory_order_relaxed);
        if (item != NULL) {
            tree_free(&lanes[0], item);
        }
    }
}

int main(int argc, char **argv)
{
    struct bench_thread *records;
    struct lane *lanes;
    bench_start(&workload, argc, argv);
    records = bench_threads_reset();
    lanes = bench_map(bench_thread_count() * sizeof *lanes);
    for (unsigned i = 0; i < bench_thread_count(); i++) {
        lanes[i] = (struct lane){.record = &records[i], .random = records[i].seed};
        lanes[i].slots = bench_map(arguments[SLOTS].value * sizeof(struct node *));
    }
    rounds_run(lanes, records);
    items_drain(lanes);
    bench_report();
    return 0;
}
