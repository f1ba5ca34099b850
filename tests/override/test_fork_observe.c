/* SPDX-License-Identifier: MIT */
/* test_fork_observe.c: processes start by every road beside threads that use what shows the heap:
 * profiles start, stop and are written, the observer starts and stops, reports and maps are
 * written, and blocks are sampled with their stacks while libraries come and go, threads end and
 * signal handlers fork. Children allocate, write a profile and a report, and may be observed.
 *
 *   test_fork_observe [--rounds N] [KIND]     N processes beside each kind (default 60)
 *
 * ctest: no-qemu timeout=600
 */
#include "watched.h"

#include "hakmem/observe.h"
#include "hakmem/profile.h"
#include "hakmem/stats.h"

#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/mman.h>

/* Bytes between samples: nearly each thread is taking one all the time. */
enum { PERIOD = 2000, CLONE_STACK = 256 << 10, SLOTS = 64 };

extern char **environ;
static atomic_bool stop;
static char plugin[TEST_PATH_SIZE];

/* --- hakmem's functions, which a preloaded program does not refer to ------------------------- */

#pragma weak hak_profile_start
#pragma weak hak_profile_stop
#pragma weak hak_profile_write
#pragma weak hak_observe_start
#pragma weak hak_observe_stop
#pragma weak hak_report
#pragma weak hak_heap_map

static int (*profile_start)(size_t);
static void (*profile_stop)(void);
static void (*profile_write)(hak_report_sink *, void *);
static int (*observe_start)(void);
static int (*observe_stop)(void);
static void (*report)(enum hak_report_format, hak_report_sink *, void *);
static void (*heap_map)(hak_report_sink *, void *);

#define FIND(pointer, name)                                                                        \
    do {                                                                                           \
        (pointer) = (name);                                                                        \
        if ((pointer) == NULL) {                                                                   \
            (pointer) = (__typeof__(pointer))(uintptr_t)dlsym(RTLD_DEFAULT, #name);                \
        }                                                                                          \
        CHECK((pointer) != NULL);                                                                  \
    } while (0)

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
    (void)text;
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
    (void)state;
}

static void change_observer(uint64_t *state)
{
    CHECK(observe_start() == 0);
    sched_yield();
    CHECK(observe_stop() == 0);
    (void)state;
}

static void write_reports(uint64_t *state)
{
    size_t size = 0;
    write_report((enum hak_report_format)(random_next(state) % 4));
    heap_map(count_bytes, &size);
    CHECK(size > 100);
}

static void load_plugin(uint64_t *state)
{
    void *library = dlopen(plugin, RTLD_NOW);
    CHECK(library != NULL);
    char *(*touch)(void) = (char *(*)(void))(uintptr_t)dlsym(library, "plugin_fork_touch");
    CHECK(touch != NULL && *touch() != 0);
    CHECK(dlclose(library) == 0);
    (void)state;
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

typedef void beside(uint64_t *state);

static const struct kind {
    const char *name;
    beside *beside[2];
    bool handlers; /* the threads' signal handlers fork */
} kinds[] = {
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

static void *run_beside(void *argument)
{
    beside *body = *(beside *const *)argument;
    uint64_t state = (uintptr_t)argument | 1;
    while (!stop) {
        body(&state);
    }
    return NULL;
}

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

static void start_fork(const struct kind *kind, size_t number)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        run_child(kind, number);
        _exit(0);
    }
    wait_for_success(child, "fork");
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

static atomic_size_t handled_count;

/* The child of a handler only allocates what no bin has: the handler may have interrupted malloc.
 */
static void fork_in_handler(int number)
{
    int saved = errno, status;
    pid_t child = fork();
    if (child == 0) {
        alarm(CHILD_SECONDS);
        void *block = get_memory(100000);
        give_back(block);
        _exit(block == NULL);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    CHECK(child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    handled_count++;
    (void)number;
    errno = saved;
}

static void run_kind(const void *argument, size_t count, int progress)
{
    const struct kind *kind = argument;
    pthread_t threads[2];
    signal(SIGUSR1, fork_in_handler);
    CHECK(profile_start(PERIOD) == 0);
    for (size_t i = 0; i < 2; i++) {
        void *body = (void *)(uintptr_t)&kind->beside[i];
        CHECK(pthread_create(&threads[i], NULL, run_beside, body) == 0);
    }
    for (size_t i = 0; i < count; i++) {
        if (kind->handlers) {
            CHECK(pthread_kill(threads[i % 2], SIGUSR1) == 0);
        }
        start_fork(kind, i);
        wait_for_success(vfork_one(), "vfork");
        start_clone(i);
        start_spawn(i);
        note_progress(progress);
    }
    stop = true;
    for (size_t i = 0; i < 2; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK(!kind->handlers || handled_count != 0);
}

int main(int argc, char **argv)
{
    prove_served();
    find_functions();
    plugin_path("fork", plugin);
    if (profile_start(PERIOD) != 0) {
        dprintf(2, "skipped: there is no libgcc_s.so.1 to walk stacks\n");
        return TEST_SKIPPED;
    }
    size_t rounds = 60;
    int next = 1;
    if (next + 1 < argc && strcmp(argv[next], "--rounds") == 0) {
        rounds = strtoul(argv[next + 1], NULL, 10);
        next += 2;
    }
    for (size_t i = 0; i < KINDS_COUNT; i++) {
        if (next == argc || strcmp(kinds[i].name, argv[next]) == 0) {
            watch(kinds[i].name, run_kind, &kinds[i], rounds);
        }
    }
    return 0;
}
