/* SPDX-License-Identifier: MIT */
/* test_inherited.c: slab/slab_inherited and arena/inherited: what a fork's child does with the
 * blocks and the free memory of its parent.
 *
 * Each test fills slabs of a class that the other tests do not use, forks, and looks at the slabs
 * in the child. */
#include "forks.h"

#include "slab/slab_inherited.h"

enum { BLOCKS_MAX = 20000 };

static void *blocks[BLOCKS_MAX];
static size_t blocks_count, block_size;

static uint32_t block_class(void)
{
    return size_class_of(block_size);
}

static size_t objects_per_slab(void)
{
    return hak__size_classes[block_class()].objects_per_slab;
}

/* Fills about so many slabs of the class. All bytes of a block say which it is. */
static void fill_slabs(size_t size, size_t slabs)
{
    block_size = size;
    blocks_count = slabs * objects_per_slab();
    REQUIRE_SIZE(blocks_count, <=, BLOCKS_MAX);
    for (size_t i = 0; i < blocks_count; i++) {
        blocks[i] = hak_malloc(size);
        REQUIRE(blocks[i] != NULL);
        memset(blocks[i], (int)(i % 251), size);
    }
}

static void check_block(size_t i)
{
    const unsigned char *block = blocks[i];
    REQUIRE(block[0] == i % 251 && block[block_size - 1] == i % 251);
}

static void free_block(size_t i)
{
    check_block(i);
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

static bool is_inherited(const void *block)
{
    return window_is_inherited(window_owner(window_slice_of(block)));
}

/* Slabs of the class that all arenas have. */
static size_t slabs_left(void)
{
    size_t count = 0;
    for (const struct arena *arena = hak__arena_first(); arena != NULL; arena = arena->next) {
        count += arena->slabs.totals[block_class()].slabs_count;
    }
    return count;
}

/* --- take-over --- */

static void *again[BLOCKS_MAX];

/* No block in use is handed out. */
static void allocate_again(size_t count)
{
    ALLOCATE_ALL(again, count, block_size);
    for (size_t i = 0; i < count; i++) {
        memset(again[i], 255, block_size);
    }
    for (size_t i = 0; i < blocks_count; i++) {
        if (blocks[i] != NULL) {
            check_block(i);
        }
    }
}

static void free_again(size_t count)
{
    FREE_ALL(again, count);
}

/* Frees `part` of each `of` blocks; how many. */
static size_t free_part(size_t of, size_t part)
{
    size_t count = 0;
    for (size_t i = 0; i < blocks_count; i++) {
        if (i % of < part) {
            free_block(i);
            count++;
        }
    }
    return count;
}

/* --- what the parent had cached --- */

static uint64_t use_before;

static void know_what_was_free(void)
{
    REQUIRE(stats_now().bytes_in_use == use_before);
    free_all();
    hak_trim(0);
    REQUIRE_SIZE(slabs_left(), ==, 0);
    for (const struct arena *arena = hak__arena_first(); arena != NULL; arena = arena->next) {
        REQUIRE(arena->spans.slices == 0 || !arena_is_inherited(arena));
    }
}

TEST(cached_objects_are_counted)
{
    fill_slabs(420, 10);
    hak_free(hak_malloc(100000)); /* a kept span */
    free_part(2, 1);              /* some in bins, some in slabs */
    use_before = stats_now().bytes_in_use;
    fork_and_run(know_what_was_free);
    free_all();
    hak_trim(0);
}

/* --- children of children --- */

static uint32_t generations;

static void go_on(void)
{
    hak_free(hak_malloc(50));
    if (++generations < 40) {
        fork_and_run(go_on);
    } else {
        REQUIRE_SIZE(threads_count(), <=, 4 + 40 / 2); /* structs are used again */
        free_all();
        hak_trim(0);
        REQUIRE_SIZE(slabs_left(), ==, 0);
    }
}

/* --- misuse, refusals, no memory --- */

static void free_twice(void *argument)
{
    size_t kind = *(size_t *)argument;
    fill_slabs(800, 3);
    void *block = blocks[kind == 2 ? 0 : 5];
    if (kind == 1) {
        hak_free(block); /* by the parent: into its bin */
    } else if (kind == 2) {
        free_part(2, 1); /* or its slab */
        hak_trim(0);
    } else if (kind == 3) {
        block = hak_malloc(3333); /* the only one of its slab */
        hak_free(block);
    }
    hak__fork_prepare();
    hak__fork_child(); /* as the child */
    if (kind == 0) {
        hak_free(block);
        hak_free(hak_malloc(10));
    }
    hak_free(hide(block));
}

TEST(double_free)
{
    for (size_t kind = 0; kind < 4; kind++) {
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

/* In a signal handler that interrupted an operation the lock may not be taken: the free is done
 * later. */
static void free_while_inside(void)
{
    hak__inside = INSIDE_LOCK;
    for (size_t i = 0; i + 1 < blocks_count; i++) {
        free_block(i);
    }
    hak__inside = 0;
    (void)hak__gate_was_refused();
    REQUIRE_SIZE(slabs_left(), !=, 0);
    free_block(blocks_count - 1);
    hak_trim(0);
    REQUIRE_SIZE(slabs_left(), ==, 0);
}

static void free_without_bits(void)
{
    hak__os_set_limit(hak__os_mapped_bytes());
    size_t mapped = hak__slab_bits_bytes();
    free_part(2, 1);
    REQUIRE_SIZE(hak__slab_bits_bytes(), ==, mapped);
    hak__os_set_limit(UINT64_MAX);
    free_all(); /* these are counted */
    REQUIRE_SIZE(hak__slab_bits_bytes(), >, mapped);
    hak_trim(0);
    REQUIRE_SIZE(slabs_left(), ==, 0);
}

/* No arena can be made: the child's thread draws from an inherited one. */
static void draw_from_the_parents_arena(void)
{
    size_t slabs = slabs_left(), count = free_part(3, 2);
    struct arena *arena = hak__arena_first();
    struct thread *thread = hak__thread_adopt();
    REQUIRE(thread != NULL && thread->arena != arena);
    hak__thread_park(thread); /* its struct: now there is one to be had */
    thread = hak__thread_adopt();
    hak__cache_start(&thread->cache, &arena->slabs);
    thread->arena = arena;
    hak__thread = thread;
    REQUIRE(is_inherited(blocks[2]));
    allocate_again(count);
    free_all();
    free_again(count);
    hak_trim(0);
    REQUIRE_SIZE(slabs_left(), <=, slabs);
}

/* A thread that draws from the parent's arena has objects of its slabs in its bins. */
static void take_over_beside_a_thread(void)
{
    size_t count = free_part(3, 2);
    struct arena *arena = hak__arena_join(ARENA_ESCAPE);
    REQUIRE(count != 0 && arena != NULL && !arena_is_inherited(arena));
    struct slab_set *from = slab_of_slice(window_slice_of(blocks[2]))->owner;
    REQUIRE(is_inherited(blocks[2]) && slab_may_lend(from, block_class()));
    for (struct arena *at = hak__arena_first(); at != NULL; at = at->next) {
        hak__slab_draw(&at->slabs);
    }
    lock_acquire(&arena->lock);
    REQUIRE(hak__slab_take_over(&arena->slabs, block_class()) == NULL);
    REQUIRE(hak__slab_take_over_any(&arena->slabs, block_class()) == NULL);
    from->shared_drawn = false;
    REQUIRE(hak__slab_take_over(&arena->slabs, block_class()) != NULL);
    lock_release(&arena->lock);
    hak__arena_part(arena);
}

/* --- threads of the child --- */

enum { CHILD_THREADS = 4 };

static void *use_inherited(void *argument)
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

static void use_inherited_together(void)
{
    threads_run(CHILD_THREADS, use_inherited, 0);
    hak_trim(0);
    REQUIRE_SIZE(slabs_left(), ==, 0);
    REQUIRE(none_is_held());
}

/* What the child does with that many slabs of its parent's; then the parent frees them. */
TEST(children)
{
    static const struct {
        size_t size, slabs;
        void (*body)(void);
    } cases[] = {
        {720, 4, go_on},
        {900, 6, free_while_inside},
        {960, 6, free_without_bits},
        {1010, 6, draw_from_the_parents_arena},
        {1100, 6, take_over_beside_a_thread},
        {80, 12, use_inherited_together},
        {2200, 12, use_inherited_together},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        fill_slabs(cases[i].size, cases[i].slabs);
        fork_and_run(cases[i].body);
        free_all();
        hak_trim(0);
    }
}

TESTS(start_with_many_arenas)
