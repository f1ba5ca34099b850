/* SPDX-License-Identifier: MIT */
/* forks.h: what the tests of arena/fork share: fork with our handlers, threads that wait meanwhile,
 * and proof that memory is as it should be. */
#ifndef TESTS_UNIT_FORKS_H
#define TESTS_UNIT_FORKS_H

#include "../child.h"
#include "../threads/threads.h"
#include "arenas.h"

#include "large/huge.h"

/* How many arenas there are, and whose lock is held. */
static inline size_t held_count(size_t *all)
{
    size_t count = 0;
    *all = 0;
    for (const struct arena *arena = hak__arena_first(); arena != NULL; arena = arena->next) {
        count += is_held(&arena->lock);
        ++*all;
    }
    return count;
}

static inline bool others_are_free(void)
{
    return !is_held(&hak__arenas_lock) && !is_held(&hak__purge_lock) && !is_held(&hak__huge_lock) &&
           !is_held(&hak__growth_lock) && !is_held(&hak__superslab_first.lock) &&
           hak__own.held == 0;
}

static inline bool none_is_held(void)
{
    size_t all;
    return held_count(&all) == 0 && others_are_free() && hak__inside == 0;
}

/* fork with our handlers: runs `body` in a child and waits for it. Returns its page faults. */
static inline long fork_and_run(void (*body)(void))
{
    int status;
    struct rusage usage;
    fflush(NULL);
    hak__fork_prepare();
    long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        hak__fork_child();
        alarm(280);
        body();
        _exit(0);
    }
    hak__fork_parent();
    REQUIRE(pid > 0);
    while (wait4((pid_t)pid, &status, 0, &usage) < 0) {
        REQUIRE(errno == EINTR);
    }
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return usage.ru_minflt;
}

/* Threads that have an arena with something in its bins, and then wait. */
enum { WAITERS = 5, OBJECTS = 40 };

struct waiter {
    pthread_t id;
    struct thread *thread;
    char *object; /* in use */
    void *remote; /* of the main thread's arena: in this one's buffer, or bin if that is its own */
};

static struct waiter waiters[WAITERS];
static pthread_barrier_t barrier;

static inline void *wait_with_a_arena(void *argument)
{
    struct waiter *waiter = argument;
    void *objects[OBJECTS];
    ALLOCATE_ALL(objects, OBJECTS, 200);
    waiter->object = objects[0];
    memset(waiter->object, 'w', 200);
    for (size_t i = 1; i < OBJECTS; i++) {
        hak_free(objects[i]);
    }
    hak_free(hak_malloc(100)); /* the first of its class stays in its bin */
    hak_free(waiter->remote);
    waiter->thread = hak__thread;
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    hak_free(waiter->object);
    return NULL;
}

static inline void start_waiters(void)
{
    REQUIRE(pthread_barrier_init(&barrier, NULL, WAITERS + 1) == 0);
    for (size_t i = 0; i < WAITERS; i++) {
        waiters[i].remote = hak_malloc(300);
        waiters[i].id = thread_start(wait_with_a_arena, &waiters[i]);
    }
    pthread_barrier_wait(&barrier);
}

static inline void end_waiters(void)
{
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < WAITERS; i++) {
        thread_join(waiters[i].id);
    }
}

static const size_t block_sizes[] = {1, 100, 5000, 60000, 100000, 3 * MIB};
enum { BLOCK_SIZES = COUNT_OF(block_sizes) };

static inline void fill_blocks(void **blocks)
{
    for (size_t i = 0; i < BLOCK_SIZES; i++) {
        blocks[i] = hak_malloc(block_sizes[i]);
        REQUIRE(blocks[i] != NULL && hak_usable_size(blocks[i]) >= block_sizes[i]);
        memset(blocks[i], (int)i + 1, block_sizes[i]);
    }
}

/* Also moves each to the next larger tier and back. */
static inline void free_blocks(void **blocks)
{
    for (size_t i = 0; i < BLOCK_SIZES; i++) {
        const unsigned char *block = blocks[i];
        REQUIRE(block[0] == i + 1 && block[block_sizes[i] - 1] == i + 1);
        block = hak_realloc(blocks[i], 40 * block_sizes[i]);
        REQUIRE(block != NULL && block[0] == i + 1 && block[block_sizes[i] - 1] == i + 1);
        blocks[i] = hak_realloc((void *)(uintptr_t)block, block_sizes[i]);
        REQUIRE(blocks[i] != NULL);
        hak_free(blocks[i]);
    }
}

/* Memory is as it should be. */
static inline void check_blocks(void)
{
    void *blocks[BLOCK_SIZES];
    REQUIRE(none_is_held());
    for (size_t round = 0; round < 10; round++) {
        fill_blocks(blocks);
        free_blocks(blocks);
    }
    REQUIRE(none_is_held());
}

#endif
