/* SPDX-License-Identifier: MIT */
/* attacks.h: what the files of the program attacks share (attacks.c). */
#ifndef TESTS_SECURE_ATTACKS_H
#define TESTS_SECURE_ATTACKS_H

#include "child.h"

/* How an attack ends: the attacker has what he wanted; there was no memory; he gave up; it only
 * measures. An attack that returns was not noticed until then. */
enum { STATUS_HARMED = 3, STATUS_NO_MEMORY = 4, STATUS_HELD = 5, STATUS_MEASURED = 6 };

enum { FIGURES = 9 /* the file that takes figures */ };

struct attack {
    const char *name, *title;
    void (*run)(const struct attack *attack);
    size_t size, at;     /* of the block; of the write, or its length */
    unsigned runs_of_20; /* how often it runs where the usual ones run 20 times; 0: the same */
};

/* Each ends with one without a name. */
extern const struct attack canary_attacks[], patience_attacks[], reach_attacks[], free_attacks[];

/* A number that the attack has found, such as the tries that it took. */
static inline void figure(const char *name, size_t value)
{
    dprintf(FIGURES, "%s %zu\n", name, value);
}

enum { PAIRS_MAX = 20000 }; /* of malloc and free, for which an attacker waits */

/* Memory of the size, all of it written. */
static inline unsigned char *make(size_t size)
{
    unsigned char *block = hide(malloc(size));
    if (block == NULL) {
        _exit(STATUS_NO_MEMORY);
    }
    memset(block, 'm', size);
    return hide(block);
}

/* Other work of the program between two steps. */
static inline void work(size_t size)
{
    void *blocks[600];
    for (size_t i = 0; i < 600; i++) {
        blocks[i] = hide(malloc(i % 2 == 0 ? size : i * 7));
    }
    for (size_t i = 0; i < 600; i++) {
        free(blocks[i]);
    }
}

/* For qsort of addresses. */
static inline int compare_addresses(const void *first, const void *second)
{
    uintptr_t a = *(const uintptr_t *)first, b = *(const uintptr_t *)second;
    return (a > b) - (a < b);
}

#endif
