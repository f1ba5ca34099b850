/* SPDX-License-Identifier: MIT */
/* corruption.c: programs that overwrite what they have freed, on the secure form of hakmem.
 *
 * Usage: corruption RUNS [SEED], with the library preloaded. Each run is a child process that
 * allocates, frees and resizes blocks of random sizes, and between these steps flips bits and
 * writes words in freed blocks and behind the ends of live ones: random ones, copies of other
 * words, and addresses. It keeps a model of the live blocks. A run must go on to its end, or end by
 * a report and a signal. It fails if malloc returns a block that
 *
 *   - overlaps a live block, or
 *   - is shorter than asked for, not aligned, or not the library's (hak_owns), or
 *   - is not zero, up to 1,000 bytes, or
 *   - ends the process in another way, such as by a signal without a report.
 *
 * The seed of a failed run is printed; `corruption 1 SEED` repeats it, but for the library's own
 * random numbers. */
#include <dlfcn.h>

#include "child.h"

#define BLOCKS 256  /* live ones at most */
#define FREED 256   /* freed ones that are remembered */
#define STEPS 1500  /* in each run */
#define EXIT_HARM 9 /* the model was violated */

struct block {
    unsigned char *start;
    size_t size;
};

static struct block live[BLOCKS];
static struct block freed[FREED];
static uint32_t freed_next;
static uint64_t state;
static bool (*owns)(const void *pointer);

static uint32_t draw(uint32_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((state >> 32) * below >> 32);
}

/* Mostly small, in few classes, so that blocks are reused; sometimes large. */
static size_t draw_size(void)
{
    switch (draw(16)) {
    case 0:
        return 1 + draw(70000);
    case 1:
        return 1 + draw(3000);
    case 2:
        return draw(100) == 0 ? 70000 + draw(3000000) : 1 + draw(8000);
    default:
        return 8 + 24 * draw(8);
    }
}

static void harm(const char *text)
{
    /* No stdio: the heap is corrupt. */
    ssize_t done = write(STDOUT_FILENO, text, strlen(text));
    (void)done;
    _exit(EXIT_HARM);
}

static void look(const struct block *block, bool fresh)
{
    if ((uintptr_t)block->start % 16 != 0) {
        harm("not aligned\n");
    }
    if (!owns(block->start)) {
        harm("not a block of the library\n");
    }
    if (malloc_usable_size(block->start) < block->size) {
        harm("shorter than asked for\n");
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        const struct block *other = &live[i];
        if (other != block && other->start != NULL && block->start < other->start + other->size &&
            other->start < block->start + block->size) {
            harm("two live blocks overlap\n");
        }
    }
    for (size_t i = 0; fresh && block->size <= 1000 && i < block->size; i++) {
        if (block->start[i] != 0) {
            harm("a new block is not zero\n");
        }
    }
}

static void step_allocate(struct block *block)
{
    size_t size = draw_size();
    unsigned char *start = malloc(size);
    if (start == NULL) {
        return;
    }
    *block = (struct block){start, size};
    look(block, true);
    memset(start, (int)draw(256), size < 4096 ? size : 4096);
}

static void step_free(struct block *block)
{
    freed[freed_next++ % FREED] = *block;
    unsigned char *start = block->start;
    block->start = NULL;
    free(start);
}

static void step_resize(struct block *block)
{
    size_t size = draw_size();
    struct block old = *block;
    block->start = NULL;
    unsigned char *start = realloc(old.start, size);
    if (start == NULL) {
        *block = old;
        return;
    }
    if (start != old.start) {
        freed[freed_next++ % FREED] = old;
    }
    *block = (struct block){start, size};
    look(block, false);
}

/* Bytes that the program may not write: in a freed block, or behind a live one. */
static unsigned char *draw_target(void)
{
    const struct block *block = draw(4) != 0 ? &freed[draw(FREED)] : &live[draw(BLOCKS)];
    bool is_live = block >= live && block < live + BLOCKS;
    if (block->start == NULL || block->size > 65000) {
        return NULL; /* pages of larger ones are closed: the run would only end */
    }
    if (is_live) {
        return block->start + block->size + draw(24);
    }
    /* What links or counts lie at the start, or at the end. */
    size_t at = draw(3) != 0 ? draw(16) : draw((uint32_t)block->size);
    return block->start + (at < block->size ? at : 0);
}

static bool lies_in_live(const unsigned char *target, size_t size)
{
    for (size_t i = 0; i < BLOCKS; i++) {
        if (live[i].start != NULL && target < live[i].start + live[i].size &&
            live[i].start < target + size) {
            return true;
        }
    }
    return false;
}

static void step_corrupt(void)
{
    unsigned char *target = draw_target();
    uint64_t word = 0;
    if (target == NULL || lies_in_live(target, sizeof word)) {
        return; /* the program's own block: it may write there */
    }
    /* A freed block may lie in a page that is closed or unmapped now. The kernel looks. */
    static int ends[2] = {-1, -1};
    if (ends[0] < 0 && pipe(ends) != 0) {
        exit(3);
    }
    bool readable = write(ends[1], target, sizeof word) == (ssize_t)sizeof word &&
                    read(ends[0], &word, sizeof word) == (ssize_t)sizeof word;
    if (!readable) {
        return;
    }
    const struct block *other = &live[draw(BLOCKS)], *old = &freed[draw(FREED)];
    switch (draw(6)) {
    case 0:
        word ^= UINT64_C(1) << draw(64);
        break;
    case 1:
        word = (uintptr_t)other->start;
        break;
    case 2:
        word = (uintptr_t)old->start;
        break;
    case 3:
        if (old->start != NULL && old->size <= 65000 && old->size >= sizeof word &&
            write(ends[1], old->start, sizeof word) == (ssize_t)sizeof word) {
            if (read(ends[0], &word, sizeof word) != (ssize_t)sizeof word) { /* another's link */
                return;
            }
        }
        break;
    case 4:
        word = (uint64_t)draw(UINT32_MAX) << 32 | draw(UINT32_MAX);
        break;
    default:
        word ^= (uint64_t)16 << draw(20);
        break;
    }
    memcpy(target, &word, sizeof word);
}

static void run(const void *seed)
{
    state = *(const uint64_t *)seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    uint32_t corruptions = 1 + draw(30);
    for (uint32_t i = 0; i < STEPS; i++) {
        struct block *block = &live[draw(BLOCKS)];
        if (block->start == NULL) {
            step_allocate(block);
        } else if (draw(5) == 0) {
            step_resize(block);
        } else {
            step_free(block);
        }
        if (i > 200 && draw(STEPS) < corruptions) {
            step_corrupt();
        }
    }
}

int main(int count, char **arguments)
{
    uint64_t runs = count > 1 ? strtoull(arguments[1], NULL, 10) : 1000;
    uint64_t seed = count > 2 ? strtoull(arguments[2], NULL, 10) : 1;
    uint64_t reported = 0, failed = 0;
    *(void **)&owns = dlsym(RTLD_DEFAULT, "hak_owns");
    if (owns == NULL) {
        fputs("corruption: hakmem does not serve this process\n", stderr);
        return 2;
    }
    for (uint64_t end = seed + runs; seed < end && failed < 10; seed++) {
        struct child child = run_child(run, &seed);
        int ended = WIFSIGNALED(child.status) ? WTERMSIG(child.status) : 0;
        bool by_report =
            (ended == SIGABRT || ended == SIGSEGV) && strstr(child.text, "hakmem: fatal: ") != NULL;
        reported += by_report;
        if (child.status != 0 && !by_report) {
            failed++;
            printf("seed %llu failed: wait status %#x: %s", (unsigned long long)seed,
                   (unsigned)child.status, child.text);
        }
    }
    printf("%llu runs, %llu ended by a report, %llu failed\n", (unsigned long long)runs,
           (unsigned long long)reported, (unsigned long long)failed);
    return failed != 0;
}
