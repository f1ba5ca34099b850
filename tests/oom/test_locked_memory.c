/* SPDX-License-Identifier: MIT */
/* test_locked_memory.c: under mlockall(MCL_CURRENT | MCL_FUTURE) every mapping is resident from its
 * first moment and MADV_DONTNEED is refused: reserving much would cost much, and memory given back
 * in vain is not zero. Needs the right to lock memory; skipped without. */
#include "exhaust.h"

static void lock_everything(void)
{
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
        fprintf(stderr, "skip: locking all memory: %s\n", strerror(errno));
        _exit(77);
    }
}

static void locked_growth(void *argument)
{
    enum { TOTAL_MIB = 64 };
    struct node *head = NULL;
    lock_everything();
    size_t before = rss_bytes();
    void *first = hak_malloc(16);
    REQUIRE(first != NULL);
    REQUIRE_SIZE(rss_bytes(), <=, before + 12 * MIB); /* a superslab, tables, a heap */
    size_t total = 0;
    for (size_t i = 0; total < TOTAL_MIB * MIB; i++) {
        size_t size = 16 + i * 97 % 3000;
        struct node *node = hak_malloc(size);
        REQUIRE(node != NULL);
        node->next = head;
        head = node;
        total += size;
    }
    REQUIRE_SIZE(rss_bytes(), <=, before + total + total / 4 + 12 * MIB);
    free_memory(&head);
    hak_free(first);
    hak_trim(0);
}

static void locked_zero(void *argument)
{
    lock_everything();
    for (unsigned round = 0; round < 3; round++) {
        for (size_t i = 0; i < COUNT_OF(tier_sizes); i++) {
            char *blocks[3];
            for (size_t j = 0; j < COUNT_OF(blocks); j++) {
                blocks[j] = hak_malloc(tier_sizes[i]);
                REQUIRE(blocks[j] != NULL);
                memset(blocks[j], 0xff, hak_usable_size(blocks[j]));
            }
            FREE_ALL(blocks, COUNT_OF(blocks));
            if (round != 1) {
                hak_trim(0);
            }
            for (size_t j = 0; j < COUNT_OF(blocks); j++) {
                blocks[j] = hak_calloc(1, tier_sizes[i]);
                REQUIRE(blocks[j] != NULL);
                REQUIRE(nonzero_offset(blocks[j], tier_sizes[i]) == SIZE_MAX);
                blocks[j] = hak_realloc(blocks[j], tier_sizes[i] * 2 + 1);
                REQUIRE(blocks[j] != NULL);
            }
            FREE_ALL(blocks, COUNT_OF(blocks));
        }
    }
}

static void run_locked(const char *name)
{
    struct child_end end;
    SKIP_IF(SUPPORT_SANITIZED);
    child_exec(name, NULL, NULL, &end);
    if (WIFEXITED(end.status) && WEXITSTATUS(end.status) == 77) {
        print_message("%s", end.text);
        skip();
    }
    REQUIRE_EXIT(&end, NULL);
}

TEST(growth_is_modest)
{
    run_locked("growth");
}

TEST(calloc_is_zero)
{
    run_locked("zero");
}

int main(int count, char **arguments)
{
    const struct child_case cases[] = {{"growth", locked_growth, NULL},
                                       {"zero", locked_zero, NULL}};
    child_main(count, arguments, cases, COUNT_OF(cases));
    return tests_run(NULL, NULL);
}
