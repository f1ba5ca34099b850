/* SPDX-License-Identifier: MIT */
/* test_samples.c: observe/samples: the sums of a profile against the exact figures. The generators
 * of all threads start from fixed seeds, and each thread allocates the same sizes in each run. So
 * the samples are the same in each run, and no test can fail by chance.
 */
#include "unit.h"

#include "base/exponential.h"
#include "control/life.h"
#include "large/sampled.h"
#include "observe/samples.h"

#include <math.h>
#include <pthread.h>

enum { PERIOD = 4096 };

static size_t total_bytes(void)
{
    return SUPPORT_SLOW ? 4 * MIB : 40 * MIB;
}

static void seed(uint64_t number)
{
    hak_free(hak_malloc(1)); /* the thread has a struct from now on */
    hak__thread->sampler.random = number * UINT64_C(0x9e3779b97f4a7c15) + 1;
    hak__sampling_set(PERIOD, false);
    while (hak__thread->sampler.epoch != hak__sampling.epoch) {
        hak_free(hak_malloc(100));
    }
}

struct figures {
    double live_bytes;
    double live_count;
    double allocated_bytes;
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
        sum.allocated_bytes += sums.allocated_bytes;
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

typedef size_t next_size(uint64_t *random);

static size_t size_16(uint64_t *random)
{
    return 16;
}

static size_t size_100(uint64_t *random)
{
    return 100;
}

static size_t size_4096(uint64_t *random)
{
    return 4096;
}

static size_t size_to_1000(uint64_t *random)
{
    return 1 + random_next(random) % 1000;
}

static size_t size_to_64k(uint64_t *random)
{
    return 1 + random_next(random) % 65536;
}

static size_t size_skewed(uint64_t *random)
{
    return random_size(random, 18);
}

static size_t size_spans(uint64_t *random)
{
    return 66000 + random_next(random) % 1000000;
}

static size_t size_whales(uint64_t *random)
{
    return (size_t)(3 * MIB) + random_next(random) % MIB;
}

enum shape { KEEP_ALL, FREE_HALF, FREE_OLD, RESIZE, CALLOC, ALIGNED, RECYCLE, BURSTS };

static void *allocate_shaped(enum shape shape, size_t size)
{
    return shape == CALLOC    ? hak_calloc(1, size)
           : shape == ALIGNED ? hak_aligned_alloc(256, size)
                              : hak_malloc(size);
}

/* Runs the workload in this thread; `bytes` in all. */
static void run_shape(struct blocks *blocks, enum shape shape, next_size *next, size_t bytes)
{
    uint64_t random = 12345;
    size_t first = 0; /* the oldest that is left */
    while (blocks->allocated_bytes < bytes) {
        size_t size = next(&random);
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

static void run_workload(const char *name, enum shape shape, next_size *next)
{
    struct blocks blocks;
    blocks_start(&blocks, total_bytes() / next(&(uint64_t){1}) * 4 + 100000);
    seed((uint64_t)shape * 100 + 7);
    struct figures before = figures_now();
    run_shape(&blocks, shape, next, total_bytes());
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
    assert_int_equal(hak__sampled_totals().objects_count, 0);
    assert_int_equal(hak__sample_blocks, 0);
    hak__sampling_set(0, false);
}

TEST(live_bytes_of_workloads)
{
    static const struct {
        const char *name;
        enum shape shape;
        next_size *next;
    } workloads[] = {
        {"16 bytes", KEEP_ALL, size_16},
        {"100 bytes", KEEP_ALL, size_100},
        {"4096 bytes", KEEP_ALL, size_4096},
        {"up to 1000", KEEP_ALL, size_to_1000},
        {"up to 64 KiB", KEEP_ALL, size_to_64k},
        {"skewed", KEEP_ALL, size_skewed},
        {"spans", KEEP_ALL, size_spans},
        {"whales", KEEP_ALL, size_whales},
        {"half of 100 bytes", FREE_HALF, size_100},
        {"half of skewed", FREE_HALF, size_skewed},
        {"half of whales", FREE_HALF, size_whales},
        {"queue of 1000", FREE_OLD, size_to_1000},
        {"queue of skewed", FREE_OLD, size_skewed},
        {"realloc of 1000", RESIZE, size_to_1000},
        {"realloc of spans", RESIZE, size_spans},
        {"realloc of whales", RESIZE, size_whales},
        {"calloc", CALLOC, size_to_64k},
        {"aligned", ALIGNED, size_to_64k},
        {"one block again and again", RECYCLE, size_4096},
        {"bursts", BURSTS, size_to_1000},
    };
    for (size_t i = 0; i < COUNT_OF(workloads); i++) {
        run_workload(workloads[i].name, workloads[i].shape, workloads[i].next);
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

/* --- threads --- */

static void *allocate_all(void *argument)
{
    seed(99);
    run_shape(argument, KEEP_ALL, size_to_1000, total_bytes() / 4);
    return NULL;
}

static double freed_remote(void)
{
    double sum = 0;
    struct stack_sums sums;
    struct samples_history history;
    float noted[HISTORY_MAX];
    const struct stack *stack = hak__samples_first_stack(&history);
    for (; stack != NULL; stack = stack->older) {
        REQUIRE(hak__samples_copy(stack, &sums, noted));
        sum += sums.freed_remote;
    }
    return sum;
}

/* One thread allocates, another one frees: blocks migrate. */
TEST(frees_of_other_threads)
{
    struct blocks blocks;
    pthread_t thread;
    blocks_start(&blocks, total_bytes() / 100);
    double remote = freed_remote();
    struct figures before = figures_now();
    REQUIRE(pthread_create(&thread, NULL, allocate_all, &blocks) == 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
    double count = (double)blocks.live_count;
    require_close("migration", figures_now().live_bytes - before.live_bytes,
                  (double)blocks.live_bytes, SUPPORT_SLOW ? 0.2 : 0.05);
    REQUIRE(pthread_create(&thread, NULL, free_all, &blocks) == 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
    assert_true(fabs(figures_now().live_bytes - before.live_bytes) < 1);
    require_close("remote frees", freed_remote() - remote, count, SUPPORT_SLOW ? 0.2 : 0.05);
    hak__sampling_set(0, false);
}

/* --- one block --- */

TEST(one_sampled_object)
{
    seed(5);
    char *block = NULL;
    for (size_t i = 0; i < 1000; i++) { /* until one is sampled */
        block = hak_malloc(3000);
        assert_non_null(block);
        if (window_owner(window_slice_of(block)) == OWNER_SAMPLED) {
            break;
        }
    }
    assert_int_equal(window_owner(window_slice_of(block)), OWNER_SAMPLED);
    assert_int_equal(hak_usable_size(block), hak_good_size(3000));
    assert_true(hak_owns(block));
    assert_ptr_equal(hak_realloc(block, 2900), block);
    assert_ptr_equal(hak_realloc(block, 1600), block);
    memset(block, 'x', 1600);
    char *small = hak_realloc(block, 100);
    assert_non_null(small);
    assert_int_equal(small[99], 'x');
    char *large = hak_realloc(small, 100000);
    assert_non_null(large);
    assert_int_equal(large[99], 'x');
    errno = 77;
    hak_free(large);
    assert_int_equal(errno, 77);
    hak__sampling_set(0, false);
}

/* With sampling off nothing is sampled, and what was sampled is still followed. */
TEST(off)
{
    seed(6);
    struct blocks blocks;
    blocks_start(&blocks, 100000);
    run_shape(&blocks, KEEP_ALL, size_to_1000, MIB);
    hak__sampling_set(0, false);
    struct figures off = figures_now();
    void *other = hak_malloc(8 * MIB);
    for (size_t i = 0; i < 10000; i++) {
        hak_free(hak_malloc(1000));
    }
    hak_free(other);
    assert_true(figures_now().allocated_bytes - off.allocated_bytes <
                300 * 1000); /* notices late */
    assert_true(figures_now().live_bytes > 0);
    free_all(&blocks);
    assert_true(fabs(figures_now().live_bytes) < 1);
}

static void *allocate_first(void *size)
{
    return hak_malloc(*(size_t *)size);
}

/* The first request of a thread may be its only large one: a span, and a whale. */
TEST(first_request)
{
    static size_t sizes[] = {MIB, 64 * MIB};
    for (size_t i = 0; i < 2; i++) {
        pthread_t thread;
        void *block;
        seed(1); /* new for all threads */
        struct figures before = figures_now();
        REQUIRE(pthread_create(&thread, NULL, allocate_first, &sizes[i]) == 0);
        REQUIRE(pthread_join(thread, &block) == 0 && block != NULL);
        assert_true(figures_now().live_bytes - before.live_bytes >= (double)sizes[i]);
        hak_free(block);
        hak__sampling_set(0, false);
    }
}

/* Last: this process takes no stacks from then on. */
TEST(stacks_after_fork)
{
    uintptr_t frames[STACK_DEPTH_MAX];
    hak__stacks_lock_loader = false;
    hak__stacks_fork_child(true);
    assert_true(hak__stack_capture(frames) != 0);
    hak__stacks_lock_loader = true;
    hak__stacks_fork_child(false);
    assert_true(hak__stack_capture(frames) != 0);
    hak__stacks_fork_child(true);
    assert_int_equal(hak__stack_capture(frames), 0);
    assert_false(hak__stacks_start(true));
    assert_int_equal(hak__stack_capture(frames), 0);
}

static int group_start(void **state)
{
    return hak__stacks_start(true) ? unit_start(state) : -1;
}

TESTS(group_start)
