/* SPDX-License-Identifier: MIT */
/* test_many_alive.c: with very many heaps, huge blocks, untouched blocks or threads alive, a
 * malloc and a free take about the instructions that they take with few, and the tables that find
 * them stay small. A traced child makes single steps between two marks, so the counts are the same
 * on a busy machine. MANY_ALIVE=full takes the numbers of lab/README.md, which need 4 GiB
 * and some minutes, and allows half as many instructions more. Without it, twice as many are
 * allowed, because single pairs may meet a full slab or periodic work: what grows would take ten
 * times.
 *
 * ctest: lock=memory no-qemu no-secure
 */
#include "../threads/threads.h"

#include "arena/arena.h"
#include "hakmem/control.h"
#include "heap/heap.h"

#include <sys/ptrace.h>

enum { HUGE_BLOCK = 2306867 /* 2.2 MiB */, PAIRS = 5 };

struct figures {
    size_t instructions; /* of a malloc and a free: the median */
    size_t alive;
    size_t tables;   /* bytes, of what the case counts */
    size_t resident; /* bytes more than before */
    size_t mappings;
};

/* What a child measures: `prepare` makes `alive` of them live, `pair` is measured. */
struct many {
    const char *name;
    void (*prepare)(size_t alive);
    void (*pair)(size_t number);
    size_t (*tables)(void);
    bool in_thread; /* the pair is the first of a new thread */
};

static size_t alive_now; /* fewer than wanted if there are no more addresses */
static void **blocks;

static bool is_full(void)
{
    const char *asked = getenv("MANY_ALIVE");
    return asked != NULL && strcmp(asked, "full") == 0;
}

/* --- counting --- */

static void mark(void)
{
    syscall(SYS_tgkill, getpid(), (pid_t)syscall(SYS_gettid), SIGUSR2);
}

/* Single steps of the thread to its next mark. */
static size_t steps_to_mark(pid_t thread)
{
    for (size_t steps = 0;; steps++) {
        int status;
        REQUIRE(ptrace(PTRACE_SINGLESTEP, thread, NULL, NULL) == 0);
        REQUIRE(waitpid(thread, &status, __WALL) == thread && WIFSTOPPED(status));
        if (WSTOPSIG(status) == SIGUSR2) {
            return steps;
        }
    }
}

static void *measured(void *argument)
{
    const struct many *many = argument;
    REQUIRE(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
    mark();
    mark(); /* what marks cost */
    for (size_t i = 0; i < PAIRS; i++) {
        many->pair(i);
        mark();
    }
    return NULL;
}

static void child_run(const struct many *many, size_t alive, struct figures *figures)
{
    REQUIRE(hak_option_set("purge_delay_ms", "never") ==
            0); /* a step takes the time of thousands */
    size_t before = rss_bytes(), mappings = mappings_count();
    alive_now = alive;
    blocks = support_map(alive * sizeof *blocks);
    many->prepare(alive);
    figures->resident = rss_bytes() - before - alive * sizeof *blocks;
    figures->mappings = mappings_count() - mappings;
    figures->alive = alive_now;
    if (many->in_thread) {
        thread_join(thread_start(measured, (void *)(uintptr_t)many));
    } else {
        many->pair(PAIRS);
        measured((void *)(uintptr_t)many);
    }
    figures->tables = many->tables();
    _exit(0);
}

/* If it is allowed: on a busy machine each step would wait, and hakmem do its periodic work. */
static void hurry(pid_t thread, int policy)
{
    const struct sched_param parameters = {.sched_priority = policy == SCHED_FIFO};
    (void)sched_setscheduler(thread, policy, &parameters);
}

static int by_size(const void *a, const void *b)
{
    size_t first = *(const size_t *)a, second = *(const size_t *)b;
    return (first > second) - (first < second);
}

static struct figures figures_of(const struct many *many, size_t alive)
{
    struct figures *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status;
    REQUIRE(shared != MAP_FAILED);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        child_run(many, alive, shared);
    }
    pid_t thread = waitpid(-1, &status, __WALL);
    REQUIRE(thread > 0 && WIFSTOPPED(status) && WSTOPSIG(status) == SIGUSR2);
    hurry(thread, SCHED_FIFO);
    hurry(0, SCHED_FIFO);
    size_t marks = steps_to_mark(thread), steps[PAIRS];
    for (size_t i = 0; i < PAIRS; i++) {
        steps[i] = steps_to_mark(thread) - marks;
    }
    if (!many->in_thread) { /* whose first pair counts */
        qsort(steps, PAIRS, sizeof *steps, by_size);
    }
    hurry(0, SCHED_OTHER);
    REQUIRE(ptrace(PTRACE_DETACH, thread, NULL, NULL) == 0);
    REQUIRE(waitpid(child, &status, __WALL) == child && status == 0);
    struct figures figures = *shared;
    figures.instructions = steps[many->in_thread ? 0 : PAIRS / 2];
    print_message(
        "%-8s %8zu alive: %5zu instructions, tables %9zu, resident %11zu, %6zu mappings\n",
        many->name, alive, figures.instructions, figures.tables, figures.resident,
        figures.mappings);
    return figures;
}

/* Returns what many of them take. */
static struct figures compare(const struct many *many, size_t few, size_t some, size_t full)
{
    const size_t counts[] = {some, full};
    size_t least = figures_of(many, few).instructions;
    size_t most = is_full() ? (3 * least + 2) / 2 : 3 * least;
    struct figures figures = {0};
    for (size_t i = 0; i < 1 + (size_t)is_full(); i++) {
        size_t more = 0;
        do { /* the pair may do periodic work, or meet a full slab */
            figures = figures_of(many, counts[i] + more);
            more = more == 0 ? 1 : 3 * more;
        } while (figures.instructions > most && more < 1000);
        REQUIRE_SIZE(figures.instructions, <=, most);
    }
    return figures;
}

/* --- heaps in turn --- */

static void heap_pair(size_t number)
{
    hak_heap *heap = blocks[number * 7919 % alive_now];
    hak_heap_free(heap, hak_heap_malloc(heap, 100));
}

static void heaps_prepare(size_t alive)
{
    for (size_t i = 0; i < alive; i++) {
        blocks[i] = hak_heap_create(NULL);
        REQUIRE(blocks[i] != NULL);
    }
    for (size_t i = 0; i < alive; i++) {
        REQUIRE(hak_heap_malloc(blocks[i], 100) != NULL);
    }
}

static size_t heap_tables(void)
{
    return hak__heap_slots.mask + sizeof(struct heap_slot);
}

TEST(heaps)
{
    static const struct many alone = {"heaps", heaps_prepare, heap_pair, heap_tables, false};
    SKIP_IF(HAK_LEVEL >= 1 || SUPPORT_SANITIZED); /* they walk and count on their own */
    struct figures figures = compare(&alone, 16, 3000, 100000);
    REQUIRE_SIZE(figures.tables * 1000, <=, figures.resident * 3);
}

/* --- huge blocks, and blocks that nobody touches --- */

static size_t block_size;

static void block_pair(size_t number)
{
    size_t place = number * 7919 % alive_now;
    hak_free(blocks[place]);
    blocks[place] = hak_malloc(block_size);
}

static void blocks_prepare(size_t alive)
{
    for (size_t i = 0; i < alive; i++) {
        blocks[i] = hak_malloc(block_size);
        if (blocks[i] == NULL) {
            alive_now = i;
            break;
        }
    }
    REQUIRE(alive_now == alive || is_full());
    for (size_t i = 0; i < (block_size == HUGE_BLOCK ? 10 * alive_now : 1000); i++) {
        block_pair(i);
    }
}

static size_t all_tables(void)
{
    return hak__metadata_bytes();
}

TEST(huge)
{
    static const struct many huge = {"huge", blocks_prepare, block_pair, all_tables, false};
    SKIP_IF(HAK_LEVEL >= 1 || SUPPORT_SANITIZED);
    block_size = HUGE_BLOCK;
    (void)compare(&huge, 1000, 10000, 1000000);
}

TEST(untouched)
{
    static const struct many large = {"1 MiB", blocks_prepare, block_pair, all_tables, false};
    static const struct many small = {"64 KiB", blocks_prepare, block_pair, all_tables, false};
    SKIP_IF(HAK_LEVEL >= 1 || SUPPORT_SANITIZED);
    block_size = MIB;
    (void)compare(&large, 1024, 8192, 1048576);
    block_size = 64 * KIB;
    (void)compare(&small, 16384, 65536, 16777216);
}

/* --- threads --- */

static void thread_pair(size_t number)
{
    hak_free(hak_malloc(100));
}

static pthread_barrier_t all_used;

static void *allocate_and_wait(void *argument)
{
    REQUIRE(hak_malloc(100) != NULL);
    pthread_barrier_wait(&all_used);
    pause();
    return argument;
}

static void threads_prepare(size_t alive)
{
    REQUIRE(pthread_barrier_init(&all_used, NULL, (unsigned)alive + 1) == 0);
    for (size_t i = 0; i < alive; i++) {
        thread_start(allocate_and_wait, NULL);
    }
    pthread_barrier_wait(&all_used);
}

TEST(threads)
{
    static const struct many threads = {"threads", threads_prepare, thread_pair, all_tables, true};
    SKIP_IF(HAK_LEVEL >= 1 || SUPPORT_SANITIZED);
    (void)compare(&threads, 100, 2000, 25000);
}

TESTS(NULL)
