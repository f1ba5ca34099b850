/* SPDX-License-Identifier: MIT */
/* small_objects.c: a graph of small objects is built, walked and torn down, again and again. The
 * workload of this name of hakmem's predecessor.
 *
 * Imitates: what an interpreter, a compiler's front end or a request handler in an object-oriented
 * language does: each round makes OBJECTS objects of 24 to 96 bytes (three quarters of them
 * 24 to 48), links each below a random earlier one, then visits the tree from the root, depth
 * first, and frees every object when its children are noted. Freeing thus follows the links, not
 * the order of allocation. An object is two operations.
 *
 * Does not show: objects that outlive a round, growth of single objects. Following links costs
 * cache misses, fewer with an allocator that puts objects made together beside each other: that is
 * the point. Threads (--threads N) share nothing.
 */
#include "harness.h"

enum { ROUNDS, OBJECTS, SEED, ARGUMENT_COUNT };

struct object {
    struct object *child;
    struct object *sibling;
    uint64_t value;
};

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_COUNT(ROUNDS, "trees of each thread", 1500, 30, 1, UINT64_C(1000000000)),
    BENCH_COUNT(OBJECTS, "objects of a tree", 10000, 2000, 1, 100000000),
    BENCH_SEED,
};

BENCH_WORKLOAD("small_objects",
               "Builds trees of objects of 24 to 96 bytes, frees them along their links.");

static void table_map(struct bench_thread *thread)
{
    thread->data = bench_map(arguments[OBJECTS].value * sizeof(struct object *));
}

BENCH_INLINE struct object *object_new(uint32_t *state, struct bench_latency *latency)
{
    static const unsigned char sizes[8] = {24, 24, 32, 32, 40, 48, 64, 96};
    uint32_t r = bench_random(state);
    struct object *object = bench_malloc(latency, sizes[r >> 29]);
    *object = (struct object){.value = r};
    return object;
}

/* The sum of the values. `objects` then holds all of them in order of birth, the root first. */
BENCH_INLINE uint64_t tree_build(struct object **objects, uint32_t object_count, uint32_t *state,
                                 struct bench_latency *latency)
{
    uint64_t sum;
    objects[0] = object_new(state, latency);
    sum = objects[0]->value;
    for (uint32_t i = 1; i < object_count; i++) {
        struct object *object = object_new(state, latency);
        struct object *parent = objects[bench_random_below(state, i)];
        object->sibling = parent->child;
        parent->child = object;
        objects[i] = object;
        sum += object->value;
    }
    return sum;
}

/* The sum again, read from the objects. The table is no longer needed but for the root and becomes
 * the stack: each object is on it once at most. */
BENCH_INLINE uint64_t tree_free(struct object **stack, struct bench_latency *latency)
{
    uint64_t sum = 0;
    size_t count = 1;
    while (count != 0) {
        struct object *object = stack[--count];
        for (struct object *child = object->child; child != NULL; child = child->sibling) {
            stack[count++] = child;
        }
        sum += object->value;
        bench_free(latency, object);
    }
    return sum;
}

BENCH_INLINE void trees_run(struct bench_thread *thread, struct bench_latency *latency)
{
    struct object **objects = thread->data;
    uint64_t round_count = arguments[ROUNDS].value;
    uint32_t object_count = (uint32_t)arguments[OBJECTS].value;
    uint32_t state = thread->seed;
    for (uint64_t round = 0; round < round_count; round++) {
        uint64_t sum = tree_build(objects, object_count, &state, latency);
        if (tree_free(objects, latency) != sum) {
            bench_fail_run("an object has lost its contents or its place in the tree.");
        }
    }
    thread->operations = 2 * round_count * object_count;
}

BENCH_MEASURE(trees_measure, trees_run)

BENCH_MAIN(table_map, trees_measure, NULL)
