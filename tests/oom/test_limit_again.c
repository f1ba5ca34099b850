/* SPDX-License-Identifier: MIT */
/* test_limit_again.c: under a limit, large blocks reach again what they reached before, whatever
 * filled the memory between: addresses must not stay with free superslabs, nor as gaps between
 * blocks that are rounded up.
 *
 * ctest: no-qemu no-secure
 */
#include "exhaust.h"

/* How a block is made. Growth leaves the smaller blocks that it was before behind. */
enum way { PLAIN, CLEARED, ALIGNED, GROWN, WAYS };

enum { LIMIT = 128 * MIB };

static const size_t large_sizes[] = {512 * KIB, 1536 * KIB, 2 * MIB, 2200000,
                                     3 * MIB,   5 * MIB,    17 * MIB};
static const size_t phase_sizes[] = {1000, 40000, 1000000, 2200000, 5 * MIB};

static struct node *make_grown(size_t size)
{
    struct node *node = hak_malloc(size / 3);
    struct node *larger = node != NULL ? hak_realloc(node, size) : NULL;
    if (larger == NULL) {
        hak_free(node);
    }
    return larger;
}

static struct node *make(enum way way, size_t size)
{
    return way == PLAIN     ? hak_malloc(size)
           : way == CLEARED ? hak_calloc(1, size)
           : way == ALIGNED ? hak_aligned_alloc(64 * KIB, size)
                            : make_grown(size);
}

/* Makes blocks until there are no more, and frees them all. Returns their bytes. */
static size_t reach(enum way way, size_t size)
{
    struct node *head = NULL;
    size_t total = 0;
    for (struct node *node; (node = make(way, size)) != NULL; total += size) {
        node->next = head;
        head = node;
        REQUIRE_SIZE(total, <, 2 * LIMIT); /* there is a limit, and it holds */
    }
    free_memory(&head);
    return total;
}

struct again {
    bool hard; /* HAKMEM_LIMIT_HARD, else RLIMIT_AS */
    enum way way;
};

static void reach_again(void *argument)
{
    const struct again *again = argument;
    hak_free(hak_malloc(100));
    if (again->hard) {
        struct hak_stats stats = stats_now();
        hak_limit_set(SIZE_MAX, stats.bytes_mapped + stats.bytes_metadata + LIMIT, NULL, NULL);
    } else {
        rlim_t bytes = address_space_bytes() + LIMIT;
        struct rlimit limit = {bytes, bytes};
        REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
    }
    for (size_t i = 0; i < COUNT_OF(large_sizes); i++) {
        size_t size = large_sizes[i], first = reach(again->way, size);
        REQUIRE_SIZE(first, >=, LIMIT / 100 * 60);
        for (size_t k = 0; k < COUNT_OF(phase_sizes); k++) {
            size_t phase = reach(PLAIN, phase_sizes[k]), now = reach(again->way, size);
            REQUIRE_SIZE(phase, >=, LIMIT / 100 * 60);
            if (now + size < first / 100 * 95) {
                support_fail("way %d, %zu bytes: %zu KiB, then %zu of %zu bytes, then %zu KiB\n",
                             (int)again->way, size, first / KIB, phase / KIB, phase_sizes[k],
                             now / KIB);
            }
        }
    }
}

static void run(bool hard)
{
    for (enum way way = PLAIN; way < WAYS; way++) {
        struct again again = {hard, way};
        REQUIRE_LIFE(reach_again, &again, NULL);
    }
}

TEST(address_space)
{
    SKIP_IF(SUPPORT_SANITIZED);
    run(false);
}

TEST(hard_limit)
{
    run(true);
}

TESTS(NULL)
