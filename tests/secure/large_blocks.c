/* SPDX-License-Identifier: MIT */
/* large_blocks.c: blocks above 64 KiB in the secure form, preloaded: old contents are gone, closed
 * pages stand around them also after realloc, and they take little more address space than asked.
 */

#include "child.h"

#define MIB ((size_t)1 << 20)

static void require(bool right, const char *what, size_t number)
{
    if (!right) {
        fprintf(stderr, "%s, %zu\n", what, number);
        exit(1);
    }
}

static unsigned char *get(size_t size)
{
    unsigned char *block = hide(malloc(size));
    require(block != NULL, "no memory", size);
    return block;
}

CASE(new_blocks_are_zero, NULL)
{
    /* Slabs become spans: their canaries and links are gone, too. */
    static unsigned char *blocks[2000];
    for (size_t i = 0; i < 2000; i++) {
        blocks[i] = get(1000);
    }
    for (size_t i = 0; i < 2000; i++) {
        free(hide(blocks[i]));
    }
    for (size_t i = 0; i < 30; i++) {
        const unsigned char *block = get(100000);
        for (size_t at = 0; at < 100000; at++) {
            require(block[at] == 0, "a span out of a slab is not zero, at", at);
        }
    }
}

/* Faults, or reads zero. */
CASE(freed_blocks_read_zero, NULL)
{
    enum { SIZE = 70000, COUNT = 600 /* more than an arena closes in a second */ };
    static unsigned char *blocks[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = get(SIZE);
        memset(blocks[i], 'x', SIZE);
    }
    for (size_t i = 0; i < COUNT; i++) {
        free(hide(blocks[i]));
    }
    int ends[2];
    require(pipe(ends) == 0, "pipe", 0);
    for (size_t i = 0; i < COUNT; i++) {
        unsigned char byte = 0; /* the kernel looks, so a closed page does not fault */
        if (write(ends[1], blocks[i] + SIZE / 2, 1) == 1) {
            require(read(ends[0], &byte, 1) == 1 && byte == 0, "old contents of block", i);
        }
    }
}

static unsigned char *grown(void)
{
    unsigned char *block = get(3 * MIB);
    for (size_t size = 3 * MIB; size < 200 * MIB; size += size / 2) {
        block[0] = block[size - 1] = 'y';
        get(3 * MIB); /* in its way */
        block = hide(realloc(block, size + size / 2));
        require(block != NULL && block[0] == 'y' && block[size - 1] == 'y', "moved", size);
    }
    return hide(realloc(block, 5 * MIB));
}

BUG_CASE(before_grown, "hakmem: fatal: underflow: access before", grown()[-1] = 'n')
BUG_CASE(behind_grown, "hakmem: fatal: overflow: access beyond", grown()[5 * MIB] = 'n')

/* Each step copied the block to another span. */
static unsigned char *stepped(void)
{
    size_t size = 70000, moves = 0;
    unsigned char *block = get(size);
    for (memset(block, 'y', size); size < MIB; size += 16) {
        unsigned char *moved = hide(realloc(block, size + 16));
        require(moved != NULL && moved[0] == 'y' && moved[size - 1] == 'y', "moved", size);
        for (size_t i = 0; i < 16; i++) {
            require(moved[size + i] == 0, "old contents are visible", size);
        }
        memset(moved + size, 'y', 16);
        moves += moved != block;
        block = moved;
    }
    require(moves < 2 * MIB / (32 << 10), "many moves", moves);
    require(malloc_usable_size(block) == size, "the usable size", size);
    return block;
}

CASE(before_stepped, "hakmem: fatal: underflow")
{
    unsigned char *block = stepped();
    block[-1] ^= 1;
    free(hide(block));
}

CASE(behind_stepped, "hakmem: fatal: overflow")
{
    unsigned char *block = stepped();
    block[malloc_usable_size(block)] ^= 1;
    free(hide(block));
}

/* Pages that are huge but for the closed ends were three mappings, which mremap cannot grow. */
CASE(huge_pages_grow_without_a_copy, NULL)
{
    struct rusage usage;
    size_t size = 8 * MIB;
    unsigned char *block = get(size);
    for (memset(block, 'y', size); size < 128 * MIB; size += MIB) {
        block = hide(realloc(block, size + MIB));
        require(block != NULL, "no memory", size);
        memset(block + size, 'y', MIB);
    }
    require(getrusage(RUSAGE_SELF, &usage) == 0, "getrusage", 0);
    require((size_t)usage.ru_maxrss < size * 5 / 4 / 1024, "peak in KiB", (size_t)usage.ru_maxrss);
}

CASE(before_aligned_mapping, "hakmem: fatal: underflow: access before")
{
    unsigned char *block = hide(memalign(2 * MIB, 2000000));
    block[-1] = 'n';
}

CASE(before_aligned_span, "hakmem: fatal: underflow: the bytes before")
{
    unsigned char *block = hide(memalign(512 << 10, 400000));
    block[-1] ^= 1;
    free(hide(block));
}

/* There are few places for such blocks, or none. */
CASE(any_alignment, NULL)
{
    for (size_t alignment = 2 * MIB; alignment != 0; alignment *= 2) {
        unsigned char *block = hide(memalign(alignment, MIB));
        require((uintptr_t)block % alignment == 0, "alignment", alignment);
        require(block != NULL || alignment > 1024 * MIB, "no memory at alignment", alignment);
        free(block);
    }
}

/* A freed span that was aligned serves others. */
CASE(aligned_spans_are_reused, NULL)
{
    for (size_t i = 0; i < 3000; i++) {
        size_t alignment = (size_t)4096 << i % 10, size = 70000 + i % 13 * 100003;
        unsigned char *block = hide(memalign(alignment, size));
        require(block != NULL && (uintptr_t)block % alignment == 0, "alignment", alignment);
        require(malloc_usable_size(block) == size, "size", size);
        block[0] = block[size - 1] = 1;
        free(hide(block));
    }
}

/* 256 MiB / 1.3. */
CASE(blocks_fit_under_a_limit, NULL)
{
    struct rlimit limit = {256 * MIB, 256 * MIB};
    size_t count = 0;
    require(setrlimit(RLIMIT_AS, &limit) == 0, "setrlimit", 0);
    while (hide(malloc(MIB)) != NULL) {
        count++;
    }
    if (count < 197) {
        fprintf(stderr, "only %zu blocks of 1 MiB\n", count);
        _exit(1);
    }
}

enum { STARTS = 128, SIZES = 5, BITS = 48 };
static const size_t sizes[SIZES] = {70000, 500000, 1000000, MIB + 1, 2000000};

static void print_places(void)
{
    for (size_t i = 0; i < SIZES; i++) {
        printf("%zx\n", (size_t)(uintptr_t)get(sizes[i]));
    }
}

/* Random bits of an address: a whole one for a bit that is set in half of all starts. By parabolas,
 * which are at most the entropy: their sum is up to half a bit less. */
static double bits_of(const size_t ones[BITS])
{
    double bits = 0;
    for (size_t i = 0; i < BITS; i++) {
        double part = (double)ones[i] / STARTS;
        bits += 4 * part * (1 - part);
    }
    return bits;
}

/* docs/security.md says 32 for each size; chance may take half a bit more from so few starts. */
static void places_are_random(const char *self)
{
    size_t ones[SIZES][BITS] = {{0}}, place;
    char command[4096];
    snprintf(command, sizeof command, "%s places", self);
    for (size_t start = 0; start < STARTS; start++) {
        FILE *from = popen(command, "r");
        require(from != NULL, "popen", start);
        for (size_t i = 0; i < SIZES; i++) {
            require(fscanf(from, "%zx", &place) == 1, "no address of start", start);
            for (size_t bit = 0; bit < BITS; bit++) {
                ones[i][bit] += place >> bit & 1;
            }
        }
        require(pclose(from) == 0, "a start that failed", start);
    }
    for (size_t i = 0; i < SIZES; i++) {
        require(bits_of(ones[i]) >= 31, "few random bits of the address of a block of", sizes[i]);
    }
}

int main(int count, char **arguments)
{
    if (count > 1) {
        print_places();
        return 0;
    }
    require_cases(run_case, "");
    if (HAK_LEVEL < 2 && sysconf(_SC_PAGESIZE) == 4096) { /* level 2 claims a quarter at first */
        places_are_random(arguments[0]);
    }
    return 0;
}
