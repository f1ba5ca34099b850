/* SPDX-License-Identifier: MIT */
/* registry.c: a free looks up its slab in a registry (a hash table) or in one list of all slabs.
 *
 * Imitates: an allocator that finds the slab of a pointer at each free. Each thread owns SLABS
 * slabs of 64 KiB, half full, and replaces the objects of random slots. A list entry is the slab's
 * own metadata, as it is natural: the address and the next slab share a cache line with the free
 * list, which the slab's owner writes at each operation. The registry keeps the addresses in
 * entries of their own, which nobody writes after the start.
 *
 * Does not show: slabs that come and go, objects freed by other threads (free_lists.c).
 *
 * Concurrency: slabs are registered under a lock before the measured part. The walk and the
 * look-up take none: the head of the list and the addresses of the table are published with
 * release stores. A slab's free list belongs to its thread.
 */
#include "replication.h"

enum { ITER, SLABS, THREADS, SEED, VARIANT, ARGUMENT_COUNT };
enum { LIST, REGISTRY };

#define SLAB_BITS 16
#define SLAB_SIZE ((size_t)1 << SLAB_BITS)
#define OBJECT_SIZE 64
#define OBJECTS (SLAB_SIZE / OBJECT_SIZE)
#define TABLE_BITS 13 /* 8,192 entries: a quarter full with the most slabs that there can be */
#define TABLE_SIZE ((size_t)1 << TABLE_BITS)

static const char *const variants[] = {"list", "registry", NULL};
static struct bench_argument arguments[ARGUMENT_COUNT] = {
    [ITER] = REPLICATION_ITER(5000000, 50000),
    [SLABS] = {.name = "SLABS",
               .meaning = "slabs of each thread",
               .value = 2,
               .value_smoke = 2,
               .min = 1,
               .max = 32},
    [THREADS] = REPLICATION_THREADS,
    [SEED] = REPLICATION_SEED,
    [VARIANT] = REPLICATION_VARIANT_OF(variants),
};
REPLICATION_WORKLOAD("registry",
                     "Replaces objects; each free looks up its slab in a list or in a registry.");

struct slab {
    uintptr_t start;
    struct slab *next; /* of the list of all slabs */
    struct object *free;
    uint64_t free_count;
} __attribute__((aligned(64)));

struct entry {
    _Atomic uintptr_t shared_start; /* 0: empty; written once, after `slab` */
    struct slab *slab;
};

struct thread_slabs {
    struct slab *slabs;
    struct object **slots;
    uint32_t slot_count;
};

static struct slab *_Atomic shared_list;
static struct entry table[TABLE_SIZE];
static pthread_mutex_t register_lock = PTHREAD_MUTEX_INITIALIZER;

static size_t table_place(uintptr_t address)
{
    uint64_t number = address >> SLAB_BITS;
    return (size_t)((number * UINT64_C(0x9E3779B97F4A7C15)) >> (64 - TABLE_BITS));
}

static void slab_register(struct slab *slab)
{
    size_t place = table_place(slab->start);
    (void)pthread_mutex_lock(&register_lock);
    slab->next = atomic_load_explicit(&shared_list, memory_order_relaxed);
    atomic_store_explicit(&shared_list, slab, memory_order_release);
    while (atomic_load_explicit(&table[place].shared_start, memory_order_relaxed) != 0) {
        place = (place + 1) % TABLE_SIZE;
    }
    table[place].slab = slab;
    atomic_store_explicit(&table[place].shared_start, slab->start, memory_order_release);
    (void)pthread_mutex_unlock(&register_lock);
}

BENCH_INLINE struct slab *slab_find(uint64_t variant, uintptr_t address)
{
    uintptr_t start = address & ~(uintptr_t)(SLAB_SIZE - 1);
    if (variant == LIST) {
        struct slab *slab = atomic_load_explicit(&shared_list, memory_order_acquire);
        while (slab->start != start) {
            slab = slab->next;
        }
        return slab;
    }
    for (size_t place = table_place(address);; place = (place + 1) % TABLE_SIZE) {
        if (atomic_load_explicit(&table[place].shared_start, memory_order_acquire) == start) {
            return table[place].slab;
        }
    }
}

BENCH_INLINE struct object *slabs_take(struct thread_slabs *own, uint32_t index, bool is_checked)
{
    struct slab *slab = &own->slabs[index];
    struct object *object;
    while (slab->free == NULL) { /* half of all objects are free */
        index = index + 1 == arguments[SLABS].value ? 0 : index + 1;
        slab = &own->slabs[index];
    }
    object = slab->free;
    slab->free = object->next;
    slab->free_count--;
    replication_taken(is_checked, object);
    return object;
}

BENCH_INLINE void slabs_free(uint64_t variant, struct object *object, bool is_checked)
{
    struct slab *slab = slab_find(variant, (uintptr_t)object);
    replication_freed(is_checked, object);
    if (is_checked && object->home != slab) {
        bench_fail_run("the look-up found another slab.");
    }
    object->next = slab->free;
    slab->free = object;
    slab->free_count++;
}

static void slabs_prepare(struct bench_thread *thread)
{
    struct thread_slabs *own = bench_map(sizeof *own);
    uint32_t count = (uint32_t)arguments[SLABS].value;
    char *memory = bench_map((count + 1) * SLAB_SIZE);
    memory += (SLAB_SIZE - ((uintptr_t)memory & (SLAB_SIZE - 1))) & (SLAB_SIZE - 1);
    own->slabs = bench_map(count * sizeof *own->slabs);
    for (uint32_t i = 0; i < count; i++) {
        struct slab *slab = &own->slabs[i];
        slab->start = (uintptr_t)memory + i * SLAB_SIZE;
        for (size_t at = SLAB_SIZE; at >= OBJECT_SIZE; at -= OBJECT_SIZE) {
            char *place = memory + i * SLAB_SIZE + at - OBJECT_SIZE;
            struct object *object = (struct object *)(void *)place;
            object->home = slab;
            object->next = slab->free;
            slab->free = object;
        }
        slab->free_count = OBJECTS;
        slab_register(slab);
    }
    own->slot_count = count * (uint32_t)OBJECTS / 2;
    own->slots = bench_map(own->slot_count * sizeof(struct object *));
    for (uint32_t i = 0; i < own->slot_count; i++) {
        own->slots[i] = slabs_take(own, i % count, flags[0].is_set);
    }
    thread->data = own;
}

BENCH_INLINE void slabs_run(struct bench_thread *thread, uint64_t variant, bool is_checked)
{
    struct thread_slabs *own = thread->data;
    uint32_t slab_count = (uint32_t)arguments[SLABS].value;
    uint32_t state = thread->seed;
    for (uint64_t step = 0; step < arguments[ITER].value; step++) {
        uint32_t slot = bench_random_below(&state, own->slot_count);
        slabs_free(variant, own->slots[slot], is_checked);
        own->slots[slot] = slabs_take(own, bench_random_below(&state, slab_count), is_checked);
    }
    thread->operations = 2 * arguments[ITER].value;
}

static void slabs_measure(struct bench_thread *thread)
{
    if (flags[0].is_set) {
        slabs_run(thread, arguments[VARIANT].value, true);
    } else if (arguments[VARIANT].value == LIST) {
        slabs_run(thread, LIST, false);
    } else {
        slabs_run(thread, REGISTRY, false);
    }
}

static void slabs_drain(struct bench_thread *thread)
{
    struct thread_slabs *own = thread->data;
    uint64_t found = 0;
    for (uint32_t i = 0; i < own->slot_count; i++) {
        slabs_free(arguments[VARIANT].value, own->slots[i], flags[0].is_set);
    }
    for (uint64_t i = 0; i < arguments[SLABS].value; i++) {
        found += replication_length(own->slabs[i].free, OBJECTS);
    }
    replication_expect_all(flags[0].is_set, found, arguments[SLABS].value * OBJECTS);
}

int main(int argc, char **argv)
{
    static const struct bench_phases phases = {slabs_prepare, slabs_measure, slabs_drain};
    replication_start(&workload, &arguments[VARIANT], argc, argv);
    bench_run(&phases);
    bench_report();
    return 0;
}
