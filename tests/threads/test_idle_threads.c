/* SPDX-License-Identifier: MIT */
/* test_idle_threads.c: threads that stopped working keep little: what others freed for a sleeping
 * owner (mimalloc #214, #1117), and what a sleeping thread had freed for others.
 *
 * ctest: no-qemu no-secure
 */
#include "threads.h"

enum { BLOCK = 1000, OBJECTS = (SUPPORT_SLOW ? 16 : 64) * 1024 };

static void **blocks;
static pthread_barrier_t barrier;

static void meet(void)
{
    pthread_barrier_wait(&barrier);
}

static void blocks_allocate(void)
{
    ALLOCATE_WRITTEN(blocks, OBJECTS, BLOCK);
}

static void blocks_free(void)
{
    FREE_ALL(blocks, OBJECTS);
}

static void setup(void)
{
    REQUIRE(pthread_barrier_init(&barrier, NULL, 2) == 0);
    blocks = support_map(OBJECTS * sizeof *blocks);
    memset(blocks, 1, OBJECTS * sizeof *blocks);
    hak_free(hak_malloc(BLOCK)); /* this thread has its struct and its arena */
    hak_trim(0);
}

static void *allocate_and_sleep(void *argument)
{
    blocks_allocate();
    meet();
    meet(); /* sleeps while all it has is freed by others */
    return argument;
}

TEST(owner_sleeps)
{
    setup();
    size_t before = rss_bytes();
    pthread_t thread = thread_start(allocate_and_sleep, NULL);
    meet();
    blocks_free();
    hak_trim(0);
    size_t kept = rss_bytes() - before;
    if (!SUPPORT_SANITIZED) {
        REQUIRE_SIZE(kept, <=, 512 * KIB);
    }
    meet();
    thread_join(thread);
}

static void *free_and_sleep(void *argument)
{
    blocks_free();
    meet();
    meet(); /* sleeps with what its remote buffer holds */
    return argument;
}

/* 256 batches wait in a remote buffer, and an object of each keeps its slab of 32 KiB. */
TEST(freer_sleeps)
{
    setup();
    size_t before = rss_bytes();
    blocks_allocate();
    pthread_t thread = thread_start(free_and_sleep, NULL);
    meet();
    hak_trim(0);
    size_t kept = rss_bytes() - before;
    if (!SUPPORT_SANITIZED) {
        REQUIRE_SIZE(kept, <=, 256 * 32 * KIB + 512 * KIB);
    }
    meet();
    thread_join(thread);
    hak_trim(0);
    if (!SUPPORT_SANITIZED) {
        REQUIRE_SIZE(rss_bytes(), <=, before + 512 * KIB);
    }
}

TESTS(NULL)
