/* SPDX-License-Identifier: MIT */
/* test_fork_observe.c: processes start by every road beside threads that use what shows the heap:
 * profiles start, stop and are written, the observer starts and stops, reports and maps are
 * written, and blocks are sampled with their stacks while libraries come and go, threads end and
 * signal handlers fork. Children allocate, write a profile and a report, and may be observed.
 *
 *   test_fork_observe [--forks N] [KIND]     N processes beside each kind (default 60)
 *
 * ctest: no-qemu timeout=600
 */
#include "watched.h"

#include "hakmem/observe.h"
#include "hakmem/profile.h"
#include "hakmem/stats.h"

#include <spawn.h>

/* Bytes between samples: nearly each thread is taking one all the time. */
enum { PERIOD = 2000, CLONE_STACK = 256 << 10, SLOTS = 64 };

extern char **environ;

/* --- hakmem's functions, which a preloaded program does not refer to ------------------------- */

static int (*profile_start)(size_t);
static void (*profile_stop)(void);
static void (*profile_write)(hak_report_sink *, void *);
static int (*observe_start)(void);
static int (*observe_stop)(void);
static void (*report)(enum hak_report_format, hak_report_sink *, void *);
static void (*heap_map)(hak_report_sink *, void *);

#define FIND(pointer, name) ((pointer) = (__typeof__(pointer))find_in(RTLD_DEFAULT, #name))

static void find_functions(void)
{
    FIND(profile_start, hak_profile_start);
    FIND(profile_stop, hak_profile_stop);
    FIND(profile_write, hak_profile_write);
    FIND(observe_start, hak_observe_start);
    FIND(observe_stop, hak_observe_stop);
    FIND(report, hak_report);
    FIND(heap_map, hak_heap_map);
}

static void count_bytes(void *argument, const char *text, size_t size)
{
    *(size_t *)argument += size;
}

static void write_profile(void)
{
    size_t size = 0;
    profile_write(count_bytes, &size);
    CHECK(size > 100);
}

static void write_report(enum hak_report_format format)
{
    size_t size = 0;
    report(format, count_bytes, &size);
    CHECK(size > 100);
}

/* --- what goes on beside -------------------------------------------------------------------- */

static void use_memory(uint64_t *state)
{
    static const size_t sizes[] = {8, 100, 900, 5000, 70000, 400000, 3000000};
    void *slots[SLOTS] = {NULL};
    for (size_t i = 0; i < 4 * SLOTS; i++) {
        uint64_t number = random_next(state);
        void **slot = &slots[number % SLOTS];
        size_t last = (number >> 8) % 16 == 0 ? 7 : 4; /* large ones are rarer */
        give_back(*slot);
        *slot = get_memory(sizes[(number >> 16) % last]);
        CHECK(*slot != NULL);
        *(char *)*slot = 1;
    }
    for (size_t i = 0; i < SLOTS; i++) {
        give_back(slots[i]);
    }
}

static void change_profile(uint64_t *state)
{
    CHECK(profile_start(random_next(state) % 2 == 0 ? PERIOD : 0) == 0);
    use_memory(state);
    profile_stop();
}

static void write_profiles(uint64_t *state)
{
    write_profile();
}

static void change_observer(uint64_t *state)
{
    CHECK(observe_start() == 0);
    sched_yield();
    CHECK(observe_stop() == 0);
}

static void write_reports(uint64_t *state)
{
    size_t size = 0;
    write_report((enum hak_report_format)(random_next(state) % 4));
    heap_map(count_bytes, &size);
    CHECK(size > 100);
}

static void *end_with_memory(void *argument)
{
    uint64_t state = (uintptr_t)argument | 1;
    use_memory(&state);
    return get_memory(3000); /* freed by another thread */
}

static void end_threads(uint64_t *state)
{
    pthread_t thread;
    void *block;
    CHECK(pthread_create(&thread, NULL, end_with_memory, state) == 0);
    CHECK(pthread_join(thread, &block) == 0);
    give_back(block);
}

static const struct kind kinds[] = {
    {"profiles", {change_profile, use_memory}, false},
    {"profiles written", {write_profiles, use_memory}, false},
    {"the observer", {change_observer, use_memory}, false},
    {"reports", {write_reports, use_memory}, false},
    {"libraries", {load_plugin, use_memory}, false},
    {"libraries, profiles", {load_plugin, change_profile}, false},
    {"ends", {end_threads, use_memory}, false},
    {"samples", {use_memory, use_memory}, true},
};
enum { KINDS_COUNT = sizeof kinds / sizeof *kinds };

/* --- processes ------------------------------------------------------------------------------ */

/* `number` says how much a child does. A thread that starts in a child beside dlclose frees memory
 * twice (tests/override/test_fork_libc.c), so no such child is observed. */
static void run_child(const struct kind *kind, size_t number)
{
    uint64_t state = number + 1;
    alarm(CHILD_SECONDS);
    use_memory(&state);
    write_profile();
    write_report(HAK_REPORT_JSON);
    if (number % 4 == 0 && kind->beside[0] != load_plugin) {
        CHECK(observe_start() == 0);
        use_memory(&state);
        CHECK(observe_stop() == 0);
    }
    if (number % 4 == 1) {
        profile_stop();
        CHECK(profile_start(PERIOD) == 0);
        use_memory(&state);
    }
}

/* In a function of its own: nothing of the caller's may live in registers across vfork. */
static __attribute__((noinline)) pid_t vfork_one(void)
{
    pid_t child = vfork();
    if (child == 0) {
        _exit(0);
    }
    return child;
}

static int run_clone(void *argument)
{
    use_memory(argument);
    return 0;
}

/* The child uses this process's memory, and this thread's while that waits. */
static void start_clone(size_t number)
{
    uint64_t state = number + 1;
    char *stack =
        mmap(NULL, CLONE_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED);
    pid_t child = clone(run_clone, stack + CLONE_STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, &state);
    CHECK(child >= 0);
    wait_for_success(child, "clone");
    CHECK(munmap(stack, CLONE_STACK) == 0);
}

static void start_spawn(size_t number)
{
    static char name[] = "true";
    char *arguments[] = {name, NULL};
    pid_t child;
    if (number % 8 == 0) {
        CHECK(posix_spawnp(&child, name, NULL, NULL, arguments, environ) == 0);
        wait_for_success(child, "posix_spawn");
    } else {
        CHECK(posix_spawn(&child, "/there/is/no/such", NULL, NULL, arguments, environ) == ENOENT);
    }
}

static void run_kind(const struct kind *kind, size_t count, int progress)
{
    pthread_t threads[2];
    signal(SIGUSR1, fork_in_handler);
    CHECK(profile_start(PERIOD) == 0);
    start_beside(kind, threads);
    for (size_t i = 0; i < count; i++) {
        if (kind->handlers) {
            CHECK(pthread_kill(threads[i % 2], SIGUSR1) == 0);
        }
        IN_CHILD("fork") {
            run_child(kind, i);
        }
        wait_for_success(vfork_one(), "vfork");
        start_clone(i);
        start_spawn(i);
        note_progress(progress);
    }
    stop_beside(threads, 2);
    CHECK(!kind->handlers || handled_count != 0);
}

int main(int argc, char **argv)
{
    prove_served();
    find_functions();
    CHECK(profile_start(PERIOD) == 0);
    watch_all(argc, argv, kinds, KINDS_COUNT, run_kind, 60, 60);
    return 0;
}
