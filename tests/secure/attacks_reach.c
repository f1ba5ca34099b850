/* SPDX-License-Identifier: MIT */
/* attacks_reach.c: how far an attacker can read from a block, what lies just outside of it, and
 * where blocks are. */
#include "attacks.h"

enum { PAGE = 4096 };
#define MIB ((size_t)1 << 20)
#define REACH_MAX (2 * MIB)

/* The kernel reads, so nothing faults. */
static bool is_readable(int file, uintptr_t address)
{
    return pwrite(file, (const void *)address, 1, 0) == 1;
}

/* Bytes that can be read from an address on, or below it. */
static size_t reach_up(int file, uintptr_t from)
{
    uintptr_t at = from;
    while (at - from < REACH_MAX && is_readable(file, at)) {
        at = (at / PAGE + 1) * PAGE;
    }
    return at - from;
}

static size_t reach_down(int file, uintptr_t from)
{
    uintptr_t at = from;
    while (from - at < REACH_MAX && is_readable(file, at - 1)) {
        at = (at - 1) / PAGE * PAGE;
    }
    return from - at;
}

/* A heap that has been used: many blocks, a third of which are free again. */
static void use_heap(void)
{
    enum { COUNT = 10000 };
    static void *blocks[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = make(i * 37 % 2000 + 1);
    }
    for (size_t i = 0; i < COUNT; i += 3) {
        free(blocks[i]);
    }
}

/* From 16 blocks, of which the attacker takes the best. */
static void reach(const struct attack *attack)
{
    enum { COUNT = 16 };
    int file = memfd_create("probe", 0);
    size_t up = 0, down = 0;
    use_heap();
    for (size_t i = 0; i < COUNT; i++) {
        uintptr_t block = (uintptr_t)make(attack->size);
        if (attack->at != 0) {
            block = (uintptr_t)hide(realloc(hide((void *)block), attack->at));
        }
        size_t above = reach_up(file, block + (attack->at ? attack->at : attack->size));
        size_t below = reach_down(file, block);
        up = above > up ? above : up;
        down = below > down ? below : down;
    }
    figure("bytes_up", up);
    figure("bytes_down", down);
    exit(STATUS_MEASURED);
}

/* One byte changes, `at` bytes before the block. */
static void write_before(const struct attack *attack)
{
    unsigned char *block = make(attack->size);
    volatile unsigned char *before = hide(block - attack->at);
    *before ^= 0x5a;
    free(hide(block));
}

static void addresses(const struct attack *attack)
{
    static const struct {
        const char *name;
        size_t size;
    } firsts[] = {{"first_64", 64},
                  {"first_100K", 100 << 10},
                  {"first_4M", 4 * MIB},
                  {"first_64M", 64 * MIB}};
    uintptr_t huge = 0;
    (void)attack;
    for (size_t i = 0; i < sizeof firsts / sizeof *firsts; i++) {
        uintptr_t block = (uintptr_t)hide(malloc(firsts[i].size));
        huge = firsts[i].size == 4 * MIB ? block : huge;
        figure(firsts[i].name, block);
    }
    uintptr_t second = (uintptr_t)hide(malloc(4 * MIB));
    figure("distance_4M", huge > second ? huge - second : second - huge);
    exit(STATUS_MEASURED);
}

const struct attack reach_attacks[] = {
    {"readable_16", "Bytes readable above and below a block of 16", reach, 16, 0, 5},
    {"readable_64", "Bytes readable above and below a block of 64", reach, 64, 0, 5},
    {"readable_256", "Bytes readable above and below a block of 256", reach, 256, 0, 5},
    {"readable_1024", "Bytes readable above and below a block of 1,024", reach, 1024, 0, 5},
    {"readable_4096", "Bytes readable above and below a block of 4,096", reach, 4096, 0, 5},
    {"readable_8192", "Bytes readable above and below a block of 8,192", reach, 8192, 0, 5},
    {"readable_200000", "Bytes readable above and below a block of 200,000", reach, 200000, 0, 5},
    {"readable_5000000", "Bytes readable above and below one of 5,000,000", reach, 5000000, 0, 5},
    {"readable_realloc", "Bytes readable around a block of 200,000, now 150,000", reach, 200000,
     150000, 5},
    {"before_17", "The byte 17 before a block of 256 KiB", write_before, 256 << 10, 17, 0},
    {"before_32", "The byte 32 before a block of 256 KiB", write_before, 256 << 10, 32, 0},
    {"addresses", "Where the first blocks of a process lie", addresses, 0, 0, 200},
    {0}};
