/* SPDX-License-Identifier: MIT */
/* api_calls.c: one function of the allocator's interface, again and again.
 *
 * Measures single calls that the other workloads make seldom or never. A key-value store asks for
 * usable sizes at each operation, C++ programs call operator new, databases want aligned blocks.
 * Each step calls CALL with SIZE and frees the block, so that the next step finds it ready. Calls
 * that are given a block have one block for all steps. The first byte of a new block is written.
 *
 *   malloc, calloc, new, delete_sized   allocate, free           2 operations a step
 *   aligned_alloc, posix_memalign,      the same with ALIGNMENT  2
 *   memalign, new_aligned
 *   realloc_same                        SIZE - 1, then SIZE      2
 *   realloc_grow                        malloc, to twice, free   3
 *   usable_size, free_null              only that                1
 *
 * Does not show: misses (everything is in one thread's cache), threads that meet, memory. With
 * --latency nothing is recorded: a look at the clock takes longer than most of these calls.
 */
#include "harness.h"

#include <dlfcn.h>
#include <malloc.h>
#include <string.h>

enum { CALL, STEPS, SIZE, ALIGNMENT, ARGUMENT_COUNT };

enum call {
    MALLOC,
    CALLOC,
    NEW,
    DELETE_SIZED,
    ALIGNED_ALLOC,
    POSIX_MEMALIGN,
    MEMALIGN,
    NEW_ALIGNED,
    REALLOC_SAME,
    REALLOC_GROW,
    USABLE_SIZE,
    FREE_NULL
};
static const char *const call_words[] = {
    [MALLOC] = "malloc",
    [CALLOC] = "calloc",
    [NEW] = "new",
    [DELETE_SIZED] = "delete_sized",
    [ALIGNED_ALLOC] = "aligned_alloc",
    [POSIX_MEMALIGN] = "posix_memalign",
    [MEMALIGN] = "memalign",
    [NEW_ALIGNED] = "new_aligned",
    [REALLOC_SAME] = "realloc_same",
    [REALLOC_GROW] = "realloc_grow",
    [USABLE_SIZE] = "usable_size",
    [FREE_NULL] = "free_null",
    NULL,
};

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    [CALL] = {.name = "CALL", .meaning = "the function", .kind = BENCH_WORD, .words = call_words},
    [STEPS] = {.name = "STEPS",
               .meaning = "steps of each thread",
               .value = 50000000,
               .value_smoke = 10000,
               .min = 1,
               .max = UINT64_C(1000000000000)},
    [SIZE] = {.name = "SIZE",
              .meaning = "bytes asked for",
              .value = 100,
              .value_smoke = 100,
              .min = 0,
              .max = UINT64_C(1) << 30},
    [ALIGNMENT] = {.name = "ALIGNMENT",
                   .meaning = "of the calls that take one, a power of two",
                   .value = 64,
                   .value_smoke = 64,
                   .min = 8,
                   .max = UINT64_C(1) << 30},
};

static const struct bench_workload workload = {
    .name = "api_calls",
    .summary = "Calls one function of the allocator's interface, again and again.",
    .arguments = arguments,
    .argument_count = ARGUMENT_COUNT,
};

/* Operators by their mangled names (Itanium C++ ABI, 5.1): this is no C++ program. */
static void *(*operator_new)(size_t size);
static void *(*operator_new_aligned)(size_t size, size_t alignment);
static void (*operator_delete)(void *pointer);
static void (*operator_delete_sized)(void *pointer, size_t size);
static void (*operator_delete_aligned)(void *pointer, size_t alignment);

static void *operator_find(const char *name)
{
    void *address = dlsym(RTLD_DEFAULT, name);
    if (address == NULL && dlopen("libstdc++.so.6", RTLD_NOW | RTLD_GLOBAL) != NULL) {
        address = dlsym(RTLD_DEFAULT, name); /* the runtime's own, which call malloc and free */
    }
    if (address == NULL) {
        bench_fail_run("neither the allocator nor libstdc++.so.6 has the operators of C++.");
    }
    return address;
}

static void operators_find(void)
{
    *(void **)&operator_new = operator_find("_Znwm");
    *(void **)&operator_new_aligned = operator_find("_ZnwmSt11align_val_t");
    *(void **)&operator_delete = operator_find("_ZdlPv");
    *(void **)&operator_delete_sized = operator_find("_ZdlPvm");
    *(void **)&operator_delete_aligned = operator_find("_ZdlPvSt11align_val_t");
}

BENCH_INLINE void block_touch(unsigned char *block, size_t size)
{
    if (block == NULL) {
        bench_fail_memory(size);
    }
    if (size != 0) {
        *(volatile unsigned char *)block = 1;
    }
}

BENCH_INLINE void step_calloc(size_t size)
{
    unsigned char *block = calloc(1, size);
    if (block != NULL && size != 0 && (block[0] | block[size - 1]) != 0) {
        bench_fail_run("calloc did not clear the block.");
    }
    block_touch(block, size);
    free(block);
}

BENCH_INLINE void step_grow(size_t size)
{
    unsigned char *block = malloc(size);
    block_touch(block, size);
    block = realloc(block, 2 * size + 1);
    block_touch(block, size);
    free(block);
}

BENCH_INLINE void step_posix(size_t alignment, size_t size)
{
    void *block = NULL;
    if (posix_memalign(&block, alignment, size) != 0) {
        bench_fail_memory(size);
    }
    block_touch(block, size);
    free(block);
}

BENCH_INLINE void step_realloc(unsigned char **block, size_t size)
{
    *block = realloc(*block, size - 1);
    block_touch(*block, size);
    *block = realloc(*block, size);
    block_touch(*block, size);
}

#define LOOP(statement)                                                                            \
    for (uint64_t step = 0; step < steps; step++) {                                                \
        statement;                                                                                 \
    }
#define LOOP_BLOCK(allocate, release)                                                              \
    LOOP(unsigned char *block = (allocate); block_touch(block, size); release)

/* usable_size and realloc_same, which are given a block. Returns operations. */
static uint64_t run_of_block(enum call call, uint64_t steps, size_t size)
{
    unsigned char *block = malloc(size);
    block_touch(block, size);
    size_t sum = 0;
    if (call == USABLE_SIZE) {
        LOOP(sum += malloc_usable_size(block))
        if (sum < steps * size) {
            bench_fail_run("malloc_usable_size is less than was asked for.");
        }
    } else {
        LOOP(step_realloc(&block, size))
    }
    free(block);
    return call == USABLE_SIZE ? steps : 2 * steps;
}

static uint64_t run_of_size(enum call call, uint64_t steps, size_t size, size_t alignment)
{
    switch (call) {
    case MALLOC:
        LOOP_BLOCK(malloc(size), free(block))
        break;
    case CALLOC:
        LOOP(step_calloc(size))
        break;
    case NEW:
        LOOP_BLOCK(operator_new(size), operator_delete(block))
        break;
    case DELETE_SIZED:
        LOOP_BLOCK(operator_new(size), operator_delete_sized(block, size))
        break;
    case ALIGNED_ALLOC:
        LOOP_BLOCK(aligned_alloc(alignment, size), free(block))
        break;
    case POSIX_MEMALIGN:
        LOOP(step_posix(alignment, size))
        break;
    case MEMALIGN:
        LOOP_BLOCK(memalign(alignment, size), free(block))
        break;
    case NEW_ALIGNED:
        LOOP_BLOCK(operator_new_aligned(size, alignment), operator_delete_aligned(block, alignment))
        break;
    case REALLOC_GROW:
        LOOP(step_grow(size))
        return 3 * steps;
    case FREE_NULL:
        LOOP(free(NULL))
        return steps;
    case REALLOC_SAME:
    case USABLE_SIZE:
        break;
    }
    return 2 * steps;
}

static void calls_measure(struct bench_thread *thread)
{
    enum call call = (enum call)arguments[CALL].value;
    uint64_t steps = arguments[STEPS].value;
    size_t size = arguments[SIZE].value;
    thread->operations = call == REALLOC_SAME || call == USABLE_SIZE
                             ? run_of_block(call, steps, size)
                             : run_of_size(call, steps, size, arguments[ALIGNMENT].value);
}

int main(int argc, char **argv)
{
    static const struct bench_phases phases = {.measure = calls_measure};
    bench_start(&workload, argc, argv);
    uint64_t call = arguments[CALL].value;
    if (call == REALLOC_SAME && arguments[SIZE].value < 2) {
        bench_fail_usage("realloc_same needs a SIZE of 2 or more.");
    }
    if (call == NEW || call == DELETE_SIZED || call == NEW_ALIGNED) {
        operators_find();
    }
    bench_run(&phases);
    bench_report();
    return 0;
}
