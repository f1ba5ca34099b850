/* SPDX-License-Identifier: MIT */
/* test_ten_thousand_threads.c: 10,000 threads alive at once that each allocated once (mimalloc
 * #1107). What a thread costs is compared with the C library's malloc in the same program: at most
 * 2.5 KiB of memory more, and next to no address space more (every thread reserving 256 MB breaks
 * limits: rpmalloc #103).
 *
 * ctest: lock=threads preload-only no-qemu
 */
#include "override.h"

enum { THREADS_COUNT = 10000, COST_MAX = 5 << 9, ADDRESSES_MAX = 16 << 10 };

struct cost {
    size_t resident; /* bytes a thread */
    size_t addresses;
};

static pthread_barrier_t barrier;

static void *allocate_and_wait(void *argument)
{
    char *block = get_memory(100);
    CHECK(block != NULL);
    memset(block, 1, 100);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    give_back(block);
    return argument;
}

static int run(void)
{
    static pthread_t threads[THREADS_COUNT];
    memset(threads, 1, sizeof threads);
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, (size_t)sysconf(_SC_THREAD_STACK_MIN)) == 0);
    CHECK(pthread_barrier_init(&barrier, NULL, THREADS_COUNT + 1) == 0);
    give_back(get_memory(100));
    struct cost cost = {resident_bytes(), proc_bytes("/proc/self/status", "\nVmSize:")};
    for (size_t i = 0; i < THREADS_COUNT; i++) {
        int error = pthread_create(&threads[i], &attributes, allocate_and_wait, NULL);
        if (error != 0) {
            dprintf(2, "thread %zu: %s\n", i, strerror(error));
            return TEST_SKIPPED;
        }
    }
    pthread_barrier_wait(&barrier);
    cost.resident = (resident_bytes() - cost.resident) / THREADS_COUNT;
    cost.addresses =
        (proc_bytes("/proc/self/status", "\nVmSize:") - cost.addresses) / THREADS_COUNT;
    pthread_barrier_wait(&barrier);
    join_all(threads, THREADS_COUNT);
    CHECK(write(1, &cost, sizeof cost) == (ssize_t)sizeof cost);
    return 0;
}

/* This program again, on `preload` or on the C library. */
static struct cost cost_with(const char *preload)
{
    struct cost cost;
    const char *const variables[] = {"LD_PRELOAD", preload, NULL};
    struct again program = start_again("run", AGAIN_OUTPUT, variables);
    ssize_t length = read(program.ends[1], &cost, sizeof cost);
    close_ends(&program);
    if (length != (ssize_t)sizeof cost) { /* this machine has no room for so many */
        int status = status_of(program.process);
        bool skipped = WIFEXITED(status) && WEXITSTATUS(status) == TEST_SKIPPED;
        _exit(skipped ? TEST_SKIPPED : 1);
    }
    wait_for_success(program.process, *preload != '\0' ? preload : "the C library");
    return cost;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "run") == 0) {
        return run();
    }
    prove_preloaded();
    struct cost ours = cost_with(preloaded_library_path());
    struct cost theirs = cost_with("");
    CHECK(ours.resident <= theirs.resident + COST_MAX);
    CHECK(ours.addresses <= theirs.addresses + ADDRESSES_MAX);
    return 0;
}
