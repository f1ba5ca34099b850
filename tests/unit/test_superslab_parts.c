/* SPDX-License-Identifier: MIT */
/* test_superslab_parts.c: region/superslab_parts: several parts of the superslabs, each with a
 * lock, an index and addresses of its own.
 *
 * ctest: no-qemu no-secure
 */
#include "unit.h"

enum { PARTS = 4, RUNS = 500, STEPS = SUPPORT_SLOW ? 4000 : 20000, SLICES = 64 * 64 * 64 };

struct run {
    size_t slice;
    uint32_t count; /* 0: none */
};

static struct run runs[RUNS];
static bool taken[SLICES];

static int start_parts(void **state)
{
    (void)unit_start(state);
    uint32_t part = 0;
    for (uint32_t arenas = 0; part != PARTS - 1; arenas++) {
        part = hak__superslab_part_for(0);
        REQUIRE(part < PARTS);
        REQUIRE(arenas >= PART_ARENAS_LONE || part == 0);
    }
    REQUIRE_SIZE(superslab_parts(), ==, PARTS);
    return 0;
}

static struct slice_run take(uint32_t part, uint32_t count, uint32_t alignment)
{
    struct slice_run run =
        hak__superslab_take(part, count, alignment, count == 1 ? FOR_FILLED_SLAB : FOR_SLAB);
    assert_int_not_equal(run.slice, SLICE_NONE);
    assert_int_equal(run.slice % alignment, 0);
    REQUIRE_SIZE(run.slice + count, <=, SLICES);
    for (size_t i = run.slice; i < run.slice + count; i++) {
        assert_false(taken[i]);
        assert_true(superslab_has_slice(i));
        taken[i] = true;
    }
    return run;
}

static void give(size_t slice, uint32_t count)
{
    memset(taken + slice, false, count);
    hak__superslab_give(slice, count);
}

/* The sums, the index and the groups of all parts. */
static void check_parts(void)
{
    size_t free = 0, dirty = 0, slices_free = 0, slices_dirty = 0, released = 0, holes = 0;
    bool in_hole = false;
    for (size_t i = 0; i < hak__superslabs.count; i++) {
        const struct superslab *superslab = superslab_at(i);
        slices_free += bits_count(superslab->free);
        slices_dirty += bits_count(superslab->free & superslab->dirty);
        assert_true(superslab->state == SUPERSLAB_NEW || superslab->part < PARTS);
        released += superslab->state == SUPERSLAB_RELEASED;
        holes += superslab->state >= SUPERSLAB_RELEASED && !in_hole;
        in_hole = superslab->state >= SUPERSLAB_RELEASED;
    }
    assert_int_equal(hak__superslabs.released_count, released);
    assert_int_equal(hak__superslabs.holes_count, holes);
    for (uint32_t i = 0; i < PARTS; i++) {
        const struct superslab_part *part = hak__superslab_parts[i];
        free += part->free_slices;
        dirty += part->dirty_free_slices;
        assert_true(hak__superslab_index_is_right(part));
        for (uint32_t number = 0; number < part->groups_count; number++) {
            assert_int_equal(superslab_group(part->groups[number])->number, number);
            assert_int_equal(superslab_at(part->groups[number] * SUPERSLAB_GROUP)->part, i);
        }
    }
    assert_int_equal(free, slices_free);
    assert_int_equal(dirty, slices_dirty);
    size_t wrong = (size_t)PARTS * PART_UNTOLD * SLICE_SIZE;
    REQUIRE_SIZE(hak__superslab_bytes_free() + wrong, >=, free * SLICE_SIZE);
    REQUIRE_SIZE(hak__superslab_bytes_free(), <=, free * SLICE_SIZE + wrong);
    REQUIRE_SIZE(hak__superslab_bytes_dirty() + wrong, >=, dirty * SLICE_SIZE);
    REQUIRE_SIZE(hak__superslab_bytes_dirty(), <=, dirty * SLICE_SIZE + wrong);
}

TEST_WITH_KNOBS(random_runs)
{
    uint64_t random = 7;
    hak__knobs.huge_threshold = 0; /* pages change, and whole superslabs are dirty */
    hak__huge_page_us_max = UINT64_MAX;
    for (int step = 0; step < STEPS; step++) {
        struct run *run = &runs[random_below(&random, RUNS)];
        if (run->count != 0) {
            give(run->slice, run->count);
            run->count = 0;
        } else {
            run->count = 1 + (uint32_t)random_below(&random, random_below(&random, 64) + 1);
            uint32_t alignment = 1u << random_below(&random, random_below(&random, 6) + 1);
            run->slice = take((uint32_t)random_below(&random, PARTS), run->count, alignment).slice;
        }
        if (random_below(&random, 500) == 0) {
            (void)(random_below(&random, 2) != 0
                       ? hak__superslab_purge()
                       : hak__superslab_purge_part(true, false, SIZE_MAX));
        }
        if (random_below(&random, 500) == 0) {
            (void)hak__superslab_release();
        }
        if (step % 1000 == 0) {
            unit_set_evidence(step % 2000 == 0); /* the next, although nothing is touched */
            check_parts();
        }
    }
    for (int i = 0; i < RUNS; i++) {
        if (runs[i].count != 0) {
            give(runs[i].slice, runs[i].count);
        }
        runs[i].count = 0;
    }
    check_parts();
    REQUIRE_SIZE(hak__superslab_release(), >=, PARTS * SUPERSLAB_SIZE);
    (void)hak__superslab_purge();
    for (uint32_t i = 0; i < PARTS; i++) {
        REQUIRE_SIZE(hak__superslab_parts[i]->groups_count, >=, 1);
        assert_int_equal(hak__superslab_parts[i]->dirty_free_slices, 0);
    }
    check_parts();
}

/* Before the process grows, a part takes what another has to spare, little as it is. */
TEST(dirty_slices_of_another_part_before_new_memory)
{
    (void)hak__superslab_purge();
    size_t slice = take(1, SUPERSLAB_SLICES, 1).slice, count = 0;
    static size_t slices[SLICES];
    while (hak__superslab_parts[2]->free_slices != 0) {
        REQUIRE(count < COUNT_OF(slices));
        slices[count++] = take(2, 1, 1).slice;
    }
    give(slice, SUPERSLAB_SLICES);
    size_t claimed = hak__superslab_bytes_claimed();
    assert_int_equal(take(2, SUPERSLAB_SLICES, 1).slice, slice);
    give(slice + SUPERSLAB_SLICES - 1, 1);
    assert_int_equal(take(2, 1, 1).slice, slice + SUPERSLAB_SLICES - 1);
    assert_int_equal(hak__superslab_bytes_claimed(), claimed);
    give(slice, SUPERSLAB_SLICES);
    while (count != 0) {
        give(slices[--count], 1);
    }
    check_parts();
}

/* The next group is somebody else's, all of it and more: none of it is used, and behind it only
 * what has tables. */
TEST(a_stranger_in_the_next_groups)
{
    enum { SIZE = 3 * SUPERSLAB_GROUP / 2 };
    static size_t slices[SLICES / SUPERSLAB_SLICES];
    size_t first = hak__superslabs.groups_count * GROUP_SLICES, count = 0, behind_count = 0;
    size_t behind = first + SIZE * SUPERSLAB_SLICES;
    void *stranger = unit_occupy((uintptr_t)window_slice_address(first), SIZE * SUPERSLAB_SIZE);
    while (behind_count < 2 * SUPERSLAB_GROUP) {
        REQUIRE(count < COUNT_OF(slices));
        size_t slice = take((uint32_t)count % PARTS, SUPERSLAB_SLICES, 1).slice;
        REQUIRE(slice < first || slice >= behind);
        memset(window_slab_metadata(slice), 0, HAK_CACHE_LINE);
        behind_count += slice >= behind;
        slices[count++] = slice;
    }
    munmap(stranger, SIZE * SUPERSLAB_SIZE);
    while (count != 0) {
        give(slices[--count], SUPERSLAB_SLICES);
    }
    check_parts();
}

/* No addresses are left: a part takes what others have, and then there is no memory. */
TEST(the_end_of_the_window)
{
    size_t size = hak__window.size, count = 0;
    hak__window.size = hak__superslabs.groups_count * GROUP_SLICES * SLICE_SIZE;
    static size_t slices[SLICES / SUPERSLAB_SLICES];
    for (size_t slice;
         (slice = hak__superslab_take(2, SUPERSLAB_SLICES, 1, FOR_SLAB).slice) != SLICE_NONE;) {
        REQUIRE(count < COUNT_OF(slices));
        slices[count++] = slice;
    }
    for (uint32_t i = 0; i < PARTS; i++) {
        assert_int_equal(
            hak__superslab_index_find(hak__superslab_parts[i], INDEX_FREE, SUPERSLAB_SLICES, 0),
            SLICE_NONE);
    }
    hak__window.size = size;
    assert_int_not_equal(
        slices[count++] = hak__superslab_take(2, SUPERSLAB_SLICES, 1, FOR_SLAB).slice, SLICE_NONE);
    while (count != 0) {
        hak__superslab_give(slices[--count], SUPERSLAB_SLICES);
    }
    check_parts();
}

/* Near a limit spare tables go back, but not those of groups in which a part has claimed nothing
 * yet. */
TEST(groups_of_parts_are_not_spare)
{
    uint32_t first = hak__superslabs.groups_count, count = 3 * OS_PAGE_SIZE_MAX / 2048;
    lock_acquire(&hak__growth_lock);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(hak__superslab_add_group(hak__superslab_parts[2]));
    }
    (void)hak__window_give_spare(1);
    lock_release(&hak__growth_lock);
    for (uint32_t i = first; i < first + count; i++) {
        assert_int_equal(superslab_at(i * SUPERSLAB_GROUP)->part, 2);
    }
    check_parts();
}

/* PARTS_MAX parts are the most; then arenas share them. */
TEST(parts_are_bounded)
{
    bool used[PARTS_MAX] = {false};
    for (uint32_t arenas = 0; arenas < 3 * PARTS_MAX * PART_ARENAS; arenas++) {
        uint32_t part = hak__superslab_part_for(0);
        REQUIRE(part < PARTS_MAX);
        used[part] = true;
    }
    assert_int_equal(superslab_parts(), PARTS_MAX);
    for (uint32_t i = 0; i < PARTS_MAX; i++) {
        assert_true(used[i]);
        assert_int_equal(hak__superslab_take(i, 1, 1, FOR_SLAB).slice == SLICE_NONE, false);
    }
}

TESTS(start_parts)
