/* SPDX-License-Identifier: MIT */
/* test_double_free.c: an allocation freed twice ends the process with a message: at once if nothing
 * was freed between, else at the latest before it would have two owners.
 *
 * ctest: not-again
 */
#include "../child.h"
#include "../threads/threads.h"

#include "hakmem/heap.h"

static void free_twice(void *argument)
{
    size_t size = *(size_t *)argument;
    void *keep = hak_malloc(size); /* a neighbour, so that the region is not given back whole */
    void *block = hide(hak_malloc(size));
    REQUIRE(keep != NULL && block != NULL);
    hak_free(block);
    hak_free(hide(block));
}

/* At once, in every tier. A huge block too large for the cache is unmapped at once: nobody can know
 * that it was ours. */
TEST(at_once)
{
    static size_t sizes[] = {1,      16,     100,     1024,    5000,    65536,    65665,
                             131072, 800000, 2 * MIB, 3 * MIB, 8 * MIB, 100 * MIB};
    for (size_t i = 0; i < COUNT_OF(sizes) - 1; i++) {
        REQUIRE_DEATH(free_twice, &sizes[i], "^hakmem: fatal: .*double free.*pointer 0x[0-9a-f]+");
    }
    struct child_end end;
    child_fork(free_twice, &sizes[COUNT_OF(sizes) - 1], &end);
    assert_true(text_matches(end.text, "^hakmem: .*(double free|foreign pointer).*0x[0-9a-f]+"));
}

/* What one program's bug makes of it: the block freed twice is handed out again. Every form of the
 * two frees ends the process before the same address is handed out twice. */
struct two_owners {
    size_t size;
    size_t between; /* other objects freed between the two frees */
    bool by_another_thread;
};

static void *free_one(void *argument)
{
    hak_free(argument);
    return NULL;
}

static void get_two_owners(void *argument)
{
    const struct two_owners *how = argument;
    char *blocks[40], *again[200];
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = hide(hak_malloc(how->size));
        REQUIRE(blocks[i] != NULL);
    }
    hak_free(blocks[0]);
    for (size_t i = 1; i <= how->between; i++) {
        hak_free(blocks[i]);
    }
    if (how->by_another_thread) {
        thread_join(thread_start(free_one, hide(blocks[0])));
    } else {
        hak_free(hide(blocks[0]));
    }
    for (size_t i = 0; i < COUNT_OF(again); i++) {
        again[i] = hide(hak_malloc(how->size));
        for (size_t j = 0; j < i; j++) {
            REQUIRE(again[i] != again[j]);
        }
    }
}

TEST(never_two_owners)
{
    static struct two_owners cases[] = {{16, 0, false},   {100, 1, false},  {100, 30, false},
                                        {1000, 5, false}, {3000, 1, false}, {3000, 30, false},
                                        {100, 0, true},   {1000, 20, true}, {5000, 3, true}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        REQUIRE_DEATH(get_two_owners, &cases[i], "^hakmem: fatal: .*(double free|corrupted)");
    }
}

enum { RACERS = 2, RACES = SUPPORT_SLOW ? 5 : 60 };
static uint32_t shared_racers;

/* Both threads free a block, and when both frees are over, each allocates. */
static struct race {
    size_t size;
    struct hak_heap *heap; /* NULL: malloc's */
    void *block;
    uint32_t shared_freed;
    void *shared_got[RACERS];
} race;

static void *race_allocate(void)
{
    return race.heap != NULL ? hak_heap_malloc(race.heap, race.size) : hak_malloc(race.size);
}

static void race_free(void *block)
{
    if (race.heap != NULL) {
        hak_heap_free(race.heap, block);
    } else {
        hak_free(block);
    }
}

static void *free_and_allocate(void *got)
{
    for (int i = 0; i < 64; i++) {
        race_free(race_allocate());
    }
    __atomic_add_fetch(&shared_racers, 1, __ATOMIC_RELAXED);
    while (__atomic_load_n(&shared_racers, __ATOMIC_RELAXED) != RACERS) {
    }
    race_free(hide(race.block));
    __atomic_add_fetch(&race.shared_freed, 1, __ATOMIC_RELAXED);
    while (__atomic_load_n(&race.shared_freed, __ATOMIC_RELAXED) != RACERS) {
    }
    *(void **)got = hide(race_allocate());
    return NULL;
}

static void race_for_a_block(void *heap_or_null)
{
    pthread_t threads[RACERS];
    race.heap = heap_or_null;
    race.block = hide(race_allocate());
    REQUIRE(race.block != NULL);
    for (size_t i = 0; i < RACERS; i++) {
        threads[i] = thread_start(free_and_allocate, &race.shared_got[i]);
    }
    JOIN_ALL(threads, RACERS);
    REQUIRE(race.shared_got[0] != race.shared_got[1]);
}

/* The process aborts, or the threads get different blocks. */
TEST(two_threads_never_both_own)
{
    static const size_t sizes[] = {64, 1000, 2000, 40000, 200000};
    struct hak_heap *heap = hak_heap_create(NULL);
    REQUIRE(heap != NULL);
    for (size_t i = 0; i < COUNT_OF(sizes) * 2; i++) {
        race.size = sizes[i / 2];
        for (size_t trial = 0; trial < RACES; trial++) {
            struct child_end end;
            child_fork(race_for_a_block, i % 2 == 0 ? NULL : heap, &end);
            bool right = WIFEXITED(end.status) ? WEXITSTATUS(end.status) == 0
                                               : text_matches(end.text, "^hakmem: fatal: ");
            if (!right) {
                support_fail("%zu bytes: %s\n", race.size, end.text);
            }
        }
    }
    hak_heap_destroy(heap);
}

static void ask_after_free(void *argument)
{
    void *block = hide(hak_malloc(*(size_t *)argument));
    REQUIRE(block != NULL);
    hak_free(block);
    (void)hide_size(hak_usable_size(hide(block)));
}

static void realloc_after_free(void *argument)
{
    size_t size = *(size_t *)argument;
    void *block = hide(hak_malloc(size));
    REQUIRE(block != NULL);
    hak_free(block);
    block = hide(hak_realloc(hide(block), size * 2));
}

TEST(realloc_after_free)
{
    static size_t sizes[] = {800000, 8 * MIB};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        REQUIRE_DEATH(realloc_after_free, &sizes[i], "^hakmem: fatal: .*pointer 0x[0-9a-f]+");
    }
    REQUIRE_DEATH(realloc_after_free, &sizes[1], "use after free: realloc of a freed block");
    REQUIRE_DEATH(ask_after_free, &sizes[1], "use after free: malloc_usable_size of a freed block");
}

enum { REMOTE_OBJECTS = 5000 };
static void *remote_objects[REMOTE_OBJECTS];

static void *free_all_of_another(void *argument)
{
    FREE_ALL(remote_objects, REMOTE_OBJECTS);
    return argument;
}

static void free_remotely_twice(void *argument)
{
    ALLOCATE_ALL(remote_objects, REMOTE_OBJECTS, *(size_t *)argument);
    for (int i = 0; i < 2; i++) {
        thread_join(thread_start(free_all_of_another, NULL));
    }
}

TEST(by_another_thread)
{
    static size_t sizes[] = {64, 1000};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        REQUIRE_DEATH(free_remotely_twice, &sizes[i], "^hakmem: fatal: .*(double free|corrupted)");
    }
}

/* What another thread made is kept in this thread's bin, where its class has lines of its own. */
static void *free_kept_twice(void *argument)
{
    size_t size = *(size_t *)argument;
    void *own[4];
    for (size_t i = 0; i < COUNT_OF(own); i++) {
        own[i] = hide(hak_malloc(size));
        REQUIRE(own[i] != NULL);
    }
    FREE_ALL(own, COUNT_OF(own));
    own[0] = hide(hak_malloc(size)); /* room for the other's */
    hak_free(remote_objects[0]);
    hak_free(hide(remote_objects[0]));
    hak_trim(0);
    return argument;
}

static void keep_twice(void *argument)
{
    remote_objects[0] = hide(hak_malloc(*(size_t *)argument));
    thread_join(thread_start(free_kept_twice, argument));
    /* its arena looks at its lists */
    ALLOCATE_ALL(remote_objects, REMOTE_OBJECTS, *(size_t *)argument);
    free_all_of_another(NULL);
    hak_trim(0);
}

TEST(kept_by_another_thread)
{
    static size_t sizes[] = {1100, 5000, 40000};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        REQUIRE_DEATH(keep_twice, &sizes[i], "^hakmem: fatal: .*(double free|corrupted)");
    }
}

TESTS(NULL)
