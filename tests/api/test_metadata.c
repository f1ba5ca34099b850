/* SPDX-License-Identifier: MIT */
/* test_metadata.c: what the library keeps for itself is 69 bytes for 32 KiB of arena and what its
 * steps round up (docs/guarantees.md), whatever the sizes of the objects: written numbers. */
#include "../support.h"

struct node {
    struct node *next;
};

TEST(share_of_the_arena)
{
    static const size_t sizes[] = {16, 100, 1000, 10000, 60000, 500000};
    /* tables are claimed for 64 superslabs of 64 slices at once, the maps to a multiple of 64 KiB
     */
    enum { STEP = 64 * 69 * 64 + 64 * KIB };
    size_t total = SUPPORT_SLOW ? 4 * MIB : 512 * MIB;
    size_t fixed = stats_now().bytes_metadata + 256 * KIB; /* and one chunk of arenas and threads */
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        struct node *head = NULL;
        for (size_t bytes = 0; bytes < total; bytes += sizes[i]) {
            struct node *node = hak_malloc(sizes[i]);
            assert_non_null(node);
            node->next = head;
            head = node;
        }
        struct hak_stats stats = stats_now();
        print_message("%zu bytes: %zu KiB for %zu MiB\n", sizes[i], stats.bytes_metadata / KIB,
                      stats.bytes_mapped / MIB);
        REQUIRE_SIZE(stats.bytes_mapped, >=, total);
        REQUIRE_SIZE(stats.bytes_metadata, <=, fixed + STEP + stats.bytes_mapped / 32768 * 69);
        while (head != NULL) {
            struct node *next = head->next;
            hak_free(head);
            head = next;
        }
    }
    /* what was used once is used again: six times the bytes, but not six times the arena */
    hak_trim(0);
    REQUIRE_SIZE(stats_now().bytes_mapped, <=, total * 2);
}

TESTS(NULL)
