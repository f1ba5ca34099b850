/* SPDX-License-Identifier: MIT */
/* test_idle_threads.c: threads that stopped working keep little: what others freed for a sleeping
 * owner (mimalloc #214, #1117), and what a sleeping thread had freed for others (mimalloc #333).
 *
 * ctest: no-qemu no-secure
 */
#include "threads.h"

#include "hakmem/control.h"

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

/* Enough for a burst: what is free beyond 16 MiB goes back when so much has become free. */
enum { MANY = SUPPORT_SLOW ? OBJECTS : 4 * OBJECTS };

/* No purge pass falls into the test. */
static void setup_many(size_t count)
{
    REQUIRE(pthread_barrier_init(&barrier, NULL, 2) == 0);
    blocks = support_map(count * sizeof *blocks);
    memset(blocks, 1, count * sizeof *blocks);
    hak_free(hak_malloc(BLOCK));
    REQUIRE(hak_option_set("purge_delay_ms", "600000") == 0);
    hak_trim(0);
}

/* What is resident beyond `before`, without another call of malloc or free. */
static void require_back(size_t before, size_t full, size_t most)
{
    size_t kept = rss_bytes() - before;
    print_message("%zu MiB freed, %zu KiB kept\n", full / MIB, kept / KIB);
    if (!SUPPORT_SANITIZED) {
        REQUIRE_SIZE(kept, <=, most);
    }
}

TEST(a_burst_goes_back)
{
    setup_many(MANY);
    size_t before = rss_bytes();
    ALLOCATE_WRITTEN(blocks, MANY, BLOCK);
    size_t full = rss_bytes() - before;
    FREE_ALL(blocks, MANY);
    require_back(before, full, full / 4);
    /* What is used again stays from then on. */
    ALLOCATE_WRITTEN(blocks, MANY, BLOCK);
    FREE_ALL(blocks, MANY);
    if (!SUPPORT_SANITIZED) {
        REQUIRE_SIZE(rss_bytes() - before, >=, full / 2);
    }
    munmap(blocks, MANY * sizeof *blocks);
}

static void *allocate_and_end(void *argument)
{
    blocks_allocate();
    meet();
    meet(); /* all it has is freed by others */
    return argument;
}

static void *free_and_end(void *argument)
{
    blocks_free();
    return argument;
}

TEST(ends_of_threads_give_back)
{
    setup_many(OBJECTS);
    size_t before = rss_bytes();
    pthread_t producer = thread_start(allocate_and_end, NULL);
    meet();
    size_t full = rss_bytes() - before;
    thread_join(thread_start(free_and_end, NULL));
    meet();
    thread_join(producer);
    require_back(before, full, full / 2);
}

/* A few mallocs after a sleep settle all that waited, also what no pass has seen. */
TEST(operations_after_a_sleep_settle)
{
    setup_many(OBJECTS);
    REQUIRE(hak_option_set("purge_delay_ms", "1000") == 0);
    hak_free(hak_malloc(BLOCK));
    size_t before = rss_bytes();
    blocks_allocate();
    size_t full = rss_bytes() - before;
    blocks_free();
    usleep(1500000);
    for (uint32_t i = 0; i < 20; i++) { /* in half a delay; a busy machine may need several */
        hak_free(hak_malloc(BLOCK));
        usleep(10000);
    }
    require_back(before, full, full / 4);
}

TESTS(NULL)
