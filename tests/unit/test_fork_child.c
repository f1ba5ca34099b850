/* SPDX-License-Identifier: MIT */
/* test_fork_child.c: what a fork's child does with the blocks and the free memory of its parent,
 * and its children with theirs.
 *
 * Each test fills slabs of a class that the other tests do not use, forks, and looks at the slabs
 * in the child.
 *
 * ctest: no-qemu
 */
#include "forks.h"

#include "control/census.h"

enum { BLOCKS_MAX = 20000 };

static void *blocks[BLOCKS_MAX];
static size_t blocks_count, block_size;

/* Fills about so many slabs of the class. All bytes of a block say which it is. */
static void fill_slabs(size_t size, size_t slabs)
{
    block_size = size;
    blocks_count = slabs * hak__size_classes[size_class_of(size)].objects_per_slab;
    REQUIRE_SIZE(blocks_count, <=, BLOCKS_MAX);
    for (size_t i = 0; i < blocks_count; i++) {
        blocks[i] = hak_malloc(size);
        REQUIRE(blocks[i] != NULL);
        memset(blocks[i], (int)(i % 251), size);
    }
}

static void free_block(size_t i)
{
    const unsigned char *block = blocks[i];
    REQUIRE(block[0] == i % 251 && block[block_size - 1] == i % 251);
    hak_free(blocks[i]);
    blocks[i] = NULL;
}

static void free_all(void)
{
    for (size_t i = 0; i < blocks_count; i++) {
        if (blocks[i] != NULL) {
            free_block(i);
        }
    }
}

/* Slabs of the class. */
static size_t slabs_left(void)
{
    struct census census;
    hak__census_take(&census);
    return census.classes[size_class_of(block_size)].slabs_count;
}

static void require_nothing_left(void)
{
    free_all();
    hak_trim(0);
    REQUIRE_SIZE(slabs_left(), ==, 0);
    REQUIRE(none_is_held());
}

/* --- what the parent had cached --- */

static uint64_t use_before;

static void know_what_was_free(void)
{
    REQUIRE(stats_now().bytes_in_use == use_before);
    for (size_t i = 0; i < WAITERS; i++) {
        REQUIRE(waiters[i].thread->arena == NULL); /* its struct may serve another thread */
        REQUIRE_SIZE(hak__cache_bytes(&waiters[i].thread->cache), ==, 0);
    }
    require_nothing_left();
    for (const struct arena *arena = hak__arena_first(); arena != NULL; arena = arena->next) {
        REQUIRE(arena->spans.slices == 0);
    }
}

TEST(cached_objects_come_back)
{
    start_waiters();
    fill_slabs(420, 10);
    hak_free(hak_malloc(100000)); /* a kept span */
    for (size_t i = 0; i < blocks_count; i += 2) {
        free_block(i); /* some into bins, some into slabs */
    }
    for (size_t i = 0; i < WAITERS; i++) { /* what waits in remote buffers is lost to the child */
        hak__remote_flush(&waiters[i].thread->cache);
    }
    use_before = stats_now().bytes_in_use;
    fork_and_run(know_what_was_free);
    require_nothing_left();
    end_waiters();
}

/* --- children of children --- */

enum { GENERATIONS = 40, CHAIN_THREADS = 4, CHAIN_BLOCKS = 200, CHAIN_SIZE = 700 };

static void *fill_a_cache(void *argument)
{
    void *own[CHAIN_BLOCKS];
    ALLOCATE_ALL(own, COUNT_OF(own), CHAIN_SIZE);
    FREE_ALL(own, COUNT_OF(own));
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier); /* the fork comes meanwhile */
    return argument;
}

static uint32_t generations;
static size_t structs_before;
static uint64_t taken_before;

static uint64_t taken_bytes(void)
{
    struct hak_stats stats = stats_now();
    return stats.bytes_in_use + stats.bytes_cached + stats.bytes_free_in_slabs;
}

/* Each process replaces half of its parent's blocks, and forks beside threads with full caches. */
static void go_on(void)
{
    pthread_t threads[CHAIN_THREADS];
    for (size_t i = generations % 2; i < blocks_count; i += 2) {
        free_block(i);
    }
    for (size_t i = generations % 2; i < blocks_count; i += 2) {
        blocks[i] = hak_malloc(block_size);
        REQUIRE(blocks[i] != NULL);
        memset(blocks[i], (int)(i % 251), block_size);
    }
    REQUIRE(pthread_barrier_init(&barrier, NULL, CHAIN_THREADS + 1) == 0);
    threads_start(threads, CHAIN_THREADS, fill_a_cache, 0);
    pthread_barrier_wait(&barrier);
    if (generations == 1) {
        structs_before = threads_count();
        taken_before = taken_bytes();
    }
    if (++generations < GENERATIONS) {
        fork_and_run(go_on);
    } else {
        REQUIRE_SIZE(threads_count(), ==, structs_before);
        /* Threads that run one after another need less than those that run at once. */
        size_t caches = CHAIN_THREADS * (CHAIN_BLOCKS * CHAIN_SIZE + 2 * SLICE_SIZE);
        REQUIRE_SIZE(taken_bytes(), <=, taken_before + caches);
        hak_trim(0);
        require_nothing_left();
    }
    pthread_barrier_wait(&barrier);
    JOIN_ALL(threads, CHAIN_THREADS);
}

/* --- misuse --- */

static void free_twice(void *argument)
{
    size_t kind = *(size_t *)argument;
    fill_slabs(800, 3);
    void *block = blocks[kind == 2 ? 0 : 5];
    if (kind == 1) {
        hak_free(block); /* by the parent: into its bin */
    } else if (kind == 2) {
        free_all(); /* or its slab */
        hak_trim(0);
    }
    hak__fork_prepare();
    hak__fork_child(); /* as the child */
    if (kind == 0) {
        hak_free(block);
    }
    hak_free(hide(block));
    ALLOCATE_ALL(blocks, blocks_count, block_size); /* before it would have two owners */
}

TEST(double_free)
{
    for (size_t kind = 0; kind < 3; kind++) {
        REQUIRE_DEATH(free_twice, &kind, "^hakmem: fatal: .*double free.*pointer 0x[0-9a-f]+");
    }
}

static void free_inside(void *argument)
{
    fill_slabs(860, 1);
    hak__fork_prepare();
    hak__fork_child();
    hak_free((char *)blocks[3] + *(size_t *)argument);
}

TEST(invalid_free)
{
    static size_t offsets[] = {8, 16, 32};
    for (size_t i = 0; i < COUNT_OF(offsets); i++) {
        REQUIRE_DEATH(free_inside, &offsets[i], "^hakmem: fatal: .*invalid.*pointer 0x[0-9a-f]+");
    }
}

/* --- threads of the child --- */

enum { CHILD_THREADS = 4 };

static void *replace_blocks(void *argument)
{
    size_t first = (size_t)(uintptr_t)argument;
    void *own[64] = {NULL};
    for (size_t i = first; i < blocks_count; i += CHILD_THREADS) {
        void **slot = &own[i % COUNT_OF(own)];
        free_block(i);
        hak_free(*slot);
        *slot = hak_malloc(block_size);
        REQUIRE(*slot != NULL);
        memset(*slot, 254, block_size);
    }
    FREE_ALL(own, COUNT_OF(own));
    return NULL;
}

static void replace_together(void)
{
    threads_run(CHILD_THREADS, replace_blocks, 0);
    require_nothing_left();
}

/* What the child does with that many slabs of its parent's; then the parent frees them. */
TEST(children)
{
    static const struct {
        size_t size, slabs;
        void (*body)(void);
    } cases[] = {{720, 4, go_on}, {80, 12, replace_together}, {2200, 12, replace_together}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        fill_slabs(cases[i].size, cases[i].slabs);
        fork_and_run(cases[i].body);
        require_nothing_left();
    }
}

TESTS(start_with_many_arenas)
