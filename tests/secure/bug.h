/* SPDX-License-Identifier: MIT */
/* bug.h: a program with one bug, and the sentence that the secure form of hakmem ends it with.
 *
 * A file of this folder has BUG("text of the report") { the bug }. Run as `PROGRAM LIBRARY` it runs
 * itself with LIBRARY preloaded, and passes if that ends by a signal with the report. Run as
 * `PROGRAM --bug` it only has the bug, under whatever allocator serves it: the lab compares
 * allocators in this way. It then ends with status 0 if nothing has happened, and with 3 if harm
 * was done, as it noticed itself. */
#ifndef TESTS_SECURE_BUG_H
#define TESTS_SECURE_BUG_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__cplusplus)
extern "C" {
#endif
extern const char bug_report[];
void bug(void);
#if defined(__cplusplus)
}
#endif

#define BUG(report)                                                                                \
    const char bug_report[] = report;                                                              \
    void bug(void)

/* Hides from the compiler where a pointer comes from. */
static inline void *hide(void *pointer)
{
    __asm__ volatile("" : "+r"(pointer) : : "memory");
    return pointer;
}

/* Memory of the size, all of it written. */
static inline unsigned char *make(size_t size)
{
    unsigned char *block = (unsigned char *)hide(malloc(size));
    if (block == NULL) {
        exit(4);
    }
    memset(block, 'm', size);
    return (unsigned char *)hide(block);
}

/* Other work of the program between two steps: allocations of many sizes, and their frees. */
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

/* The program notices that it was harmed. */
static inline void harmed(void)
{
    exit(3);
}

#endif
