/* SPDX-License-Identifier: MIT */
/* test_mappings.c: a heap of a gibibyte of mixed small objects costs fewer than 100 mappings (the
 * kernel's limit is 65,530 and others have been seen at 12,000 to 22,000), built by one thread or
 * by four, full or full of holes.
 *
 * ctest: not-again lock=memory
 */
#include "threads.h"

/* Level 2 claims address space in small pieces on purpose, for each heap in a part of its own. */
#define MAPPINGS_MAX (HAK_LEVEL >= 2 ? 500 : 100)

struct node {
    struct node *next;
};

/* Objects of 16 to 2,000 bytes, linked through their first word: `bytes` of them. */
static struct node *nodes_allocate(size_t bytes, uint64_t seed)
{
    struct node *head = NULL;
    uint64_t random = seed;
    for (size_t total = 0; total < bytes;) {
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

static size_t heap_bytes(void)
{
    return SUPPORT_SANITIZED ? 64 * MIB : HAK_LEVEL >= 2 ? 128 * MIB : GIB;
}

static size_t mappings_before; /* of the program itself, of which newer C libraries have more */

static void mappings_check(const char *when)
{
    size_t count = mappings_count() - mappings_before;
    print_message("%s: %zu mappings, rss %zu MiB\n", when, count, rss_bytes() / MIB);
    if (!SUPPORT_SANITIZED) {
        REQUIRE_SIZE(count, <, MAPPINGS_MAX);
    }
}

TEST(one_thread)
{
    mappings_before = mappings_count();
    struct node *head = nodes_allocate(heap_bytes(), 1);
    mappings_check("full");
    head = nodes_thin(head, 20);
    hak_trim(0);
    mappings_check("one in twenty left");
    head = nodes_thin(head, 0);
    hak_trim(0);
    mappings_check("empty");
    assert_null(head);
}

static void *allocate_part(void *argument)
{
    return nodes_allocate(heap_bytes() / 4, (uint64_t)(uintptr_t)argument);
}

TEST(four_threads)
{
    pthread_t threads[4];
    void *heads[4];
    for (size_t i = 0; i < 4; i++) {
        threads[i] = thread_start(allocate_part, (void *)(uintptr_t)(i + 1));
    }
    for (size_t i = 0; i < 4; i++) {
        REQUIRE(pthread_join(threads[i], &heads[i]) == 0);
    }
    mappings_check("full, of four ended threads");
    for (size_t i = 0; i < 4; i++) {
        heads[i] = nodes_thin(heads[i], 50);
    }
    hak_trim(0);
    mappings_check("one in fifty left");
    for (size_t i = 0; i < 4; i++) {
        nodes_thin(heads[i], 0);
    }
}

/* Spans and whales of the same total. A whale is a mapping of its own: 32 MiB ones. */
TEST(large_blocks)
{
    enum { SPANS = 400, WHALES = 12 };
    char *spans[SPANS];
    char *whales[WHALES];
    for (size_t i = 0; i < SPANS; i++) {
        spans[i] = hak_malloc(70000 + i * 4800);
        assert_non_null(spans[i]);
        spans[i][0] = 1;
    }
    for (size_t i = 0; i < WHALES; i++) {
        whales[i] = hak_malloc(32 * MIB + i * 4096);
        assert_non_null(whales[i]);
        whales[i][0] = 1;
    }
    mappings_check("spans and whales");
    FREE_ALL(spans, SPANS);
    FREE_ALL(whales, WHALES);
    hak_trim(0);
    mappings_check("none of them");
}

TESTS(NULL)
