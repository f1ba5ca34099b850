/* SPDX-License-Identifier: MIT */
/* small_cache.c: an extra cache for the smallest classes in front of a thread's free lists.
 *
 * Imitates: malloc on a thread's free lists, one a size class of 16 bytes. Random slots get a new
 * object of up to SIZE bytes in the place of the old one. The variants:
 *
 *   one_tier   the lists alone
 *   two_tiers  before them, for classes up to 64 bytes, an array of up to 32 pointers a class: a
 *              free fills it first, a malloc empties it first
 *
 * Does not show: an extra cache in front of something slow. Here, as in hakmem, the second tier is
 * a list of the same thread's.
 */
#include "replication.h"

enum { ITER, SIZE, SLOTS, THREADS, SEED, VARIANT, ARGUMENT_COUNT };
enum { ONE_TIER, TWO_TIERS };

#define CLASS_STEP 16
#define SIZE_LIMIT 1024
#define CLASSES (SIZE_LIMIT / CLASS_STEP + 1)
#define FRONT_CLASSES 5 /* sizes to 64 bytes; class 0 is empty */
#define FRONT_MAX 32    /* objects a class: twice as many are half as often full */

static const char *const variants[] = {"one_tier", "two_tiers", NULL};
static struct bench_argument arguments[ARGUMENT_COUNT] = {
    [ITER] = REPLICATION_ITER(10000000, 100000),
    [SIZE] = {.name = "SIZE",
              .meaning = "objects have 16 to so many bytes",
              .value = 64,
              .value_smoke = 128,
              .min = CLASS_STEP,
              .max = SIZE_LIMIT},
    [SLOTS] = REPLICATION_SLOTS(400, 400),
    [THREADS] = REPLICATION_THREADS,
    [SEED] = REPLICATION_SEED,
    [VARIANT] = REPLICATION_VARIANT_OF(variants),
};
REPLICATION_WORKLOAD("small_cache",
                     "Replaces objects on free lists, with or without a small cache before them.");

struct front {
    uint32_t count;
    struct object *objects[FRONT_MAX];
};

struct cache {
    struct object *free[CLASSES];
    struct front fronts[FRONT_CLASSES];
    struct memory memory;
};

static __thread struct cache cache;

static __attribute__((noinline)) struct object *cache_carve(uint32_t size_class)
{
    size_t size = size_class * CLASS_STEP;
    struct object *object =
        replication_carve(&cache.memory, size < sizeof *object ? sizeof *object : size);
    object->size_class = size_class;
    return object;
}

BENCH_INLINE struct object *cache_take(uint64_t variant, uint32_t size, bool is_checked)
{
    uint32_t size_class = (size + CLASS_STEP - 1) / CLASS_STEP;
    struct object *object = NULL;
    if (variant == TWO_TIERS && size_class < FRONT_CLASSES && cache.fronts[size_class].count > 0) {
        struct front *front = &cache.fronts[size_class];
        object = front->objects[--front->count];
    } else {
        object = cache.free[size_class];
        if (__builtin_expect(object == NULL, 0)) {
            object = cache_carve(size_class);
        } else {
            cache.free[size_class] = object->next;
        }
    }
    replication_taken(is_checked, object);
    return object;
}

BENCH_INLINE void cache_free(uint64_t variant, struct object *object, bool is_checked)
{
    uint32_t size_class = object->size_class;
    replication_freed(is_checked, object);
    if (variant == TWO_TIERS && size_class < FRONT_CLASSES &&
        cache.fronts[size_class].count < FRONT_MAX) {
        struct front *front = &cache.fronts[size_class];
        front->objects[front->count++] = object;
    } else {
        object->next = cache.free[size_class];
        cache.free[size_class] = object;
    }
}

BENCH_INLINE uint32_t size_draw(uint32_t *state)
{
    return CLASS_STEP + bench_random_below(state, (uint32_t)arguments[SIZE].value - CLASS_STEP + 1);
}

static void slots_prepare(struct bench_thread *thread)
{
    struct object **slots = bench_map(arguments[SLOTS].value * sizeof(struct object *));
    for (uint64_t i = 0; i < arguments[SLOTS].value; i++) {
        slots[i] = cache_take(arguments[VARIANT].value, size_draw(&thread->seed), flags[0].is_set);
    }
    thread->data = slots;
}

BENCH_INLINE void slots_run(struct bench_thread *thread, uint64_t variant, bool is_checked)
{
    struct object **slots = thread->data;
    uint32_t slot_count = (uint32_t)arguments[SLOTS].value;
    uint32_t state = thread->seed;
    for (uint64_t step = 0; step < arguments[ITER].value; step++) {
        struct object **slot = &slots[bench_random_below(&state, slot_count)];
        cache_free(variant, *slot, is_checked);
        *slot = cache_take(variant, size_draw(&state), is_checked);
    }
    thread->operations = 2 * arguments[ITER].value;
}

static void slots_measure(struct bench_thread *thread)
{
    if (flags[0].is_set) {
        slots_run(thread, arguments[VARIANT].value, true);
    } else if (arguments[VARIANT].value == ONE_TIER) {
        slots_run(thread, ONE_TIER, false);
    } else {
        slots_run(thread, TWO_TIERS, false);
    }
}

static void slots_drain(struct bench_thread *thread)
{
    struct object **slots = thread->data;
    uint64_t found = 0;
    for (uint64_t i = 0; i < arguments[SLOTS].value; i++) {
        cache_free(arguments[VARIANT].value, slots[i], flags[0].is_set);
    }
    for (size_t i = 0; i < CLASSES; i++) {
        found += replication_length(cache.free[i], cache.memory.carved);
    }
    for (size_t i = 0; i < FRONT_CLASSES; i++) {
        found += cache.fronts[i].count;
    }
    replication_expect_all(flags[0].is_set, found, cache.memory.carved);
}

int main(int argc, char **argv)
{
    static const struct bench_phases phases = {slots_prepare, slots_measure, slots_drain};
    replication_start(&workload, &arguments[VARIANT], argc, argv);
    bench_run(&phases);
    bench_report();
    return 0;
}
