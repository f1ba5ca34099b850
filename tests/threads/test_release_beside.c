/* SPDX-License-Identifier: MIT */
/* test_release_beside.c: giving much memory back stops nobody: releasing 11 GB under one lock
 * stalled other threads for a second (gperftools #1547). While one thread is inside one call that
 * releases half a gibibyte, another takes and frees memory from the same heaps, superslabs and
 * tables; it is the number of its operations that counts, not their time.
 *
 * Inside means: after the first call into the kernel that releases something began, and before the
 * last one ended. The program's own madvise and munmap, which the library finds before the C
 * library's, note that for the main thread. A lock held over all of it would leave no operation
 * inside.
 *
 * ctest: not-again lock=memory no-tsan no-asan
 */
#include "../child.h"
#include "../report.h"
#include "threads.h"

#include <sys/syscall.h>

enum { BLOCK = 30000, TRIES = 200, STEPS = 5 };

static size_t total_bytes(void)
{
    return SUPPORT_SLOW ? 128 * MIB : 512 * MIB;
}

static int shared_stop;

/* Beginnings and ends of the main thread's releasing calls; the steps that ended at each. */
enum { EVENTS_MAX = 1 << 20 };
static pid_t releasing_thread;
static size_t shared_events;
static uint32_t *steps_at; /* of steps that began after the first event of the release */
static size_t shared_first = SIZE_MAX;
static size_t shared_steps; /* all of those */

/* While too few steps are done the releasing thread sleeps at each event. So a busy machine runs
 * the other thread, which goes on unless a lock keeps it out. */
static void note_event(void)
{
    if (syscall(SYS_gettid) != releasing_thread) {
        return;
    }
    __atomic_fetch_add(&shared_events, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&shared_first, __ATOMIC_SEQ_CST) != SIZE_MAX &&
        __atomic_load_n(&shared_steps, __ATOMIC_RELAXED) < STEPS) {
        syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

int madvise(void *address, size_t size, int advice)
{
    note_event();
    int result = (int)syscall(SYS_madvise, address, size, advice);
    note_event();
    return result;
}

int munmap(void *address, size_t size)
{
    note_event();
    int result = (int)syscall(SYS_munmap, address, size);
    note_event();
    return result;
}

/* Small blocks of one class after the other, so that slabs are taken and given back, spans of
 * changing length, a question to the whale's table. */
static void *use_beside(void *argument)
{
    void *whale = hak_malloc(3 * MIB);
    REQUIRE(whale != NULL);
    for (size_t i = 0; !__atomic_load_n(&shared_stop, __ATOMIC_RELAXED); i++) {
        size_t begin = __atomic_load_n(&shared_events, __ATOMIC_SEQ_CST);
        void *small[40];
        for (size_t j = 0; j < COUNT_OF(small); j++) {
            small[j] = hak_malloc(1000 + i % 50 * 1000);
            REQUIRE(small[j] != NULL);
        }
        void *span = hak_malloc(70000 + i % 16 * 40000);
        REQUIRE(span != NULL && hak_usable_size(whale) >= 3 * MIB);
        hak_free(span);
        FREE_ALL(small, COUNT_OF(small));
        size_t end = __atomic_load_n(&shared_events, __ATOMIC_SEQ_CST);
        if (begin > __atomic_load_n(&shared_first, __ATOMIC_SEQ_CST) && end < EVENTS_MAX) {
            __atomic_fetch_add(&steps_at[end], 1, __ATOMIC_RELAXED);
            __atomic_fetch_add(&shared_steps, 1, __ATOMIC_RELAXED);
        }
    }
    hak_free(whale);
    return argument;
}

/* Steps that began after the first event of `release` and ended before its last. */
static size_t steps_during(void (*release)(void *), void *argument)
{
    size_t steps = 0, first = shared_events;
    __atomic_store_n(&shared_first, first, __ATOMIC_SEQ_CST);
    release(argument);
    size_t last = __atomic_load_n(&shared_events, __ATOMIC_SEQ_CST);
    __atomic_store_n(&shared_first, SIZE_MAX, __ATOMIC_SEQ_CST);
    for (size_t i = first + 1; i < last && i < EVENTS_MAX; i++) {
        steps += __atomic_load_n(&steps_at[i], __ATOMIC_RELAXED);
    }
    return steps;
}

static pthread_t start_beside(void)
{
    releasing_thread = (pid_t)syscall(SYS_gettid);
    steps_at = support_map(EVENTS_MAX * sizeof *steps_at);
    __atomic_store_n(&shared_stop, 0, __ATOMIC_RELAXED);
    return thread_start(use_beside, NULL);
}

/* Its walkers hold a heap's lock as long as they like. */
static void skip_at_level_2(void)
{
    SKIP_IF(HAK_LEVEL >= 2);
}

static void trim(void *argument)
{
    hak_trim(0);
}

/* `bytes` in small blocks, every page touched, and all free again. */
static void make_dirty(size_t bytes)
{
    size_t count = bytes / BLOCK;
    void **blocks = support_map(count * sizeof *blocks);
    for (size_t i = 0; i < count; i++) {
        blocks[i] = hak_malloc(BLOCK);
        REQUIRE(blocks[i] != NULL);
        memset(blocks[i], 1, BLOCK);
    }
    FREE_ALL(blocks, count);
    munmap(blocks, count * sizeof *blocks);
}

/* Trims until the other thread has been seen to go on beside them; a machine that is busy with
 * other things may not let it run beside a single one. Were it kept out it would never be seen. */
static void trim_beside_use(void *argument)
{
    size_t steps = 0, trims = 0;
    size_t purges = report_number("madvise_dontneed");
    pthread_t thread = start_beside();
    for (; trims < TRIES && steps < STEPS; trims++) {
        make_dirty(total_bytes());
        steps += steps_during(trim, NULL);
    }
    __atomic_store_n(&shared_stop, 1, __ATOMIC_RELAXED);
    thread_join(thread);
    purges = report_number("madvise_dontneed") - purges;
    fprintf(stderr, "%zu steps beside %zu trims of %zu MiB in %zu calls\n", steps, trims,
            total_bytes() / MIB, purges);
    REQUIRE_SIZE(steps, >=, STEPS);
    /* at most a superslab at a time */
    REQUIRE_SIZE(purges, >=, trims * (total_bytes() - 16 * MIB) / (2 * MIB));
}

static void set_delay(void *delay)
{
    REQUIRE(setenv("HAKMEM_PURGE_DELAY_MS", delay, 1) == 0);
}

static void run_with_delay(char *delay)
{
    struct child_end end;
    skip_at_level_2();
    child_exec("trim", set_delay, delay, &end);
    REQUIRE_EXIT(&end, "steps beside");
    print_message("%s", end.text);
}

TEST(trim)
{
    run_with_delay("never");
}

/* The other thread's own purge passes come into the way of the trims. */
TEST(trim_beside_passes)
{
    run_with_delay("2");
}

static void free_block(void *block)
{
    hak_free(block);
}

/* One block: unmapped outside every lock. */
TEST(free_of_one_block)
{
    skip_at_level_2();
    size_t steps = 0, frees = 0;
    pthread_t thread = start_beside();
    for (; frees < TRIES && steps < STEPS; frees++) {
        char *whale = hak_malloc(total_bytes());
        assert_non_null(whale);
        /* in small pages: with huge ones it is over before the other thread has done a step */
        madvise(whale, total_bytes(), MADV_NOHUGEPAGE);
        for (size_t at = 0; at < total_bytes(); at += 4096) {
            whale[at] = 1;
        }
        steps += steps_during(free_block, whale);
    }
    __atomic_store_n(&shared_stop, 1, __ATOMIC_RELAXED);
    thread_join(thread);
    print_message("%zu steps beside %zu frees of %zu MiB\n", steps, frees, total_bytes() / MIB);
    REQUIRE_SIZE(steps, >=, STEPS);
}

int main(int argc, char **arguments)
{
    const struct child_case cases[] = {{"trim", trim_beside_use, NULL}};
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2) { /* beside needs two */
        return 77;
    }
    child_main(argc, arguments, cases, COUNT_OF(cases));
    return tests_run(NULL, NULL);
}
