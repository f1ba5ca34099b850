/* SPDX-License-Identifier: MIT */
/* overflow_sizes.c: the secure form, preloaded, reports every write behind the end of a block, or
 * before its start, of every small size and of some larger ones, and reports nothing else.
 *
 * Usage: overflow_sizes [STEP]. Each case is a child process that writes behind one block and frees
 * it or resizes it. The bytes are even, which a canary never is, so a case cannot pass by chance.
 * STEP: only each STEPth small size. */

#include "child.h"

enum { SMALL_MAX = 1100, SLAB_BYTES = 32768 };

static const size_t larger[] = {
    1151,   1152,    1160,    1500,    2000,    2040,          2041,   2048,  2049,  3000,
    4000,   4088,    4095,    4096,    4097,    5000,          6000,   8000,  8184,  8192,
    8193,   9000,    10000,   10361,   12288,   16384,         16385,  20000, 30001, 32768,
    40000,  50000,   65535,   65536,   65537,   65656,         65657,  70001, 94200, 100003,
    200001, 1 << 20, 2000003, 2097153, 3000001, (4 << 20) + 1, 5000077};

static void fail(const char *what, size_t size, const char *text)
{
    fprintf(stderr, "size %zu: %s\n%s", size, what, text);
    exit(1);
}

/* --- the bugs --- */

static void write_byte(char *block, size_t size)
{
    block[size] = 'n';
}

static void end_string(char *block, size_t size)
{
    memset(block, 'x', size);
    block[size] = '\0';
}

static void copy_8(char *block, size_t size)
{
    memcpy(block + size, "nnnnnnnn", 8);
}

static void fill_64(char *block, size_t size)
{
    memset(block + size, 'n', 64);
}

/* Skips the seven bytes behind the block. */
static void write_eighth(char *block, size_t size)
{
    block[size + 7] = 'n';
}

static void write_before(char *block, size_t size)
{
    block[-1] = 'n';
}

/* Skips the eight bytes before the block. */
static void copy_before(char *block, size_t size)
{
    memcpy(block - 16, "nnnnnnnn", 8);
}

typedef void write_function(char *block, size_t size);
static write_function *const writes[] = {write_byte,   end_string,   copy_8,     fill_64,
                                         write_eighth, write_before, copy_before};
enum { WRITES = sizeof writes / sizeof writes[0], WRITES_BEHIND = WRITES - 2 };
/* More bytes than the last eight are watched only before blocks above 64 KiB. */
enum { FAR_BEFORE_MIN = 65657 };

/* How the block comes into being, and how it ends; the size stays the same. */
static char *from_malloc(size_t size)
{
    return hide(malloc(size));
}

static char *from_calloc(size_t size)
{
    return hide(calloc(1, size));
}

static char *from_memalign(size_t size)
{
    return hide(memalign(size < FAR_BEFORE_MIN ? 64 : (size_t)4096 << size % 12, size));
}

static char *from_larger(size_t size)
{
    return realloc(hide(malloc(size + size / 4 + 1)), size);
}

static char *from_smaller(size_t size)
{
    return realloc(hide(malloc(size - size / 4)), size);
}

/* The first of a slab: the lowest of more than a slab has. */
static char *from_lowest(size_t size)
{
    static char *blocks[3000];
    size_t count =
        size > FAR_BEFORE_MIN ? 1 : 40 + (SLAB_BYTES < size * 40 ? 0 : SLAB_BYTES / size);
    count = count < 3000 ? count : 3000;
    char *lowest = blocks[0] = hide(malloc(size));
    for (size_t i = 1; i < count; i++) {
        blocks[i] = hide(malloc(size));
        lowest = blocks[i] < lowest ? blocks[i] : lowest;
    }
    for (size_t i = 0; i < count; i++) {
        free(blocks[i] == lowest ? NULL : blocks[i]);
    }
    return lowest;
}

typedef char *make_function(size_t size);
static make_function *const makes[] = {from_malloc, from_calloc,  from_memalign,
                                       from_larger, from_smaller, from_lowest};
enum { MAKES = sizeof makes / sizeof makes[0] };

/* --- children --- */

struct bug {
    size_t size;
    uint32_t make, write;
    bool resizes;
};

static void run_bug(const void *argument)
{
    const struct bug *bug = argument;
    char *block = makes[bug->make](bug->size);
    writes[bug->write](block, bug->size);
    if (bug->resizes) {
        hide(realloc(hide(block), bug->size + 1));
    } else {
        free(hide(block));
    }
}

/* A child that ends without a report fails the test. */
static void check_bug(const struct bug *bug)
{
    struct child child = run_child(run_bug, bug);
    /* Many bytes may leave the object: a neighbour may be found first. They may also leave what is
     * mapped: then the kernel ends the child before hakmem sees anything. */
    bool is_long = writes[bug->write] == fill_64;
    const char *report = is_long                      ? "hakmem: fatal: "
                         : bug->write < WRITES_BEHIND ? "hakmem: fatal: overflow: "
                                                      : "hakmem: fatal: underflow: ";
    bool left_memory = WIFSIGNALED(child.status) && WTERMSIG(child.status) == SIGSEGV && is_long;
    if (!left_memory && (!WIFSIGNALED(child.status) || strstr(child.text, report) == NULL)) {
        fprintf(stderr, "make %u, write %u, %s: not reported, wait status %#x\n",
                (unsigned)bug->make, (unsigned)bug->write, bug->resizes ? "realloc" : "free",
                (unsigned)child.status);
        fail("the bug", bug->size, child.text);
    }
}

static void check_size(size_t size)
{
    uint32_t count = size < FAR_BEFORE_MIN ? WRITES - 1 : WRITES;
    if (size > (size_t)2 << 20) {
        /* A closed page lies before it, which ends the process at once (chances.c), or a canary, as
         * at level 2, where a few blocks use up the mappings (closed_pages.c). */
        count = WRITES_BEHIND;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (i != 0 && (size / 2 + i) % 2 != 0 && size <= SMALL_MAX) {
            continue; /* every other one, and always the first: the run takes long */
        }
        /* What makes the block, and what ends it, changes from case to case. */
        check_bug(&(struct bug){size, (uint32_t)((size + i) % MAKES), i, (size / 8 + i) % 4 == 0});
    }
}

/* --- no false reports --- */

static void check_block(char *block, size_t size, const char *what)
{
    if (block == NULL) {
        fail(what, size, "no memory\n");
    }
    if (malloc_usable_size(block) != size) {
        fail(what, size, "the usable size is not the size of the request\n");
    }
}

static void check_good(size_t size)
{
    for (uint32_t i = 0; i < MAKES; i++) {
        char *block = makes[i](size);
        check_block(block, size, "made");
        memset(block, 'y', size);
        free(hide(block));
    }
    char *block = hide(malloc(size));
    memset(block, 'y', size);
    for (size_t step = 1; step < size + 40; step += step / 2 + 1) {
        block = realloc(block, size + step);
        check_block(block, size + step, "grown");
        for (size_t i = 0; i < size; i++) {
            if (block[i] != 'y') {
                fail("grown", size, "the contents changed\n");
            }
        }
        memset(block, 'y', size + step);
        block = realloc(block, size);
        check_block(block, size, "shrunk");
    }
    free(hide(block));
}

/* What realloc adds within a class is not the old canary. */
static void check_added(void)
{
    for (size_t size = 1; size < 1000; size++) {
        char *block = hide(calloc(1, size));
        block = realloc(block, size + 7);
        for (size_t i = 0; i < size + 7; i++) {
            if (block[i] != 0) {
                fail("grown", size, "old contents are visible\n");
            }
        }
        free(hide(block));
    }
}

int main(int count, char **arguments)
{
    size_t step = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
    for (size_t size = 1; size <= SMALL_MAX; size += step) {
        check_good(size);
    }
    for (size_t i = 0; i < sizeof larger / sizeof larger[0]; i++) {
        check_good(larger[i]);
    }
    check_added();
    for (size_t size = 1; size <= SMALL_MAX; size += step) {
        check_size(size);
    }
    for (size_t i = 0; i < sizeof larger / sizeof larger[0]; i++) {
        check_size(larger[i]);
    }
    return 0;
}
