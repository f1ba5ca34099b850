/* SPDX-License-Identifier: MIT */
/* heap_attacks.h: writes of a program into the tables of a heap, which lie before its
 * first object (src/heap/heap.h), and what the heap does next. The layout that an attacker knows is
 * written down here. Each must end by a report, and `attack_target` stays as it is.
 *
 * Whoever includes it defines hide(). */
#ifndef TESTS_HEAP_ATTACKS_H
#define TESTS_HEAP_ATTACKS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <hakmem/heap.h>

struct attack_entry {
    uintptr_t next, previous, pages;
    uint32_t back;
    uint16_t capacity;
    uint8_t class_index, kind;
};
enum { ATTACK_FREE_RUN = 1, ATTACK_SLAB, ATTACK_BLOCK };
enum { ATTACK_ENTRIES = 126, ATTACK_MEMORY = 1 << 20 };

/* Where the header of a chunk says what; words of 8 bytes. */
enum { ATTACK_HEAP, ATTACK_NEXT, ATTACK_PREVIOUS, ATTACK_SIZE, ATTACK_COUNTS };

enum attack {
    ATTACK_UNLINK_RUN,      /* 16 bytes: both links of a free run */
    ATTACK_LINEAR,          /* all bytes from the run's entry to the first object */
    ATTACK_UNLINK_INSIDE,   /* as the first; the links lead to entries of the heap */
    ATTACK_LENGTH_OF_RUN,   /* a free run with a length that is too large */
    ATTACK_LENGTH_0,        /* or with none */
    ATTACK_NEIGHBOUR,       /* the last page of the free run before a block that is freed */
    ATTACK_UNLINK_SLAB,     /* both links of a slab that becomes full, or empty */
    ATTACK_CAPACITY,        /* of a slab */
    ATTACK_CLASS,           /* of a slab: there is no such class */
    ATTACK_CARVED,          /* objects of a slab: more than it has */
    ATTACK_FREE_LIST,       /* of a slab: memory elsewhere */
    ATTACK_BACK,            /* the second page of a slab: its first one is elsewhere */
    ATTACK_LENGTH_OF_BLOCK, /* of an object of whole pages that is freed */
    ATTACK_BLOCK_RESIZED,   /* the same, resized */
    ATTACK_UNLINK_CHUNK,    /* both links of a chunk that becomes empty */
    ATTACK_SIZE_OF_CHUNK,   /* that becomes empty */
    ATTACK_PAGES_OF_CHUNK,
    ATTACK_WALK,    /* a run without length meets a walk */
    ATTACK_DESTROY, /* the size of a chunk of a heap that is destroyed */
    ATTACKS
};

enum attack_memory { ATTACK_DEFAULT, ATTACK_OWN, ATTACK_PROVIDER, ATTACK_MEMORIES };

static uintptr_t attack_target[64] __attribute__((aligned(64)));

static inline void *attack_map(void *argument, size_t alignment, size_t size)
{
    (void)argument;
    return aligned_alloc(alignment, size);
}

/* Would unmap what it is told. */
static inline void attack_unmap(void *argument, void *address, size_t size)
{
    (void)argument;
    (void)address;
    if (size % (1 << 19) != 0) {
        attack_target[0] = size;
    }
}

static inline hak_heap *attack_heap(enum attack_memory memory)
{
    static const struct hak_heap_pages pages = {attack_map, attack_unmap, NULL, NULL};
    struct hak_heap_options options = {.size = sizeof options, .name = "attacked"};
    if (memory == ATTACK_OWN) {
        options.memory =
            mmap(NULL, ATTACK_MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        options.memory_size = ATTACK_MEMORY;
    }
    options.pages = memory == ATTACK_PROVIDER ? &pages : NULL;
    return hak_heap_create(&options);
}

/* The tables of the chunk in which the object is the first one. */
static inline uintptr_t *attack_header(enum attack_memory memory, const void *object)
{
    static const uintptr_t own_tables = ATTACK_MEMORY / 4096 * 32 / 4096 + 1; /* pages */
    uintptr_t page = (uintptr_t)object & ~(uintptr_t)4095;
    return hide((void *)(memory == ATTACK_OWN ? page - own_tables * 4096
                                              : page & ~(uintptr_t)((1 << 19) - 1)));
}

static inline struct attack_entry *attack_entry_of(uintptr_t *header, const void *object)
{
    size_t index = ((uintptr_t)object - (uintptr_t)header) / 4096;
    return (struct attack_entry *)(void *)header + 1 + index;
}

/* The first entry of this kind from `from` on. */
static inline struct attack_entry *attack_find(struct attack_entry *from, int kind)
{
    for (size_t i = 0; i < ATTACK_ENTRIES; i++) {
        if (from[i].kind == kind && (kind != ATTACK_FREE_RUN || from[i].pages > 1)) {
            return &from[i];
        }
    }
    abort();
}

static inline void attack_links(void *entry)
{
    uintptr_t *links = entry;
    links[0] = (uintptr_t)&attack_target[16]; /* would get &attack_target[32] at 8 */
    links[1] = (uintptr_t)&attack_target[32];
}

static inline bool attack_visit(void *object, size_t size, void *argument)
{
    (void)size;
    (void)argument;
    return object != NULL;
}

/* Objects of the class until the slab is full. */
static inline void attack_fill(hak_heap *heap)
{
    for (size_t i = 0; i < 2000; i++) {
        (void)hide(hak_heap_malloc(heap, 64));
    }
}

static inline void attack_run(enum attack attack, enum attack_memory memory)
{
    hak_heap *heap = attack_heap(memory);
    char *object = hide(hak_heap_malloc(heap, 64)), *before = hide(hak_heap_malloc(heap, 90000)),
         *block = hide(hak_heap_malloc(heap, 100000)), *behind = hide(hak_heap_malloc(heap, 10));
    uintptr_t *header = attack_header(memory, object);
    struct attack_entry *slab = attack_entry_of(header, object),
                        *first = attack_entry_of(header, block),
                        *run = attack_find(first, ATTACK_FREE_RUN);
    (void)behind;
    switch (attack) {
    case ATTACK_UNLINK_RUN:
        attack_links(run);
        break;
    case ATTACK_LINEAR: {
        uintptr_t length = run->pages;
        uint32_t back = run->back;
        memset(hide(run), 'A', (size_t)(object - (char *)run));
        *run = (struct attack_entry){0, 0, length, back, 0, 0, ATTACK_FREE_RUN};
        attack_links(run);
        break;
    }
    case ATTACK_UNLINK_INSIDE:
        run->next = (uintptr_t)slab;
        run->previous = (uintptr_t)first;
        break;
    case ATTACK_LENGTH_OF_RUN:
        run->pages = UINTPTR_MAX / 4096;
        break;
    case ATTACK_LENGTH_0:
        run->pages = 0;
        break;
    case ATTACK_NEIGHBOUR:
        hak_heap_free(heap, before);
        first[-1].pages = 100000;
        hak_heap_free(heap, block);
        return;
    case ATTACK_UNLINK_SLAB:
        attack_links(slab);
        attack_fill(heap);
        return;
    case ATTACK_CAPACITY:
        slab->capacity = UINT16_MAX;
        attack_fill(heap);
        return;
    case ATTACK_CLASS:
        slab->class_index = UINT8_MAX;
        attack_fill(heap);
        return;
    case ATTACK_CARVED:
        slab->back = UINT32_MAX;
        attack_fill(heap);
        return;
    case ATTACK_FREE_LIST:
        slab->pages = (uintptr_t)&attack_target[16];
        attack_fill(heap);
        return;
    case ATTACK_BACK:
        slab[1].back = 1u << 30;
        for (size_t i = 0; i < 2000; i++) {
            object = hide(hak_heap_malloc(heap, 64));
            if (attack_entry_of(header, object) == &slab[1]) {
                hak_heap_free(heap, object);
                hak_heap_trim(heap);
            }
        }
        return;
    case ATTACK_LENGTH_OF_BLOCK:
        first->pages = 1u << 20;
        hak_heap_free(heap, block);
        return;
    case ATTACK_BLOCK_RESIZED:
        first->pages = UINTPTR_MAX / 4096;
        (void)hide(hak_heap_realloc(heap, block, 200000));
        return;
    case ATTACK_WALK:
        run->pages = 0;
        hak_heap_walk(heap, attack_visit, NULL);
        return;
    case ATTACK_DESTROY:
        header[ATTACK_SIZE] = 1 << 30;
        hak_heap_destroy(heap);
        return;
    default: { /* a chunk that becomes empty */
        enum { FILLERS = 8 };
        char *fillers[FILLERS];
        for (size_t i = 0; i < FILLERS; i++) {
            fillers[i] = hide(hak_heap_malloc(heap, 300000));
        }
        header = attack_header(memory, fillers[FILLERS / 2]);
        if (attack == ATTACK_UNLINK_CHUNK) {
            attack_links(&header[ATTACK_NEXT]);
        } else if (attack == ATTACK_SIZE_OF_CHUNK) {
            header[ATTACK_SIZE] = 1 << 30;
        } else {
            header[ATTACK_COUNTS] += 3;
        }
        for (size_t i = 0; i < FILLERS; i++) {
            hak_heap_free(heap, fillers[i]);
        }
        return;
    }
    }
    (void)hide(hak_heap_malloc(heap, 20000));
    hak_heap_trim(heap);
    (void)hide(hak_heap_malloc(heap, 70000));
}

/* A heap in the program's memory has one chunk, which stays. */
static inline bool attack_applies(enum attack attack, enum attack_memory memory)
{
    bool chunk = attack == ATTACK_UNLINK_CHUNK || attack == ATTACK_SIZE_OF_CHUNK ||
                 attack == ATTACK_DESTROY || attack == ATTACK_PAGES_OF_CHUNK;
    return memory != ATTACK_OWN || !chunk;
}

static inline void attack_and_say(enum attack attack, enum attack_memory memory)
{
    attack_run(attack, memory);
    for (size_t i = 0; i < sizeof attack_target / sizeof attack_target[0]; i++) {
        if (attack_target[i] != 0) {
            abort();
        }
    }
}

#endif
