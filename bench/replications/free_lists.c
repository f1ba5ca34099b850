/* SPDX-License-Identifier: MIT */
/* free_lists.c: a heap's frees go to a list of its owner's, or all to one list of atomics.
 *
 * Imitates: threads with a heap each that replace the objects of random slots, as larson does.
 * Every HANDOVER-th step puts the object into a mailbox and takes what another thread left there,
 * so that it is freed by another thread than its owner. The variants:
 *
 *   owned   the owner's frees and mallocs are plain stores; others push on a second list, which
 *           the owner takes whole when its own is empty
 *   atomic  one list for all: every free and every malloc is a compare-and-swap
 *
 * Does not show: size classes, batches of remote frees, memory that goes back.
 *
 * Concurrency: only the owner pops, so a head that it has read cannot leave the list and come back
 * (no ABA), and the `next` of that head does not change. Pushes release, pops acquire. Mailboxes
 * are exchanged with acquire and release.
 */
#include "replication.h"

enum { ITER, SLOTS, HANDOVER, THREADS, SEED, VARIANT, ARGUMENT_COUNT };
enum { OWNED, ATOMIC };

#define OBJECT_SIZE 64
#define MAILBOXES 64

static const char *const variants[] = {"owned", "atomic", NULL};
static struct bench_argument arguments[ARGUMENT_COUNT] = {
    [ITER] = REPLICATION_ITER(5000000, 500000),
    [SLOTS] = REPLICATION_SLOTS(1000, 100),
    [HANDOVER] = {.name = "HANDOVER",
                  .meaning = "a step in so many hands its object over; 0: none",
                  .value = 0,
                  .value_smoke = 8,
                  .min = 0,
                  .max = 1000000},
    [THREADS] = REPLICATION_THREADS,
    [SEED] = REPLICATION_SEED,
    [VARIANT] = REPLICATION_VARIANT_OF(variants),
};
REPLICATION_WORKLOAD("free_lists",
                     "Replaces objects on lists of their owner's, or on lists of atomics.");

struct heap {
    struct object *free; /* the owner's */
    struct object **slots;
    struct memory memory;
    struct object *_Atomic shared_free __attribute__((aligned(BENCH_LINE))); /* any thread pushes */
} __attribute__((aligned(BENCH_LINE)));

static struct heap heaps[64];
static struct {
    struct object *_Atomic shared_object __attribute__((aligned(BENCH_LINE)));
} mailboxes[MAILBOXES];

BENCH_INLINE void shared_push(struct heap *heap, struct object *object)
{
    struct object *head = atomic_load_explicit(&heap->shared_free, memory_order_relaxed);
    do {
        object->next = head;
    } while (!atomic_compare_exchange_weak_explicit(&heap->shared_free, &head, object,
                                                    memory_order_release, memory_order_relaxed));
}

/* By the owner only. */
BENCH_INLINE struct object *shared_pop(struct heap *heap)
{
    struct object *head = atomic_load_explicit(&heap->shared_free, memory_order_acquire);
    while (head != NULL &&
           !atomic_compare_exchange_weak_explicit(&heap->shared_free, &head, head->next,
                                                  memory_order_acquire, memory_order_acquire)) {
    }
    return head;
}

static __attribute__((noinline)) struct object *heap_carve(struct heap *heap)
{
    struct object *object = replication_carve(&heap->memory, OBJECT_SIZE);
    object->home = heap;
    return object;
}

BENCH_INLINE struct object *heap_take(uint64_t variant, struct heap *heap, bool is_checked)
{
    struct object *object;
    if (variant == ATOMIC) {
        object = shared_pop(heap);
    } else {
        if (__builtin_expect(heap->free == NULL, 0)) {
            heap->free = atomic_exchange_explicit(&heap->shared_free, NULL, memory_order_acquire);
        }
        object = heap->free;
        heap->free = object != NULL ? object->next : NULL;
    }
    object = object != NULL ? object : heap_carve(heap);
    replication_taken(is_checked, object);
    return object;
}

BENCH_INLINE void heap_free(uint64_t variant, struct heap *heap, struct object *object,
                            bool is_checked)
{
    replication_freed(is_checked, object);
    if (variant == ATOMIC || object->home != heap) {
        shared_push(object->home, object);
    } else {
        object->next = heap->free;
        heap->free = object;
    }
}

static void heap_prepare(struct bench_thread *thread)
{
    struct heap *heap = &heaps[thread->index];
    heap->slots = bench_map(arguments[SLOTS].value * sizeof(struct object *));
    for (uint64_t i = 0; i < arguments[SLOTS].value; i++) {
        heap->slots[i] = heap_take(arguments[VARIANT].value, heap, flags[0].is_set);
    }
    thread->data = heap;
}

BENCH_INLINE void heap_run(struct bench_thread *thread, uint64_t variant, bool is_checked)
{
    struct heap *heap = thread->data;
    uint32_t slot_count = (uint32_t)arguments[SLOTS].value;
    uint64_t handover = arguments[HANDOVER].value;
    uint64_t countdown = handover;
    uint32_t state = thread->seed;
    for (uint64_t step = 0; step < arguments[ITER].value; step++) {
        struct object **slot = &heap->slots[bench_random_below(&state, slot_count)];
        if (*slot != NULL) { /* the mailbox was empty */
            heap_free(variant, heap, *slot, is_checked);
        }
        *slot = heap_take(variant, heap, is_checked);
        if (handover != 0 && --countdown == 0) {
            countdown = handover;
            *slot = atomic_exchange_explicit(
                &mailboxes[bench_random_below(&state, MAILBOXES)].shared_object, *slot,
                memory_order_acq_rel);
        }
    }
    thread->operations = 2 * arguments[ITER].value;
}

static void heap_measure(struct bench_thread *thread)
{
    if (flags[0].is_set) {
        heap_run(thread, arguments[VARIANT].value, true);
    } else if (arguments[VARIANT].value == OWNED) {
        heap_run(thread, OWNED, false);
    } else {
        heap_run(thread, ATOMIC, false);
    }
}

static void heap_drain(struct bench_thread *thread)
{
    struct heap *heap = thread->data;
    for (uint64_t i = 0; i < arguments[SLOTS].value; i++) {
        if (heap->slots[i] != NULL) {
            heap_free(arguments[VARIANT].value, heap, heap->slots[i], flags[0].is_set);
        }
    }
}

/* After the threads' ends: every object is in a list or a mailbox. */
static void heaps_check(void)
{
    uint64_t found = 0;
    uint64_t carved = 0;
    for (size_t i = 0; i < 64; i++) {
        uint64_t of_heap = heaps[i].memory.carved;
        found += replication_length(heaps[i].free, of_heap);
        found += replication_length(atomic_load(&heaps[i].shared_free), of_heap);
        carved += of_heap;
    }
    for (size_t i = 0; i < MAILBOXES; i++) {
        found += atomic_load(&mailboxes[i].shared_object) != NULL;
    }
    replication_expect_all(flags[0].is_set, found, carved);
}

int main(int argc, char **argv)
{
    static const struct bench_phases phases = {heap_prepare, heap_measure, heap_drain};
    replication_start(&workload, &arguments[VARIANT], argc, argv);
    bench_run(&phases);
    heaps_check();
    bench_report();
    return 0;
}
