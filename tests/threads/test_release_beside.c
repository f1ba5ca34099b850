/* SPDX-License-Identifier: MIT */
/* test_release_beside.c: giving much memory back stops nobody: releasing 11 GB under one lock
 * stalled other threads for a second (gperftools #1547). While one thread is inside one call that
 * releases half a gibibyte, another takes and frees memory from the same arenas, superslabs and
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

enum { BLOCK = 30000, TRIES = 200, STEPS = 5 };

static size_t total_bytes(void)
{
    return SUPPORT_SLOW ? 128 * MIB : 512 * MIB;
}

static pid_t releasing_thread;         /* 0: none is inside */
static size_t shared_steps;            /* of the other thread */
static size_t first_steps, last_steps; /* at the first and the last event of the release */
static int shared_stop;

/* While too few steps are done the releasing thread sleeps at each event. So a busy machine runs
 * the other thread, which goes on unless a lock keeps it out. */
static void note_event(void)
{
    if (syscall(SYS_gettid) != releasing_thread) {
        return;
    }
    last_steps = __atomic_load_n(&shared_steps, __ATOMIC_SEQ_CST);
    first_steps = first_steps == SIZE_MAX ? last_steps : first_steps;
    if (last_steps - first_steps <= STEPS) {
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
 * changing length, a question to the huge block's table. */
static void *use_beside(void *argument)
{
    void *block = hak_malloc(3 * MIB);
    REQUIRE(block != NULL);
    for (size_t i = 0; !__atomic_load_n(&shared_stop, __ATOMIC_RELAXED); i++) {
        void *small[40];
        ALLOCATE_ALL(small, COUNT_OF(small), 1000 + i % 50 * 1000);
        void *span = hak_malloc(70000 + i % 16 * 40000);
        REQUIRE(span != NULL && hak_usable_size(block) >= 3 * MIB);
        hak_free(span);
        FREE_ALL(small, COUNT_OF(small));
        __atomic_fetch_add(&shared_steps, 1, __ATOMIC_SEQ_CST);
    }
    hak_free(block);
    return argument;
}

/* Many small blocks, every page touched and all free again, which a trim gives back. */
static void release_slabs(void)
{
    size_t count = total_bytes() / BLOCK;
    void **blocks = support_map(count * sizeof *blocks);
    ALLOCATE_WRITTEN(blocks, count, BLOCK);
    FREE_ALL(blocks, count);
    munmap(blocks, count * sizeof *blocks);
    releasing_thread = (pid_t)syscall(SYS_gettid);
    hak_trim(0);
    releasing_thread = 0;
}

/* One block: unmapped outside every lock. */
static void release_huge(void)
{
    char *block = hak_malloc(total_bytes());
    REQUIRE(block != NULL);
    /* in small pages: with huge ones it is over before the other thread has done a step */
    madvise(block, total_bytes(), MADV_NOHUGEPAGE);
    for (size_t at = 0; at < total_bytes(); at += 4096) {
        block[at] = 1;
    }
    releasing_thread = (pid_t)syscall(SYS_gettid);
    hak_free(block);
    releasing_thread = 0;
}

/* Releases until the other thread has been seen to go on beside it; a machine that is busy with
 * other things may not let it run beside a single one. Were it kept out it would never be seen. */
static void release_beside_use(bool slabs)
{
    size_t steps = 0, times = 0, purges = report_number("madvise_dontneed");
    pthread_t thread = thread_start(use_beside, NULL);
    for (; times < TRIES && steps < STEPS; times++) {
        first_steps = SIZE_MAX;
        slabs ? release_slabs() : release_huge();
        size_t ended = first_steps == SIZE_MAX ? 0 : last_steps - first_steps;
        steps += ended != 0 ? ended - 1 : 0; /* the first began before */
    }
    __atomic_store_n(&shared_stop, 1, __ATOMIC_RELAXED);
    thread_join(thread);
    purges = report_number("madvise_dontneed") - purges;
    fprintf(stderr, "%zu steps beside %zu releases\n", steps, times);
    REQUIRE_SIZE(steps, >=, STEPS);
    /* at most a superslab at a time */
    REQUIRE(!slabs || purges >= times * (total_bytes() - 16 * MIB) / (2 * MIB));
}

CHILD(trim)
{
    release_beside_use(true);
}

CHILD(huge_block)
{
    release_beside_use(false);
}

static void run(const char *name, char *delay)
{
    struct child_end end;
    SKIP_IF(HAK_LEVEL >= 2); /* its walkers hold an arena's lock as long as they like */
    child_exec(name, child_put, delay, &end);
    REQUIRE_EXIT(&end, "steps beside");
    print_message("%s", end.text);
}

TEST(release)
{
    static char never[] = "HAKMEM_PURGE_DELAY_MS=never", often[] = "HAKMEM_PURGE_DELAY_MS=2",
                second[] = "HAKMEM_PURGE_DELAY_MS=1000";
    run("trim", never);
    run("trim", often); /* the other thread's own purge passes come into the way of the trims */
    run("huge_block", second);
}

int main(int argc, char **arguments)
{
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2) { /* beside needs two */
        return 77;
    }
    return tests_main(argc, arguments, NULL, NULL);
}
