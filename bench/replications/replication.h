/* SPDX-License-Identifier: MIT */
/* replication.h: what the models of bench/replications share: objects, their memory, the check.
 *
 * A model is one file that imitates one mechanism of an allocator in a few lines, in two or more
 * variants. It runs on the harness of the workloads (harness.h) and prints its line of JSON. The
 * laboratory names the variant in the environment variable REPLICATION_VARIANT, so that variants
 * are arms of one case; a person may give it as the last argument.
 *
 * With --check each object says whether a caller has it: an object handed out twice, freed twice
 * or lost ends the process with status 1. The loops are compiled twice, so that a run without
 * --check does not pay for it.
 */
#ifndef BENCH_REPLICATION_H
#define BENCH_REPLICATION_H

#include "harness.h"

#include <stdatomic.h>
#include <string.h>

#define REPLICATION_CHUNK ((size_t)256 << 10) /* bytes taken from the harness at a time */

enum { OBJECT_FREE, OBJECT_TAKEN };

/* The head of each block of the model; the program's data would overwrite `next` only. */
struct object {
    struct object *next; /* while free */
    void *home;          /* what the model keeps of it: its heap or slab; may be unused */
    uint32_t state;      /* OBJECT_FREE or OBJECT_TAKEN, kept with --check only */
    uint32_t size_class;
};

/* Untouched memory of one thread. */
struct memory {
    char *at;
    char *end;
    uint64_t carved; /* objects cut from it, count */
};

#define REPLICATION_ITER(count, count_smoke)                                                       \
    {                                                                                              \
        .name = "ITER", .meaning = "steps of each thread", .value = (count),                       \
        .value_smoke = (count_smoke), .min = 1, .max = UINT64_C(1000000000000)                     \
    }
#define REPLICATION_SLOTS(count, count_smoke)                                                      \
    {                                                                                              \
        .name = "SLOTS", .meaning = "objects of each thread", .value = (count),                    \
        .value_smoke = (count_smoke), .min = 1, .max = 1000000                                     \
    }
#define REPLICATION_THREADS                                                                        \
    {                                                                                              \
        .name = "THREADS", .meaning = "threads that run the steps", .value = 1, .value_smoke = 4,  \
        .min = 1, .max = 64                                                                        \
    }
#define REPLICATION_SEED                                                                           \
    {                                                                                              \
        .name = "SEED", .meaning = "start of the random numbers", .value = 42, .value_smoke = 42,  \
        .min = 1, .max = UINT32_MAX                                                                \
    }
#define REPLICATION_VARIANT_OF(names)                                                              \
    {                                                                                              \
        .name = "VARIANT", .meaning = "the mechanism", .kind = BENCH_WORD, .words = (names)        \
    }
#define REPLICATION_CHECK                                                                          \
    {                                                                                              \
        .name = "--check", .meaning = "ends with status 1 if an object is in two places"           \
    }

/* The flags and the workload of a model, from its `arguments` and ARGUMENT_COUNT. */
#define REPLICATION_WORKLOAD(name_, summary_)                                                      \
    static struct bench_flag flags[] = {REPLICATION_CHECK};                                        \
    static const struct bench_workload workload = {                                                \
        .name = (name_),                                                                           \
        .summary = (summary_),                                                                     \
        .arguments = arguments,                                                                    \
        .argument_count = ARGUMENT_COUNT,                                                          \
        .flags = flags,                                                                            \
        .flag_count = 1,                                                                           \
    }

/* bench_start, after the environment has chosen the variant. */
static inline void replication_start(const struct bench_workload *workload,
                                     struct bench_argument *variant, int argc, char **argv)
{
    const char *name = getenv("REPLICATION_VARIANT");
    size_t index = 0;
    if (name != NULL) {
        while (variant->words[index] != NULL && strcmp(variant->words[index], name) != 0) {
            index++;
        }
        variant->value = index;
        variant->value_smoke = index;
    }
    bench_start(workload, argc, argv);
    if (variant->words[variant->value] == NULL) {
        bench_fail_usage("REPLICATION_VARIANT names no variant; --help lists them.");
    }
}

BENCH_INLINE void replication_taken(bool is_checked, struct object *object)
{
    if (is_checked) {
        if (object->state != OBJECT_FREE) {
            bench_fail_run("an object was handed out twice.");
        }
        object->state = OBJECT_TAKEN;
    }
}

BENCH_INLINE void replication_freed(bool is_checked, struct object *object)
{
    if (is_checked) {
        if (object->state != OBJECT_TAKEN) {
            bench_fail_run("an object was freed twice.");
        }
        object->state = OBJECT_FREE;
    }
}

/* A fresh object of `size` bytes. */
static inline struct object *replication_carve(struct memory *memory, size_t size)
{
    struct object *object;
    if ((size_t)(memory->end - memory->at) < size) {
        memory->at = bench_map(REPLICATION_CHUNK);
        memory->end = memory->at + REPLICATION_CHUNK;
    }
    object = (struct object *)(void *)memory->at;
    memory->at += size;
    memory->carved++;
    return object;
}

/* The objects of a list; stops beyond `limit`, as a list with a cycle never ends. */
static inline uint64_t replication_length(const struct object *list, uint64_t limit)
{
    uint64_t count = 0;
    for (; list != NULL && count <= limit; list = list->next) {
        count++;
    }
    return count;
}

static inline void replication_expect_all(bool is_checked, uint64_t found, uint64_t carved)
{
    if (is_checked && found != carved) {
        bench_fail_run("objects were lost, or are in a list twice.");
    }
}

#endif
