/* SPDX-License-Identifier: MIT */
/* test_guard.c: threads that free the guarded blocks of other threads, also of ended ones, and read
 * what those wrote, while all of them allocate. The option is read at start, so the program runs
 * itself anew with it.
 *
 * ctest: no-qemu
 */
#include "threads.h"

#include "../report.h"

enum { THREADS = 4, ROUNDS = SUPPORT_SLOW ? 500 : 3000, SHARED = 64 };

static struct parcel *shared_parcels[SHARED]; /* each exchanged by any thread */

static void *exchange(void *argument)
{
    uint64_t random = (uint64_t)(uintptr_t)argument * 77 + 1;
    for (size_t i = 0; i < ROUNDS; i++) {
        struct parcel *parcel = parcel_create(random_below(&random, 250), random);
        struct parcel **place = &shared_parcels[random_below(&random, SHARED)];
        parcel_free(__atomic_exchange_n(place, parcel, __ATOMIC_ACQ_REL));
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
        threads[i] = thread_start(exchange, (void *)(i + 1));
    }
    JOIN_ALL(threads, THREADS);
    for (size_t i = 0; i < SHARED; i++) {
        parcel_free(shared_parcels[i]);
    }
    size_t guarded = report_number("guarded");
    REQUIRE_SIZE(guarded, >=, ROUNDS);
    REQUIRE_SIZE(guarded, <=, THREADS * ROUNDS + 1000);
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
