/* SPDX-License-Identifier: MIT */
/* test_thread_exit.c: blocks outlive the thread that made them: they keep their contents, others
 * read, resize and free them, while the ended threads' heaps serve new threads. The argument is the
 * number of generations of 8 threads (default 300).
 *
 * ctest: no-qemu
 */
#include "override.h"

#include <malloc.h>
#include <pthread.h>

enum { THREADS_COUNT = 8, BLOCKS_COUNT = 200 };

struct legacy {
    unsigned char *blocks[BLOCKS_COUNT];
    size_t sizes[BLOCKS_COUNT];
    uint64_t seed;
};

static size_t random_size(uint64_t number)
{
    switch (number % 50) {
    case 0:
        return (number >> 8) % 4000000 + 1;
    case 1:
    case 2:
        return (number >> 8) % 500000 + 1;
    case 3:
    case 4:
    case 5:
        return (number >> 8) % 64000 + 1;
    default:
        return (number >> 8) % 2000 + 1;
    }
}

/* The first, middle and last bytes: whole blocks would take most of the time. */
static void mark(unsigned char *block, size_t size, uint64_t value)
{
    block[0] = block[size / 2] = block[size - 1] = (unsigned char)value;
}

static void check_marked(const unsigned char *block, size_t size, uint64_t value)
{
    CHECK_EQUAL(block[0], (unsigned char)value);
    CHECK_EQUAL(block[size / 2], (unsigned char)value);
    CHECK_EQUAL(block[size - 1], (unsigned char)value);
}

static void *make_legacy(void *argument)
{
    struct legacy *legacy = argument;
    uint64_t state = legacy->seed;
    for (size_t i = 0; i < BLOCKS_COUNT; i++) {
        uint64_t number = random_next(&state);
        size_t size = random_size(number);
        switch (number % 3) {
        case 0:
            legacy->blocks[i] = calloc(opaque_size(size), 1);
            break;
        case 1:
            legacy->blocks[i] = memalign((size_t)16 << number % 9, opaque_size(size));
            break;
        default:
            legacy->blocks[i] = get_memory(size);
            break;
        }
        CHECK(legacy->blocks[i] != NULL);
        legacy->sizes[i] = size;
        mark(legacy->blocks[i], size, i);
        if (number % 7 == 0) {
            give_back(get_memory(size * 2)); /* stays in this thread's cache */
        }
    }
    return NULL;
}

/* Of another thread's legacy: a third is freed, a third resized and then freed, a third stays. */
static void *use_legacy(void *argument)
{
    struct legacy *legacy = argument;
    for (size_t i = 0; i < BLOCKS_COUNT; i++) {
        unsigned char *block = legacy->blocks[i];
        size_t size = legacy->sizes[i];
        check_marked(block, size, i);
        CHECK(malloc_usable_size(block) >= size);
        if (i % 3 == 0) {
            give_back(block);
            legacy->blocks[i] = NULL;
        } else if (i % 3 == 1) {
            size_t larger = size + size / 2 + 40;
            block = realloc(opaque_pointer(block), opaque_size(larger));
            CHECK(block != NULL);
            CHECK_EQUAL(block[0], (unsigned char)i);
            CHECK_EQUAL(block[size - 1], (unsigned char)i);
            give_back(block);
            legacy->blocks[i] = NULL;
        }
    }
    return NULL;
}

static void free_rest(struct legacy *legacy)
{
    for (size_t i = 0; i < BLOCKS_COUNT; i++) {
        if (legacy->blocks[i] != NULL) {
            check_marked(legacy->blocks[i], legacy->sizes[i], i);
            give_back(legacy->blocks[i]);
        }
    }
}

static void run_all(struct legacy *legacies, void *(*run)(void *), size_t shift)
{
    pthread_t threads[THREADS_COUNT];
    for (size_t i = 0; i < THREADS_COUNT; i++) {
        struct legacy *legacy = &legacies[(i + shift) % THREADS_COUNT];
        CHECK(pthread_create(&threads[i], NULL, run, legacy) == 0);
    }
    for (size_t i = 0; i < THREADS_COUNT; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

int main(int argc, char **argv)
{
    /* Purges by the clock would change what is resident. */
    if (getenv("HAKMEM_PURGE_DELAY_MS") == NULL) {
        CHECK(setenv("HAKMEM_PURGE_DELAY_MS", "0", 1) == 0);
        execv("/proc/self/exe", argv);
        FAIL("exec");
    }
    prove_served();
    size_t generations_count = count_from_argument(argc, argv, 300);
    static struct legacy legacies[THREADS_COUNT];
    /* What is resident goes up and down, so heights are compared, not two moments. */
    size_t resident_early = 0;
    size_t resident_late = 0;
    for (size_t generation = 0; generation < generations_count; generation++) {
        for (size_t i = 0; i < THREADS_COUNT; i++) {
            legacies[i].seed = generation * 100 + i + 1;
        }
        run_all(legacies, make_legacy, 0);
        run_all(legacies, use_legacy, generation);
        for (size_t i = 0; i < THREADS_COUNT; i++) {
            free_rest(&legacies[i]);
        }
        size_t resident = resident_bytes();
        if (generation < generations_count / 3 && resident > resident_early) {
            resident_early = resident;
        }
        if (generation >= generations_count - generations_count / 3 && resident > resident_late) {
            resident_late = resident;
        }
    }
    if (resident_late > resident_early + resident_early / 2 + (16 << 20)) {
        dprintf(2, "resident: %zu KiB early, %zu KiB late\n", resident_early >> 10,
                resident_late >> 10);
        FAIL("generations of threads do not grow the process");
    }
    return 0;
}
