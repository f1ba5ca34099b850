/* SPDX-License-Identifier: MIT */
/* test_arena.c: arena/arena: threads that share arenas: which one the next joins, how many there
 * get, that the counts stay exact, and what goes with a thread and what with the last one; no
 * memory.
 *
 * ctest: no-qemu
 */
#include "../child.h"
#include "../threads/threads.h"
#include "arenas.h"

static size_t joined_count(void)
{
    size_t count = 0;
    for (const struct arena *arena = hak__arena_first(); arena != NULL; arena = arena->next) {
        count += arena->threads_count;
    }
    return count;
}

static void adopt_without_memory(void *argument)
{
    rlim_t before = unit_limit_address_space(address_space_bytes());
    size_t count = threads_count(), joined = joined_count();
    while (hak__thread_adopt() != NULL) { /* parked ones and the rest of a chunk */
        REQUIRE(threads_count() < count + 100);
        joined++;
    }
    REQUIRE_SIZE(joined_count(), ==, joined); /* the one that got no struct draws from none */
    unit_limit_address_space(before);
    adopt();
}

/* There is a parked struct, and a new arena is due: without memory for it any other will do. */
static void join_without_memory(void *argument)
{
    hak__knobs.arenas_max = 1; /* what there is is shared */
    struct thread *thread;
    do {
        thread = adopt();
    } while (thread->arena->threads_count == 1); /* those without threads come first */
    hak__thread_park(thread);
    hak__knobs.arenas_max = ARENA_ID_MAX;
    size_t count = arenas_count();
    unit_limit_address_space(address_space_bytes());
    while (hak__metadata_allocate(HAK_CACHE_LINE) != NULL) {
    }
    assert_ptr_equal(adopt(), thread);
    assert_int_equal(arenas_count(), count);
    assert_true(thread->arena->threads_count >= 2);
    thread_free(thread, 3, thread_allocate(thread, 3));
}

TEST(no_memory)
{
    if (SUPPORT_SANITIZED) {
        skip();
    }
    REQUIRE_LIFE(adopt_without_memory, NULL, NULL);
    REQUIRE_LIFE(join_without_memory, NULL, NULL);
}

/* --- in a program of its own each: what a thread joins depends on what was made before --- */

static uint32_t shared_users[1000]; /* by arena id */
static pthread_barrier_t barrier;

/* Structs left behind, because the holder of their arena's lock did not run for long. */
static size_t shared_behind;

static void *join_and_part(void *argument)
{
    struct thread *mine[6] = {NULL};
    uint64_t random = (uintptr_t)argument;
    for (size_t i = 0; i < (SUPPORT_SLOW ? 5000 : 30000); i++) {
        struct thread **slot = &mine[random_below(&random, COUNT_OF(mine))];
        if (*slot == NULL) {
            *slot = adopt();
            REQUIRE(__atomic_exchange_n(&(*slot)->batches, 1, __ATOMIC_RELAXED) == 0);
            __atomic_fetch_add(&shared_users[(*slot)->arena->id], 1, __ATOMIC_RELAXED);
        } else {
            REQUIRE(__atomic_exchange_n(&(*slot)->batches, 0, __ATOMIC_RELAXED) == 1);
            __atomic_fetch_sub(&shared_users[(*slot)->arena->id], 1, __ATOMIC_RELAXED);
            hak__thread_park(*slot);
            bool behind = __atomic_load_n(&(*slot)->left_behind, __ATOMIC_RELAXED);
            __atomic_fetch_add(&shared_behind, behind, __ATOMIC_RELAXED);
            *slot = NULL;
        }
    }
    pthread_barrier_wait(&barrier); /* all at rest: main looks at the counts */
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < COUNT_OF(mine); i++) {
        if (mine[i] != NULL) {
            hak__thread_park(mine[i]);
        }
    }
    return NULL;
}

TEST_ANEW(joining_and_parting_at_once)
{
    pthread_t users[8];
    size_t joined = 0;
    const uint32_t arenas_max = 2;
    start_sharing(arenas_max);
    REQUIRE(pthread_barrier_init(&barrier, NULL, COUNT_OF(users) + 1) == 0);
    threads_start(users, COUNT_OF(users), join_and_part, 1);
    pthread_barrier_wait(&barrier);
    REQUIRE(hak__thread_settle()); /* those left behind still draw from their arenas */
    for (const struct arena *arena = hak__arena_first(); arena != NULL; arena = arena->next) {
        REQUIRE(arena->threads_count == shared_users[arena->id]);
        joined += arena->threads_count;
    }
    for (struct thread *thread = hak__thread_first(); thread != NULL; thread = thread->next) {
        joined -= thread->arena != NULL;
    }
    REQUIRE_SIZE(joined, ==, 0);
    REQUIRE_SIZE(arenas_count(), <=, arenas_max);
    pthread_barrier_wait(&barrier);
    JOIN_ALL(users, COUNT_OF(users));
    REQUIRE_SIZE(threads_count(), <=, COUNT_OF(users) * 6 + shared_behind);
    require_even(0);
    for (size_t i = 0; i < 60; i++) { /* the sums are right as well */
        adopt();
        require_even(i + 1);
    }
}

/* All find one arena fewer than there may be: one makes it, the others share. */
enum { ROUNDS = 300, AT_ONCE = 8 };

static void *join_each_round(void *argument)
{
    for (size_t round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&barrier);
        adopt();
        pthread_barrier_wait(&barrier);
    }
    return argument;
}

TEST_ANEW(no_more_are_made_at_once)
{
    pthread_t users[AT_ONCE];
    start_sharing(1);
    REQUIRE(pthread_barrier_init(&barrier, NULL, AT_ONCE + 1) == 0);
    threads_start(users, AT_ONCE, join_each_round, 0);
    for (size_t round = 1; round <= ROUNDS; round++) {
        hak__knobs.arenas_max = (uint32_t)round;
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
        REQUIRE_SIZE(arenas_count(), ==, round);
    }
    JOIN_ALL(users, AT_ONCE);
    REQUIRE_SIZE(threads_count(), ==, (size_t)ROUNDS * AT_ONCE);
}

/* Of two threads on one arena the first to go takes what is its own, the last the rest. */
TEST_ANEW(parking_one_of_two)
{
    enum { CLASS = 7, OTHER_CLASS = 9 };
    start_sharing(1);
    size_t taken = unit_region_bytes_taken();
    struct thread *first = adopt(), *second = adopt();
    struct arena *arena = first->arena;
    REQUIRE(arena == second->arena && arena->threads_count == 2);
    thread_free(first, CLASS, thread_allocate(first, CLASS));
    thread_free(second, CLASS, thread_allocate(second, CLASS));
    thread_free(second, OTHER_CLASS, thread_allocate(second, OTHER_CLASS));
    keep_a_span(first);
    size_t bytes = hak__cache_bytes(&second->cache);
    uint64_t charged = second->cache.charged, told = second->cache.charged_told;
    struct object *head = second->cache.bins[CLASS].head;
    REQUIRE(hak__cache_bytes(&first->cache) != 0 && bytes != 0 && head != NULL);
    hak__thread_park(first);
    REQUIRE(first->arena == NULL && hak__cache_bytes(&first->cache) == 0);
    REQUIRE(first->cache.charged == 0 && hak__cache_charged.word == told);
    REQUIRE(hak__cache_bytes(&second->cache) == bytes && second->cache.charged == charged);
    REQUIRE(second->cache.bins[CLASS].head == head && second->arena == arena);
    REQUIRE(arena->threads_count == 1 && arena->slabs.shared_patience == NOTIFIED_PENDING_MAX);
    REQUIRE(arena->spans.slices == MIB / SLICE_SIZE);
    hak__thread_park(second);
    REQUIRE(arena->threads_count == 0 &&
            arena->slabs.shared_patience == NOTIFIED_PENDING_MAX_PARKED);
    REQUIRE(arena->spans.slices == 0 && unit_set_is_empty(&arena->slabs));
    REQUIRE(hak__cache_charged.word == 0 && unit_region_bytes_taken() == taken);
}

TESTS(start_with_many_arenas)
