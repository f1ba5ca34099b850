/* SPDX-License-Identifier: MIT */
/* slabs.c: what slabs of the secure form, preloaded, keep apart (docs/security.md). With the
 * argument "places", for either form: the lower bits of addresses differ from process to process.
 */
#include "child.h"

#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>

enum { SLAB = 32768, PAGE = 4096, COUNT = 2000, SIZE = 64, FAULTS_MAX = 200, STARTS = 16 };

static void *blocks[COUNT];

static void fail(const char *what, size_t number)
{
    fprintf(stderr, "slabs: %s: %zu\n", what, number);
    exit(1);
}

static bool is_readable(int pipe_end, uintptr_t address)
{
    return write(pipe_end, (const void *)address, 1) == 1;
}

/* False: the kernel marks no pages as closed, so only slabs of large objects end in one. */
static bool marks_pages(void)
{
    enum { GUARD_INSTALL = 102 }; /* MADV_GUARD_INSTALL of Linux 6.13, which older headers lack */
    void *page = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool marks = page != MAP_FAILED && madvise(page, PAGE, GUARD_INSTALL) == 0;
    return marks && sysconf(_SC_PAGESIZE) == PAGE && HAK_LEVEL < 2; /* level 2 asks for no marks */
}

static void a_slab_ends_at_a_closed_page(void)
{
    int ends[2];
    if (pipe2(ends, O_NONBLOCK) != 0) {
        exit(3);
    }
    for (size_t i = 0; i < COUNT; i += 100) {
        uintptr_t at = (uintptr_t)blocks[i];
        while (at - (uintptr_t)blocks[i] < SLAB && is_readable(ends[1], at)) {
            at = (at / PAGE + 1) * PAGE;
        }
        if (at - (uintptr_t)blocks[i] >= SLAB) {
            fail("bytes that can be read above a block", at - (uintptr_t)blocks[i]);
        }
    }
}

static void a_block_of_8_kib_too(void)
{
    int ends[2];
    if (pipe2(ends, O_NONBLOCK) != 0) {
        exit(3);
    }
    for (size_t size = 1024; size <= 8192; size += 512) {
        for (size_t i = 0; i < 20; i++) {
            uintptr_t block = (uintptr_t)hide(malloc(size)), at = block;
            while (at - block <= 2 * SLAB && is_readable(ends[1], at)) {
                at = (at / PAGE + 1) * PAGE;
            }
            if (at - block > 2 * SLAB) {
                fail("64 KiB can be read above a block of", size);
            }
        }
    }
}

enum { CLASSES = 20, THREADS = 20 };
static uintptr_t taken[CLASSES * THREADS]; /* the slabs of all threads */
static size_t taken_count;

static void *take_slabs(void *unused)
{
    void *own[CLASSES];
    for (size_t i = 0; i < CLASSES; i++) {
        own[i] = hide(malloc(100 * i + 1));
        uintptr_t slab = (uintptr_t)own[i] / SLAB;
        size_t known = 0;
        while (known < taken_count && taken[known] != slab) {
            known++;
        }
        taken[known] = slab;
        taken_count += known == taken_count;
    }
    for (size_t i = 0; i < CLASSES; i++) {
        free(own[i]);
    }
    return unused;
}

/* Else each would close and open the ends of new ones. */
static void a_thread_gets_the_slabs_of_the_last_one(void)
{
    for (size_t i = 0; i < THREADS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, take_slabs, NULL) != 0) {
            exit(3);
        }
        pthread_join(thread, NULL);
    }
    if (taken_count > CLASSES * THREADS / 2) { /* a purge pass may return them */
        fail("slabs of threads one after the other", taken_count);
    }
}

/* Nobody gets the block again: its slab goes back. */
static void write_before_the_slab_goes_back(const void *unused)
{
    (void)unused;
    for (size_t i = 0; i < COUNT; i++) {
        free(hide(blocks[i]));
    }
    ((char *)hide(blocks[COUNT / 2]))[SIZE / 2] = 'w';
    malloc_trim(0);
}

/* What the child allocates has keys that its parent does not know: it lies in other slabs. It does
 * not copy its parent's pages for that. */
static void child_has_slabs_of_its_own(const void *unused)
{
    (void)unused;
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    void *own[10];
    for (size_t i = 0; i < 10; i++) {
        own[i] = hide(malloc(SIZE));
        memset(own[i], 'c', SIZE);
    }
    getrusage(RUSAGE_SELF, &after);
    for (size_t i = 0; i < COUNT; i++) {
        free(hide(blocks[i]));
    }
    for (size_t i = 0; i < COUNT; i++) {
        uintptr_t fresh = (uintptr_t)hide(malloc(SIZE));
        for (size_t j = 0; j < COUNT; j++) {
            if (fresh / SLAB == (uintptr_t)blocks[j] / SLAB) {
                fail("a child's block lies in a slab of its parent", i);
            }
        }
    }
    if (after.ru_minflt - before.ru_minflt > FAULTS_MAX) {
        fail("page faults of ten allocations", (size_t)(after.ru_minflt - before.ru_minflt));
    }
}

/* Prints the place of a first block. */
static void print_place(void)
{
    printf("%zx\n", (size_t)((uintptr_t)hide(malloc(SIZE)) % ((uintptr_t)1 << 20)));
}

/* All starts have the same place once in 2^75 runs. */
static void places_differ(const char *self)
{
    char first[64] = "", line[64] = "", command[4096];
    bool differs = false;
    snprintf(command, sizeof command, "%s place", self);
    for (size_t i = 0; i < STARTS; i++) {
        FILE *start = popen(command, "r");
        if (start == NULL || fgets(line, sizeof line, start) == NULL || pclose(start) != 0) {
            exit(3);
        }
        memcpy(first, i == 0 ? line : first, sizeof first);
        differs = differs || strcmp(first, line) != 0;
    }
    if (!differs) {
        fail("starts of one place", STARTS);
    }
}

int main(int count, char **arguments)
{
    if (count > 1 && strcmp(arguments[1], "place") == 0) {
        print_place();
        return 0;
    }
    if (count > 1) {
        places_differ(arguments[0]);
        return 0;
    }
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = hide(malloc(SIZE));
        memset(blocks[i], 'p', SIZE);
    }
    if (marks_pages()) {
        a_slab_ends_at_a_closed_page();
        a_block_of_8_kib_too();
    }
    a_thread_gets_the_slabs_of_the_last_one();
    struct child child = run_child(write_before_the_slab_goes_back, NULL);
    if (strstr(child.text, "use after free: a freed object was written") == NULL) {
        fail("a write to a freed block went unnoticed at", COUNT / 2);
    }
    child = run_child(child_has_slabs_of_its_own, NULL);
    if (child.status != 0) {
        fprintf(stderr, "slabs: child: status %#x\n%s", (unsigned)child.status, child.text);
        return 1;
    }
    return 0;
}
