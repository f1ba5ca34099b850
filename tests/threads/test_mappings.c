/* SPDX-License-Identifier: MIT */
/* test_mappings.c: a heap of a gibibyte of mixed small objects, built by four threads, costs fewer
 * than 100 mappings, full or full of holes (the kernel's limit is 65,530 and others have been seen
 * at 12,000 to 22,000); so do spans and a few huge blocks.
 *
 * ctest: not-again lock=memory
 */
#include "threads.h"

/* Level 2 claims address space in small pieces on purpose, for each arena in a part of its own. */
#define MAPPINGS_MAX (HAK_LEVEL >= 2 ? 500 : 100)

enum { THREADS = 4 };

struct node {
    struct node *next;
};

/* Objects of 16 to 2,000 bytes, linked through their first word: a thread's part of all. */
static void *allocate_part(void *argument)
{
    const size_t all = SUPPORT_SANITIZED ? 64 * MIB : HAK_LEVEL >= 2 ? 128 * MIB : GIB;
    struct node *head = NULL;
    uint64_t random = (uintptr_t)argument;
    for (size_t total = 0; total < all / THREADS;) {
        size_t size = 16 + random_below(&random, 1985);
        struct node *node = hak_malloc(size);
        REQUIRE(node != NULL);
        node->next = head;
        head = node;
        total += size;
    }
    return head;
}

/* Frees all but one of `every`; returns the rest. */
static struct node *nodes_thin(struct node *head, size_t every)
{
    struct node *kept = NULL;
    for (size_t i = 1; head != NULL; i++) {
        struct node *next = head->next;
        if (every != 0 && i % every == 0) {
            head->next = kept;
            kept = head;
        } else {
            hak_free(head);
        }
        head = next;
    }
    return kept;
}

static size_t mappings_before; /* of the program itself, of which newer C libraries have more */

static void mappings_check(const char *when)
{
    size_t count = mappings_count() - mappings_before;
    print_message("%s: %zu mappings\n", when, count);
    REQUIRE(SUPPORT_SANITIZED || count < MAPPINGS_MAX);
}

TEST(small_objects)
{
    pthread_t threads[THREADS];
    void *heads[THREADS];
    mappings_before = mappings_count();
    threads_start(threads, THREADS, allocate_part, 1);
    for (size_t i = 0; i < THREADS; i++) {
        REQUIRE(pthread_join(threads[i], &heads[i]) == 0);
    }
    mappings_check("full, of four ended threads");
    for (size_t every = 20; every <= 20; every -= 20) {
        for (size_t i = 0; i < THREADS; i++) {
            heads[i] = nodes_thin(heads[i], every);
        }
        hak_trim(0);
        mappings_check(every != 0 ? "one in twenty left" : "empty");
    }
}

/* A huge block is a mapping of its own. */
TEST(large_blocks)
{
    enum { SPANS = 400, HUGE = 12 };
    char *blocks[SPANS + HUGE];
    for (size_t i = 0; i < SPANS + HUGE; i++) {
        blocks[i] = hak_malloc(i < SPANS ? 70000 + i * 4800 : 32 * MIB + i * 4096);
        assert_non_null(blocks[i]);
        blocks[i][0] = 1;
    }
    mappings_check("spans and huge blocks");
    FREE_ALL(blocks, SPANS + HUGE);
    hak_trim(0);
    mappings_check("none of them");
}

TESTS(NULL)
