/* SPDX-License-Identifier: MIT */
/* test_guard.c: threads that free the guarded blocks of other threads, and read what those wrote,
 * while all of them allocate. The option is read at start, so the program runs itself anew with it.
 *
 * ctest: no-qemu
 */
#include "threads.h"

#include "../report.h"

enum { THREADS = 4, ROUNDS = SUPPORT_SLOW ? 500 : 3000, SHARED = 64 };

static uintptr_t shared_blocks[SHARED]; /* each exchanged by any thread */
static size_t shared_wrong;

/* Every block holds its size in all bytes. */
static void *exchange(void *argument)
{
    uint64_t random = (uint64_t)(uintptr_t)argument * 77 + 1;
    for (size_t i = 0; i < ROUNDS; i++) {
        size_t size = 1 + random_below(&random, 250);
        unsigned char *block = hide(hak_malloc(size));
        REQUIRE(block != NULL);
        memset(block, (int)size, size);
        uintptr_t *place = &shared_blocks[random_below(&random, SHARED)];
        unsigned char *other =
            (unsigned char *)__atomic_exchange_n(place, (uintptr_t)block, __ATOMIC_ACQ_REL);
        if (other != NULL) {
            size_t bytes = other[0];
            bool whole = hak_usable_size(other) >= bytes && other[bytes - 1] == bytes;
            __atomic_fetch_add(&shared_wrong, !whole, __ATOMIC_RELAXED);
            hak_free(hide(other));
        }
    }
    return NULL;
}

TEST(exchange)
{
    pthread_t threads[THREADS];
    /* The first block that is to be guarded maps the slots. Threads that come meanwhile go on
     * without. */
    for (size_t i = 0; i < 10; i++) {
        hak_free(hide(hak_malloc(100)));
    }
    for (size_t i = 0; i < THREADS; i++) {
        REQUIRE(pthread_create(&threads[i], NULL, exchange, (void *)(i + 1)) == 0);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (size_t i = 0; i < SHARED; i++) {
        hak_free((void *)shared_blocks[i]);
    }
    assert_int_equal(shared_wrong, 0);
    size_t guarded = report_number("guarded");
    if (guarded < ROUNDS || guarded > THREADS * ROUNDS + 1000) {
        fail_msg("%zu blocks guarded", guarded);
    }
}

/* The guarded blocks outlive the threads that allocated them. */
static void *allocate_one(void *argument)
{
    unsigned char *block = hide(hak_malloc(100));
    REQUIRE(block != NULL);
    memset(block, 5, 100);
    return block;
}

TEST(after_the_end)
{
    for (size_t i = 0; i < 50; i++) {
        pthread_t thread;
        void *result;
        REQUIRE(pthread_create(&thread, NULL, allocate_one, NULL) == 0);
        pthread_join(thread, &result);
        assert_int_equal(((unsigned char *)result)[99], 5);
        hak_free(hide(result));
    }
}

int main(int argc, char **argv)
{
    if (getenv("HAKMEM_GUARD") == NULL) {
        REQUIRE(setenv("HAKMEM_GUARD", "1", 1) == 0);
        execv("/proc/self/exe", argv);
        support_fail("exec: %s\n", strerror(errno));
    }
    return tests_run(NULL, NULL);
}
