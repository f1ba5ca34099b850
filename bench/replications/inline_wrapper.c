/* SPDX-License-Identifier: MIT */
/* inline_wrapper.c: what stands between the program and the pop of a free object.
 *
 * Imitates: malloc of 16 to 128 bytes on a thread's free lists. Random slots get a new object in
 * the place of the old one. The variants:
 *
 *   call          a call of a function that pops
 *   inline        the pop itself at the call site, a call only when the list is empty
 *   tests_inline  the same behind the tests of a wrapper: is the allocator ready, is this call
 *                 nested in another one, is the feature on, is the size one of its sizes
 *   tests_call    the tests at the call site, then the call
 *
 * The tests read variables that the compiler cannot know, as run options are.
 *
 * Does not show: the larger code of a program with thousands of inlined call sites; a call through
 * the loader's table, which costs one indirect jump more.
 */
#include "replication.h"

enum { ITER, SLOTS, THREADS, SEED, VARIANT, ARGUMENT_COUNT };
enum { CALL, INLINE, TESTS_INLINE, TESTS_CALL };

#define CLASS_STEP 16
#define SIZE_MAX_SMALL 128
#define CLASSES (SIZE_MAX_SMALL / CLASS_STEP + 1)
#define CALLED __attribute__((noinline))

static const char *const variants[] = {"call", "inline", "tests_inline", "tests_call", NULL};
static struct bench_argument arguments[ARGUMENT_COUNT] = {
    [ITER] = REPLICATION_ITER(10000000, 100000),
    [SLOTS] = REPLICATION_SLOTS(400, 400),
    [THREADS] = REPLICATION_THREADS,
    [SEED] = REPLICATION_SEED,
    [VARIANT] = REPLICATION_VARIANT_OF(variants),
};
REPLICATION_WORKLOAD(
    "inline_wrapper",
    "Replaces objects of 16 to 128 bytes through a call, inline, or behind tests.");

struct cache {
    struct object *free[CLASSES];
    struct memory memory;
};

static __thread struct cache cache;
static __thread int wrapper_depth;

/* What the wrapper tests; volatile: the compiler may not know their values. */
static volatile int option_ready = 1;
static volatile int option_wrap = 1;
static volatile int option_debug = 0;
static volatile uint32_t option_size_max = SIZE_MAX_SMALL;

static uint32_t class_of(uint32_t size)
{
    return (size + CLASS_STEP - 1) / CLASS_STEP;
}

static CALLED struct object *cache_carve(uint32_t size_class)
{
    size_t size = size_class * CLASS_STEP;
    struct object *object =
        replication_carve(&cache.memory, size < sizeof *object ? sizeof *object : size);
    object->size_class = size_class;
    return object;
}

BENCH_INLINE struct object *cache_pop(uint32_t size)
{
    uint32_t size_class = class_of(size);
    struct object *object = cache.free[size_class];
    if (__builtin_expect(object == NULL, 0)) {
        return cache_carve(size_class);
    }
    cache.free[size_class] = object->next;
    return object;
}

BENCH_INLINE void cache_push(struct object *object)
{
    object->next = cache.free[object->size_class];
    cache.free[object->size_class] = object;
}

static CALLED struct object *called_pop(uint32_t size)
{
    return cache_pop(size);
}

static CALLED void called_push(struct object *object)
{
    cache_push(object);
}

/* True where the wrapper lets the fast path have the request. */
BENCH_INLINE bool wrapper_admits(uint32_t size)
{
    return option_ready != 0 && wrapper_depth == 0 && option_wrap != 0 && option_debug == 0 &&
           size <= option_size_max;
}

BENCH_INLINE struct object *variant_take(uint64_t variant, uint32_t size)
{
    struct object *object;
    if (variant == CALL) {
        return called_pop(size);
    }
    if (variant == INLINE) {
        return cache_pop(size);
    }
    if (!wrapper_admits(size)) {
        bench_fail_run("the wrapper refused a request.");
    }
    wrapper_depth++;
    object = variant == TESTS_INLINE ? cache_pop(size) : called_pop(size);
    wrapper_depth--;
    return object;
}

BENCH_INLINE void variant_free(uint64_t variant, struct object *object)
{
    if (variant == CALL) {
        called_push(object);
    } else if (variant == INLINE) {
        cache_push(object);
    } else {
        if (!wrapper_admits(0)) {
            bench_fail_run("the wrapper refused a free.");
        }
        wrapper_depth++;
        if (variant == TESTS_INLINE) {
            cache_push(object);
        } else {
            called_push(object);
        }
        wrapper_depth--;
    }
}

BENCH_INLINE uint32_t size_draw(uint32_t *state)
{
    return CLASS_STEP + bench_random_below(state, SIZE_MAX_SMALL - CLASS_STEP + 1);
}

static void slots_prepare(struct bench_thread *thread)
{
    struct object **slots = bench_map(arguments[SLOTS].value * sizeof(struct object *));
    for (uint64_t i = 0; i < arguments[SLOTS].value; i++) {
        slots[i] = cache_pop(size_draw(&thread->seed));
        replication_taken(flags[0].is_set, slots[i]);
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
        replication_freed(is_checked, *slot);
        variant_free(variant, *slot);
        *slot = variant_take(variant, size_draw(&state));
        replication_taken(is_checked, *slot);
    }
    thread->operations = 2 * arguments[ITER].value;
}

static void slots_measure(struct bench_thread *thread)
{
    if (flags[0].is_set) {
        slots_run(thread, arguments[VARIANT].value, true);
        return;
    }
    switch (arguments[VARIANT].value) {
    case CALL:
        slots_run(thread, CALL, false);
        break;
    case INLINE:
        slots_run(thread, INLINE, false);
        break;
    case TESTS_INLINE:
        slots_run(thread, TESTS_INLINE, false);
        break;
    default:
        slots_run(thread, TESTS_CALL, false);
        break;
    }
}

static void slots_drain(struct bench_thread *thread)
{
    struct object **slots = thread->data;
    uint64_t found = 0;
    for (uint64_t i = 0; i < arguments[SLOTS].value; i++) {
        replication_freed(flags[0].is_set, slots[i]);
        cache_push(slots[i]);
    }
    for (size_t i = 0; i < CLASSES; i++) {
        found += replication_length(cache.free[i], cache.memory.carved);
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
