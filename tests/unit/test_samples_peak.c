/* SPDX-License-Identifier: MIT */
/* test_samples_peak.c: observe/samples: what each stack held when all together held most. Each
 * allocation is a sample, so the figures are exact.
 */
#include "unit.h"

#include "hakmem/site.h"
#include "observe/samples.h"

enum { SITES = 8, BLOCKS = 200 };

struct block {
    void *pointer;
    size_t size;
    size_t site;
};

/* What this test has allocated by site, now and at the peak. */
static size_t live[SITES], at_peak[SITES];
static uint64_t live_counts[SITES], counts_at_peak[SITES];
static size_t total, peak;

static void note_allocated(const struct block *block)
{
    live[block->site] += block->size;
    live_counts[block->site]++;
    total += block->size;
    if (total > peak) {
        peak = total;
        memcpy(at_peak, live, sizeof live);
        memcpy(counts_at_peak, live_counts, sizeof live_counts);
    }
}

static void block_allocate(struct block *block, size_t site, size_t size)
{
    uintptr_t before = hak_site_enter(site + 1);
    *block = (struct block){hak_malloc(size), size, site};
    hak_site_leave(before);
    REQUIRE(block->pointer != NULL);
    note_allocated(block);
}

static void block_free(struct block *block)
{
    hak_free(block->pointer);
    live[block->site] -= block->size;
    live_counts[block->site]--;
    total -= block->size;
    block->pointer = NULL;
}

static void check_peak(void)
{
    double bytes[SITES] = {0}, counts[SITES] = {0};
    struct stack_sums sums;
    struct samples_history history;
    float noted[HISTORY_MAX];
    const struct stack *stack = hak__samples_first_stack(&history);
    REQUIRE_SIZE((size_t)(history.peak_bytes + 0.5), ==, peak);
    for (; stack != NULL; stack = stack->older) {
        REQUIRE(hak__samples_copy(stack, &sums, noted));
        if (stack->site != NULL && stack->site->key - 1 < SITES) {
            bytes[stack->site->key - 1] += sums.peak_bytes;
            counts[stack->site->key - 1] += sums.peak_count;
        }
    }
    for (size_t i = 0; i < SITES; i++) {
        REQUIRE_SIZE((size_t)(bytes[i] + 0.5), ==, at_peak[i]);
        REQUIRE_SIZE((size_t)(counts[i] + 0.5), ==, counts_at_peak[i]);
    }
}

TEST(the_peak)
{
    struct block blocks[BLOCKS] = {{NULL, 0, 0}};
    uint64_t random = 7;
    hak_free(hak_malloc(1));
    hak__sampling_set(SAMPLING_OWN, 1, false);
    while (hak__thread->sampler.epoch != hak__sampling.epoch) {
        hak_free(hak_malloc(100));
    }
    peak = 0; /* the blocks above were freed at once, and are smaller than any below */
    for (size_t step = 0; step < 4000; step++) {
        struct block *block = &blocks[random_below(&random, BLOCKS)];
        bool fills = step / 500 % 2 == 0; /* fills up and empties, several times */
        if (block->pointer == NULL && (fills || random_below(&random, 4) == 0)) {
            size_t site = random_below(&random, SITES);
            block_allocate(block, site, 200 + random_below(&random, 100000));
        } else if (block->pointer != NULL && (!fills || random_below(&random, 4) == 0)) {
            block_free(block);
        }
        if (step % 50 == 0) {
            check_peak();
        }
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        if (blocks[i].pointer != NULL) {
            block_free(&blocks[i]);
        }
    }
    check_peak();
    hak__sampling_set(SAMPLING_OWN, 0, false);
}

static int group_start(void **state)
{
    return hak__stacks_start() ? unit_start(state) : -1;
}

TESTS(group_start)
