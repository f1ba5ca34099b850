/* SPDX-License-Identifier: MIT */
/* test_census.c: control/census: the sums that heaps keep against a walk over all slices, after
 * random allocations, frees by other threads, resizes and trims.
 *
 * ctest: no-qemu
 */
#include "../threads/threads.h"
#include "unit.h"

#include "control/census.h"
#include "large/span.h"

enum { SLOTS = 3000, ROUNDS = SUPPORT_SLOW ? 4 : 12, STEPS = SUPPORT_SLOW ? 2000 : 20000 };

static void *slots[SLOTS];

static void walk_slab(struct census *census, const struct slab *slab)
{
    struct class_census *of_class = &census->classes[slab->class_index];
    of_class->slabs_count++;
    of_class->slab_bytes += slab->slice_count * SLICE_SIZE;
    of_class->carved_count += slab_cut_count(slab);
    of_class->in_slabs_count += hak__slab_free_objects(slab);
}

static void walk(struct census *census)
{
    memset(census, 0, sizeof *census);
    for (size_t slice = 0; slice < hak__window.shared_limit; slice++) {
        uint32_t code = window_owner(slice) & OWNER_CODE_MASK;
        const struct slab *slab = window_slab_metadata(slice);
        if (code == OWNER_SPAN) {
            census->spans_count++;
            census->span_bytes += hak__span_bytes(slice);
        } else if (code != 0 && slab->slices_back == 0) {
            walk_slab(census, slab);
        }
    }
    for (size_t i = 0; i < hak__superslabs.count; i++) {
        census->superslabs_count += superslab_at(i)->state == SUPERSLAB_CLAIMED;
    }
}

/* Nobody else allocates now. The census first: it drains. */
static void compare(void)
{
    struct census census, walked;
    hak__census_take(&census);
    walk(&walked);
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        const struct class_census *left = &census.classes[class_index];
        const struct class_census *right = &walked.classes[class_index];
        REQUIRE_SIZE(left->slabs_count, ==, right->slabs_count);
        REQUIRE_SIZE(left->slab_bytes, ==, right->slab_bytes);
        REQUIRE_SIZE(left->carved_count, ==, right->carved_count);
        REQUIRE_SIZE(left->in_slabs_count, ==, right->in_slabs_count);
    }
    REQUIRE_SIZE(census.spans_count, ==, walked.spans_count);
    REQUIRE_SIZE(census.span_bytes, ==, walked.span_bytes);
    REQUIRE_SIZE(census.superslabs_count, ==, walked.superslabs_count);
}

static void *use_slots(void *argument)
{
    uint64_t random = (uintptr_t)argument;
    for (size_t step = 0; step < STEPS; step++) {
        void **slot = &slots[random_below(&random, SLOTS)];
        size_t size = random_size(&random, random_below(&random, 8) == 0 ? 21 : 12);
        if (*slot == NULL) {
            *slot = hak_malloc(size);
            REQUIRE(*slot != NULL);
        } else if (random_below(&random, 4) == 0) {
            void *moved = hak_realloc(*slot, size + 1);
            REQUIRE(moved != NULL);
            *slot = moved;
        } else {
            hak_free(*slot);
            *slot = NULL;
        }
    }
    return NULL;
}

TEST(sums_are_those_of_a_walk)
{
    for (size_t round = 1; round <= ROUNDS; round++) {
        if (round % 3 == 0) {
            use_slots((void *)round);
        } else { /* one after the other: blocks of a thread that ended are freed by the next */
            thread_join(thread_start(use_slots, (void *)round));
        }
        compare();
        if (round % 4 == 0) {
            hak_trim(0);
            compare();
        }
    }
    FREE_ALL(slots, SLOTS);
    compare();
}

/* What a program frees with no heap to be had for its thread is counted all the same. */
TEST(a_span_freed_without_a_cache)
{
    struct census before, after;
    hak__census_take(&before);
    char *span = hak_malloc(300000);
    assert_non_null(span);
    hak__span_free(NULL, NULL, window_slice_of(span));
    hak__census_take(&after);
    assert_int_equal(after.spans_count, before.spans_count);
    assert_int_equal(after.span_bytes, before.span_bytes);
    compare();
}

TESTS(unit_start)
