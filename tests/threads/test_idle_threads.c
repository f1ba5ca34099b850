/* SPDX-License-Identifier: MIT */
/* test_idle_threads.c: threads and processes that stopped working keep little: what others freed
 * for a sleeping owner (mimalloc #214, #1117), what a sleeping thread had freed for others, the
 * free memory of a process that idles (jemalloc #1127).
 *
 * ctest: no-qemu no-secure
 */
#include "../child.h"
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
    for (size_t i = 0; i < OBJECTS; i++) {
        blocks[i] = hak_malloc(BLOCK);
        REQUIRE(blocks[i] != NULL);
        memset(blocks[i], 1, BLOCK);
    }
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
    hak_free(hak_malloc(BLOCK)); /* this thread has its struct and its heap */
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
    print_message("of %d KiB freed for a sleeping thread %zu KiB are left\n",
                  OBJECTS * BLOCK / 1024, kept / KIB);
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
    print_message("of %d KiB a sleeping thread freed %zu KiB are left\n", OBJECTS * BLOCK / 1024,
                  kept / KIB);
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

static void slow_operations(unsigned count)
{
    for (unsigned i = 0; i < count; i += 2) {
        hak_free(hide(hak_malloc(100 * KIB)));
    }
}

/* The next operations after a pause give back what was free before it: a tick every 64 slow ones, a
 * slice goes at the second pass that sees it, and each tick gives back 4 MiB. A pass that is due
 * while another is under way does not begin, so a busy machine may need more pauses. */
static void idle_process(void *argument)
{
    enum { DELAY_MS = 100, TICK = 64, PARTS = 64000 / 4096 + 1, PAUSES_MAX = 16 };
    setup();
    size_t before = rss_bytes(), kept = SIZE_MAX;
    blocks_allocate();
    void *whale = hak_malloc(8 * MIB);
    REQUIRE(whale != NULL);
    memset(whale, 1, 8 * MIB);
    hak_free(whale);
    blocks_free();
    unsigned pauses = 0;
    for (; pauses < PAUSES_MAX && kept > 2 * MIB; pauses++) {
        usleep(2 * DELAY_MS * 1000);
        slow_operations(PARTS * TICK);
        size_t now = rss_bytes();
        kept = now > before ? now - before : 0;
    }
    fprintf(stderr, "after %u pauses %zu KiB are left\n", pauses, kept / KIB);
    REQUIRE_SIZE(kept, <=, 2 * MIB);
}

static void short_delay(void *argument)
{
    REQUIRE(setenv("HAKMEM_PURGE_DELAY_MS", "100", 1) == 0);
}

TEST(process_idles)
{
    struct child_end end;
    SKIP_IF(SUPPORT_SANITIZED);
    child_exec("idle", short_delay, NULL, &end);
    REQUIRE_EXIT(&end, "KiB are left$");
    print_message("%s", end.text);
}

int main(int count, char **arguments)
{
    const struct child_case cases[] = {{"idle", idle_process, NULL}};
    child_main(count, arguments, cases, COUNT_OF(cases));
    return tests_run(NULL, NULL);
}
