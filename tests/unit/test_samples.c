/* SPDX-License-Identifier: MIT */
/* test_samples.c: observe/samples: the sums of a profile against the exact figures. The generators
 * of all threads start from fixed seeds, and each thread allocates the same sizes in each run. So
 * the samples are the same in each run, and no test can fail by chance.
 */
#include "../child.h"
#include "../threads/threads.h"
#include "unit.h"

#include "base/exponential.h"
#include "control/life.h"
#include "hakmem/profile.h"
#include "hakmem/site.h"
#include "observe/samples.h"

#include <math.h>

enum { PERIOD = 4096, SITES = 8, BLOCKS = 200, EACH = 40 };

static int group_start(void **state)
{
    return hak__stacks_start() ? unit_start(state) : -1;
}

static size_t total_bytes(void)
{
    return SUPPORT_SLOW ? 4 * MIB : 40 * MIB;
}

static void seed(uint64_t number)
{
    hak_free(hak_malloc(1)); /* the thread has a struct from now on */
    hak__thread->sampler.random = number * UINT64_C(0x9e3779b97f4a7c15) + 1;
    hak__sampling_set(SAMPLING_OWN, PERIOD, false);
    while (hak__thread->sampler.epoch != hak__sampling.epoch) {
        hak_free(hak_malloc(100));
    }
}

struct figures {
    double live_bytes;
    double live_count;
    double freed_remote;
};

static struct figures figures_now(void)
{
    struct figures sum = {0, 0, 0};
    struct stack_sums sums;
    struct samples_history history;
    float noted[HISTORY_MAX];
    const struct stack *stack = hak__samples_first_stack(&history);
    for (; stack != NULL; stack = stack->older) {
        REQUIRE(hak__samples_copy(stack, &sums, noted));
        sum.live_bytes += sums.allocated_bytes - sums.freed_bytes;
        sum.live_count += sums.allocated_count - sums.freed_count;
        sum.freed_remote += sums.freed_remote;
    }
    return sum;
}

/* A workload allocates blocks until their bytes reach `bytes`, and says what is left. */
struct blocks {
    void **blocks;
    size_t *sizes;
    size_t count;
    size_t live_bytes;
    size_t live_count;
    size_t allocated_bytes;
};

static void blocks_start(struct blocks *blocks, size_t most)
{
    *blocks = (struct blocks){.blocks = support_map(most * sizeof(void *)),
                              .sizes = support_map(most * sizeof(size_t))};
}

static void blocks_add(struct blocks *blocks, void *block, size_t size)
{
    REQUIRE(block != NULL);
    blocks->blocks[blocks->count] = block;
    blocks->sizes[blocks->count++] = size;
    blocks->live_bytes += size;
    blocks->live_count++;
    blocks->allocated_bytes += size;
}

static void blocks_free(struct blocks *blocks, size_t i)
{
    if (blocks->blocks[i] != NULL) {
        hak_free(blocks->blocks[i]);
        blocks->blocks[i] = NULL;
        blocks->live_bytes -= blocks->sizes[i];
        blocks->live_count--;
    }
}

/* Sizes: of `bits` bits, each number of bits equally often, or from `least` on. */
struct sizes {
    size_t least, spread;
    unsigned bits;
};

static size_t next_size(const struct sizes *sizes, uint64_t *random)
{
    return sizes->bits != 0 ? random_size(random, sizes->bits)
                            : sizes->least + random_below(random, sizes->spread);
}

static const struct sizes size_16 = {16, 1, 0}, size_100 = {100, 1, 0}, size_4096 = {4096, 1, 0},
                          size_to_1000 = {1, 1000, 0}, size_to_64k = {1, 65536, 0},
                          size_skewed = {0, 0, 18}, size_spans = {66000, 1000000, 0},
                          size_huge = {3 * MIB, MIB, 0};

enum shape { KEEP_ALL, FREE_HALF, FREE_OLD, RESIZE, CALLOC, ALIGNED, RECYCLE, BURSTS };

static void *allocate_shaped(enum shape shape, size_t size)
{
    return shape == CALLOC    ? hak_calloc(1, size)
           : shape == ALIGNED ? hak_aligned_alloc(256, size)
                              : hak_malloc(size);
}

/* Runs the workload in this thread; `bytes` in all. */
static void run_shape(struct blocks *blocks, enum shape shape, const struct sizes *sizes,
                      size_t bytes)
{
    uint64_t random = 12345;
    size_t first = 0; /* the oldest that is left */
    while (blocks->allocated_bytes < bytes) {
        size_t size = next_size(sizes, &random);
        blocks_add(blocks, allocate_shaped(shape, size), size);
        size_t last = blocks->count - 1;
        if ((shape == FREE_HALF && last % 2 == 0) || (shape == RECYCLE && last % 64 != 0)) {
            blocks_free(blocks, last);
        } else if (shape == FREE_OLD && blocks->live_bytes > bytes / 2) {
            blocks_free(blocks, first++);
        } else if (shape == RESIZE) {
            size_t larger = size + size / 2 + 1;
            blocks->blocks[last] = hak_realloc(blocks->blocks[last], larger);
            REQUIRE(blocks->blocks[last] != NULL);
            blocks->sizes[last] = larger;
            blocks->live_bytes += larger - size;
            blocks->allocated_bytes += larger;
        } else if (shape == BURSTS && last % 5000 == 4999) {
            for (size_t i = last - 4999; i < last - 1000; i++) {
                blocks_free(blocks, i);
            }
        }
    }
}

static void require_close(const char *name, double estimate, double exact, double share)
{
    double error = exact == 0 ? estimate : estimate / exact - 1;
    if (fabs(error) > share) {
        fail_msg("%s: %.0f, exact %.0f: off by %.2f %%", name, estimate, exact, 100 * error);
    }
}

/* The standard deviation of the estimated count and bytes: a block of s bytes in use with the
 * weight w adds w - 1 and s^2 (w - 1) to their variances. */
struct deviation {
    double count;
    double bytes;
};

static struct deviation blocks_deviation(const struct blocks *blocks)
{
    struct deviation variance = {0, 0};
    for (size_t i = 0; i < blocks->count; i++) {
        if (blocks->blocks[i] != NULL) {
            double size = (double)blocks->sizes[i];
            double excess = hak__exponential_weight(blocks->sizes[i], PERIOD) - 1;
            variance.count += excess;
            variance.bytes += size * size * excess;
        }
    }
    return (struct deviation){sqrt(variance.count), sqrt(variance.bytes)};
}

static void run_workload(const char *name, enum shape shape, const struct sizes *sizes)
{
    struct blocks blocks;
    blocks_start(&blocks, total_bytes() / next_size(sizes, &(uint64_t){1}) * 4 + 100000);
    seed((uint64_t)shape * 100 + 7);
    struct figures before = figures_now();
    run_shape(&blocks, shape, sizes, total_bytes());
    struct figures after = figures_now();
    struct deviation deviation = blocks_deviation(&blocks);
    double live_bytes = (double)blocks.live_bytes, live_count = (double)blocks.live_count;
    require_close(name, after.live_bytes - before.live_bytes, live_bytes,
                  5 * deviation.bytes / live_bytes);
    require_close(name, after.live_count - before.live_count, live_count,
                  5 * deviation.count / live_count);
    for (size_t i = 0; i < blocks.count; i++) {
        blocks_free(&blocks, i);
    }
    struct figures end = figures_now();
    assert_true(fabs(end.live_bytes - before.live_bytes) < 1);
    assert_int_equal(hak__samples_count, 0);
    hak__sampling_set(SAMPLING_OWN, 0, false);
}

static uint32_t owner_of(const void *pointer)
{
    return window_owner(window_slice_of(pointer));
}

/* Each request of this thread is a sample from now on. */
static void sample_each(void)
{
    hak_free(hak_malloc(1));
    hak__sampling_set(SAMPLING_OWN, 1, false);
    while (hak__thread->sampler.epoch != hak__sampling.epoch) {
        hak_free(hak_malloc(100));
    }
}

static void *free_all(void *argument)
{
    struct blocks *blocks = argument;
    for (size_t i = 0; i < blocks->count; i++) {
        blocks_free(blocks, i);
    }
    return NULL;
}

static size_t sampled_slices(void)
{
    size_t count = 0, end = atomic_load_acquire(&hak__window.shared_limit);
    for (size_t slice = 0; slice < end; slice++) {
        count += owner_is_slab_of(window_owner(slice), ARENA_ID_SAMPLES);
    }
    return count;
}

/* Samples of each class, freed by this thread and by another one: nobody else gets their objects,
 * and their slabs go back. */
TEST(objects_of_samples)
{
    struct blocks blocks[2];
    blocks_start(&blocks[0], CLASS_COUNT * EACH);
    blocks_start(&blocks[1], CLASS_COUNT * EACH);
    size_t before = hak__samples_count;
    sample_each();
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        size_t usable = size_class_usable(class_index);
        for (size_t i = 0; i < EACH; i++) {
            unsigned char *block = hak_malloc(usable);
            blocks_add(&blocks[i % 2], block, usable);
            assert_true(owner_is_slab_of(owner_of(block), ARENA_ID_SAMPLES));
            assert_true(hak_usable_size(block) >= usable);
            memset(block, (int)i, usable);
        }
    }
    for (size_t i = 0; i < 2 * blocks[0].count; i++) { /* no two overlap */
        const unsigned char *block = blocks[i % 2].blocks[i / 2];
        assert_int_equal(block[0], i % EACH);
        assert_int_equal(block[blocks[i % 2].sizes[i / 2] - 1], i % EACH);
    }
    assert_int_equal(hak__samples_count, before + 2 * blocks[0].count);
    hak__sampling_set(SAMPLING_OWN, 0, false);
    (void)free_all(&blocks[0]);
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        REQUIRE(hak__gate_enter(GATE_BRIEFLY));
        struct object_list list = hak__arena_borrow(hak__thread->arena, class_index, 1);
        hak__gate_leave();
        assert_int_equal(list.count, 0);
        blocks[0].blocks[class_index] = hak_malloc(size_class_usable(class_index));
        assert_false(owner_is_slab_of(owner_of(blocks[0].blocks[class_index]), ARENA_ID_SAMPLES));
    }
    thread_join(thread_start(free_all, &blocks[1]));
    assert_int_equal(hak__samples_count, before);
    (void)free_all(&blocks[0]);
    (void)hak_trim(0);
    assert_int_equal(sampled_slices(), 0);
}

TEST(a_sampled_object_is_resized)
{
    char *block;
    seed(5);
    do {
        block = hak_malloc(3000);
        assert_non_null(block);
    } while (!owner_is_slab_of(owner_of(block), ARENA_ID_SAMPLES));
    assert_true(hak_usable_size(block) == hak_good_size(3000) && hak_owns(block));
    assert_ptr_equal(hak_realloc(block, 2900), block);
    memset(block, 'x', 2900);
    block = hak_realloc(block, 100);
    assert_true(block != NULL && block[99] == 'x');
    block = hak_realloc(block, 100000);
    assert_true(block != NULL && block[99] == 'x');
    hak_free(block);
    hak__sampling_set(SAMPLING_OWN, 0, false);
}

TEST(weights)
{
    for (uint64_t period = 1; period < UINT64_C(1) << 40; period = period * 3 + 1) {
        for (uint64_t size = 1; size < UINT64_C(1) << 44; size += size / 3 + 1) {
            double expected = 1 / -expm1(-(double)size / (double)period);
            double weight = hak__exponential_weight(size, period);
            assert_true(weight >= 1 && fabs(weight / expected - 1) < 1e-8);
        }
    }
    assert_true(hak__exponential_weight(0, 100) == hak__exponential_weight(1, 100));
    assert_int_equal(hak__exponential_draw(UINT64_MAX, 1 << 20), 0);
    double longest = (double)hak__exponential_draw(0, 1 << 20) / (1 << 20); /* 2^-54: ln is 37.4 */
    assert_true(longest > 37 && longest < 40);
    assert_true(hak__exponential_draw(0, UINT64_C(1) << 50) > 0);
}

TEST(live_bytes_of_workloads)
{
    static const struct {
        const char *name;
        enum shape shape;
        const struct sizes *sizes;
    } workloads[] = {
        {"16 bytes", KEEP_ALL, &size_16},
        {"100 bytes", KEEP_ALL, &size_100},
        {"4096 bytes", KEEP_ALL, &size_4096},
        {"up to 1000", KEEP_ALL, &size_to_1000},
        {"up to 64 KiB", KEEP_ALL, &size_to_64k},
        {"skewed", KEEP_ALL, &size_skewed},
        {"spans", KEEP_ALL, &size_spans},
        {"huge blocks", KEEP_ALL, &size_huge},
        {"half of 100 bytes", FREE_HALF, &size_100},
        {"half of skewed", FREE_HALF, &size_skewed},
        {"half of huge blocks", FREE_HALF, &size_huge},
        {"queue of 1000", FREE_OLD, &size_to_1000},
        {"queue of skewed", FREE_OLD, &size_skewed},
        {"realloc of 1000", RESIZE, &size_to_1000},
        {"realloc of spans", RESIZE, &size_spans},
        {"realloc of huge blocks", RESIZE, &size_huge},
        {"calloc", CALLOC, &size_to_64k},
        {"aligned", ALIGNED, &size_to_64k},
        {"one block again and again", RECYCLE, &size_4096},
        {"bursts", BURSTS, &size_to_1000},
    };
    for (size_t i = 0; i < COUNT_OF(workloads); i++) {
        run_workload(workloads[i].name, workloads[i].shape, workloads[i].sizes);
    }
}

/* --- threads --- */

static void *allocate_all(void *argument)
{
    seed(99);
    run_shape(argument, KEEP_ALL, &size_to_1000, total_bytes() / 4);
    return NULL;
}

/* One thread allocates, another one frees: blocks migrate. */
TEST(frees_of_other_threads)
{
    struct blocks blocks;
    blocks_start(&blocks, total_bytes() / 100);
    struct figures before = figures_now();
    thread_join(thread_start(allocate_all, &blocks));
    double count = (double)blocks.live_count;
    require_close("migration", figures_now().live_bytes - before.live_bytes,
                  (double)blocks.live_bytes, SUPPORT_SLOW ? 0.2 : 0.05);
    thread_join(thread_start(free_all, &blocks));
    assert_true(fabs(figures_now().live_bytes - before.live_bytes) < 1);
    require_close("remote frees", figures_now().freed_remote - before.freed_remote, count,
                  SUPPORT_SLOW ? 0.2 : 0.05);
    hak__sampling_set(SAMPLING_OWN, 0, false);
}

static void *allocate_first(void *size)
{
    return hak_malloc(*(size_t *)size);
}

/* The first request of a thread may be its only large one: a span, and a huge block. */
TEST(first_request)
{
    static size_t sizes[] = {MIB, 64 * MIB};
    for (size_t i = 0; i < 2; i++) {
        void *block;
        seed(1); /* new for all threads */
        struct figures before = figures_now();
        REQUIRE(pthread_join(thread_start(allocate_first, &sizes[i]), &block) == 0);
        assert_true(figures_now().live_bytes - before.live_bytes >= (double)sizes[i]);
        hak_free(block);
        hak__sampling_set(SAMPLING_OWN, 0, false);
    }
}

/* --- what each site held when all together held most --- */

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

/* Each allocation is a sample, so the figures are exact. In a program of its own, whose peak is
 * that of this test. */
TEST_ANEW(the_peak)
{
    struct block blocks[BLOCKS] = {{NULL, 0, 0}};
    REQUIRE(group_start(NULL) == 0);
    uint64_t random = 7;
    sample_each();
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

/* Last: this process takes no stacks from then on. */
TEST(stacks_after_fork)
{
    uintptr_t frames[STACK_DEPTH_MAX];
    hak__stacks_lock_loader = false;
    hak__stacks_fork_child(true);
    assert_true(hak__stack_capture(frames, STACK_DEPTH_MAX) != 0);
    hak__stacks_lock_loader = true;
    hak__stacks_fork_child(false);
    assert_true(hak__stack_capture(frames, STACK_DEPTH_MAX) != 0);
    hak__stacks_fork_child(true);
    assert_int_equal(hak__stack_capture(frames, STACK_DEPTH_MAX), 0);
    assert_false(hak__stacks_start());
    assert_int_equal(hak_profile_start(PERIOD), 0); /* samples without stacks are samples */
    assert_true(sampling_is_on());
    hak_profile_stop();
    assert_int_equal(hak__stack_capture(frames, STACK_DEPTH_MAX), 0);
}

TESTS(group_start)
