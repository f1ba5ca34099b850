/* SPDX-License-Identifier: MIT */
/* lane.h: a lane is a table of blocks; each step chooses one and what happens to it.
 */
#ifndef TESTS_MODEL_LANE_H
#define TESTS_MODEL_LANE_H

#include "operations.h"

/* Says what each operation did. */
static bool option_trace;

/* Slot SIZE_MAX: none of the lane's; `block` may be NULL. */
static void lane_trace(const struct lane *lane, size_t slot, const struct block *block)
{
    if (!option_trace) {
        return;
    }
    printf("lane %llu: %s", (unsigned long long)lane->number, lane->doing);
    if (slot != SIZE_MAX) {
        printf(", slot %zu", slot);
    }
    if (block != NULL && block->pointer != NULL) {
        printf(": %p, %zu bytes", (void *)block->pointer, block->size);
    }
    printf("\n");
    fflush(stdout);
}

static void lane_do(struct lane *lane, struct block *block, const char *name,
                    void (*operation)(struct lane *, struct block *))
{
    bool own = block >= lane->blocks && block < lane->blocks + lane->slots_count;
    lane->doing = name;
    operation(lane, block);
    lane_trace(lane, own ? (size_t)(block - lane->blocks) : SIZE_MAX, block);
}

static void lane_init(size_t number, size_t slots_count)
{
    lanes[number].number = number;
    lanes[number].doing = "nothing yet";
    lanes[number].slots_count = slots_count;
    lanes[number].blocks = support_map(slots_count * sizeof *lanes[number].blocks);
}

static void lane_step(struct lane *lane)
{
    struct block *block = &lane->blocks[draw(lane, lane->slots_count)];
    size_t roll = draw(lane, 100);
    lane->tight = __atomic_load_n(&shared_live_bytes, __ATOMIC_RELAXED) >= option_max_live;
    if (roll == 0 && draw(lane, 20) == 0) {
        do_control(lane);
        lane_trace(lane, SIZE_MAX, NULL);
    } else if (roll < 3) {
        lane_do(lane, block, "impossible", do_impossible);
    } else if (roll < 15) {
        lane_do(lane, block, "exchange", do_exchange);
    } else if (block->pointer != NULL && lane->tight) {
        lane_do(lane, block, "free", do_free);
    } else if (block->pointer != NULL) {
        if (roll < 40) {
            lane_do(lane, block, "realloc", do_realloc);
        } else if (roll < 45) {
            lane_do(lane, block, "verify", do_verify);
        } else {
            lane_do(lane, block, "free", do_free);
        }
    } else if (roll < 30) {
        lane_do(lane, block, "calloc", do_calloc);
    } else if (roll < 45) {
        lane_do(lane, block, "aligned", do_aligned);
    } else if (roll < 50) {
        lane_do(lane, block, "realloc of NULL", do_realloc_null);
    } else {
        lane_do(lane, block, "malloc", do_malloc);
    }
}

static void lane_drain(struct lane *lane, size_t part)
{
    for (size_t i = 0; i < lane->slots_count; i++) {
        if (lane->blocks[i].pointer != NULL && i % part == 0) {
            lane_do(lane, &lane->blocks[i], "free at the end", do_free);
        }
    }
}

/* Frees what is left, much of which other threads allocated, and expects the counts of `before`. */
static void lanes_end(size_t lanes_count, const struct hak_stats *before)
{
    lane_current = &lanes[0];
    for (size_t i = 0; i < SHARED_SLOTS; i++) {
        if (shared_slots[i].block.pointer != NULL) {
            lane_do(&lanes[0], &shared_slots[i].block, "free of the shared", do_free);
        }
    }
    for (size_t i = 0; i < lanes_count; i++) {
        lane_drain(&lanes[i], 1);
    }
    lanes[0].doing = "the end";
    struct hak_stats after = stats_now();
    if (after.objects_in_use_count != before->objects_in_use_count ||
        after.bytes_in_use != before->bytes_in_use) {
        model_fail(&lanes[0],
                   "all is freed, yet %zu objects of %zu bytes in use (%zu of %zu at the start)",
                   after.objects_in_use_count, after.bytes_in_use, before->objects_in_use_count,
                   before->bytes_in_use);
    }
}

#endif
