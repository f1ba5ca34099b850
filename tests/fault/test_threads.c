/* SPDX-License-Identifier: MIT */
/* test_threads.c: calls fail while threads are born, end and free each other's blocks; in a fork's
 * child; and at random in four threads at once.
 * ctest: no-qemu */
#include "../threads/threads.h"
#include "scenario.h"

/* --- birth and end --- */

enum { THREADS = 28, GIVEN = 8 }; /* so many structs that more memory for them is mapped */

static pthread_key_t late_key;

static void late_destructor(void *block)
{
    errno = ERRNO_UNTOUCHED;
    hak_free(block); /* perhaps after the library's own: with borrowed things */
    REQUIRE(errno == ERRNO_UNTOUCHED);
    errno = 0;
    void *another = hak_malloc(200);
    REQUIRE(another != NULL || errno == ENOMEM);
    hak_free(another);
}

/* Waits for its end, so that many live at once. */
struct guest {
    pthread_t thread;
    pthread_barrier_t *leave;
    pthread_barrier_t arrived;
    size_t first; /* of the blocks that main gave it */
};

static void *guest_body(void *argument)
{
    struct guest *guest = argument;
    for (size_t i = 0; i < GIVEN; i++) {
        drop(guest->first + i);
    }
    static const size_t sizes[GIVEN] = {16, 100, 700, 5000, 40000, 100000, 16, 3 * MIB};
    for (size_t i = 0; i < GIVEN; i++) {
        errno = 0;
        void *block = hak_malloc(sizes[i]);
        REQUIRE(block != NULL || errno == ENOMEM);
        errno = ERRNO_UNTOUCHED;
        hak_free(block);
        REQUIRE(errno == ERRNO_UNTOUCHED);
    }
    pthread_setspecific(late_key, hak_malloc(300));
    pthread_barrier_wait(&guest->arrived);
    pthread_barrier_wait(guest->leave);
    return NULL;
}

static void play_guests(void)
{
    static struct guest guests[THREADS];
    static pthread_barrier_t leave;
    REQUIRE(pthread_key_create(&late_key, late_destructor) == 0);
    REQUIRE(pthread_barrier_init(&leave, NULL, THREADS + 1) == 0);
    for (size_t i = 0; i < THREADS; i++) {
        struct guest *guest = &guests[i];
        guest->first = i * GIVEN;
        guest->leave = &leave;
        for (size_t j = 0; j < GIVEN; j++) {
            try_malloc(guest->first + j, j == 5 ? 150 * KIB : j == 6 ? 3 * MIB : 20 + 100 * i);
        }
        REQUIRE(pthread_barrier_init(&guest->arrived, NULL, 2) == 0);
        guest->thread = thread_start(guest_body, guest);
        pthread_barrier_wait(&guest->arrived); /* one at a time: each run is the same */
    }
    pthread_barrier_wait(&leave);
    for (size_t i = 0; i < THREADS; i++) {
        thread_join(guests[i].thread);
    }
}

static void prepare_guests(void)
{
    hak__knobs.arenas_max = 8;
    hak__knobs.purge_delay_ms = UINT32_MAX;
    REQUIRE(try_malloc(0, 100));
    keep_all();
}

/* --- fork --- */

enum { BUSY_LARGE = 200 * KIB };
static bool shared_stop;

static void *busy_body(void *argument)
{
    while (!__atomic_load_n(&shared_stop, __ATOMIC_RELAXED)) {
        void *block = hak_malloc(3000);
        hak_free(block);
        block = hak_malloc(BUSY_LARGE);
        hak_free(block);
    }
    return NULL;
}

static void play_in_child(void *argument)
{
    for (size_t i = 0; i < 60; i++) {
        try_malloc(100 + i, i % 10 == 0 ? (2 + i / 10) * MIB + 1 : i * i * 100);
    }
    for (size_t i = 0; i < 60; i++) {
        try_realloc(100 + i, i * i * 130 + 1 > held_blocks[100 + i].size
                                 ? i * i * 130 + 1
                                 : held_blocks[100 + i].size + 1);
        drop(100 + i);
    }
    drop_all();
    hak_trim(0);
}

/* The plan counts from the fork on, in the child. */
static void play_fork(void)
{
    fault_disarm();
    struct fault_plan plan = fault_plan;
    pthread_t busy = thread_start(busy_body, NULL);
    for (size_t i = 0; i < 3; i++) {
        REQUIRE(try_malloc(i, 100 + i * MIB));
    }
    uint64_t *told =
        __real_mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(told != MAP_FAILED);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(200);
        fault_arm(plan, 0);
        play_in_child(NULL);
        fault_disarm();
        memcpy(told, fault_counts, sizeof fault_counts);
        told[FAULT_CALLS] = fault_fired_count;
        told[FAULT_CALLS + 1] = held_failures;
        recover();
        drop_all();
        hak__arena_reclaim(true);
        REQUIRE(hak__own.held == 0);
        /* At the fork the busy thread may have been mapping, or unmapping, a block beside the
         * arenas. */
        rest_check_mapped(BUSY_LARGE + hak__os_page_size());
        kept_check();
        _exit(0);
    }
    int status;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
    __atomic_store_n(&shared_stop, true, __ATOMIC_RELAXED);
    thread_join(busy);
    memcpy(fault_counts, told, sizeof fault_counts);
    fault_fired_count = told[FAULT_CALLS];
    held_failures = told[FAULT_CALLS + 1];
    __real_munmap(told, 4096);
}

static void prepare_fork(void)
{
    hak__knobs.purge_delay_ms = UINT32_MAX;
    for (size_t i = 0; i < 50; i++) {
        REQUIRE(try_malloc(i, i * 150));
    }
    keep_all();
}

static const struct scenario scenarios[] = {
    {"thread birth and end", prepare_guests, play_guests, true},
    {"first threads", NULL, play_guests, true},
    {"fork", prepare_fork, play_fork, true},
};

TEST(threads_and_forks)
{
    scenario_require_all(scenarios, COUNT_OF(scenarios));
}

/* --- at random --- */

enum { WORKERS = 4, SLOTS = 64 };

struct worker {
    pthread_t thread;
    uint64_t random;
    size_t index;
};

/* Blocks are left for the others in a table that all use. */
static void *shared_blocks[SLOTS];

static void *worker_body(void *argument)
{
    struct worker *worker = argument;
    size_t first = worker->index * 256;
    for (size_t i = 0; i < (SUPPORT_SLOW ? 1500 : 4000); i++) {
        size_t index = first + random_below(&worker->random, 200);
        size_t size = random_size(&worker->random, 1 + (unsigned)random_below(&worker->random, 23));
        switch (random_below(&worker->random, 8)) {
        case 0:
            drop(index);
            try_calloc(index, size);
            break;
        case 1:
            drop(index);
            try_aligned(index, (size_t)16 << random_below(&worker->random, 18), size);
            break;
        case 2:
            try_realloc(index, held_blocks[index].size + 1 + size / 4);
            break;
        case 3: {
            void *block = hak_malloc(size);
            void *other = __atomic_exchange_n(&shared_blocks[random_below(&worker->random, SLOTS)],
                                              block, __ATOMIC_ACQ_REL);
            errno = ERRNO_UNTOUCHED;
            hak_free(other);
            REQUIRE(errno == ERRNO_UNTOUCHED);
            break;
        }
        case 4:
            if (i % 64 == 0) {
                hak_trim(0);
            }
            break;
        default:
            drop(index);
            try_malloc(index, size / 8);
        }
    }
    for (size_t i = 0; i < 256; i++) {
        drop(first + i);
    }
    return NULL;
}

/* All calls but a futex's wake, whose waiter would sleep for ever; in the second round no futex
 * works at all. */
static void random_faults(void *argument)
{
    uint64_t seed = *(const uint64_t *)argument;
    struct worker workers[WORKERS];
    struct rest before = rest_now();
    struct fault_plan plan = {FAULT_ALL, 1, 0, false, 4 + (uint32_t)(seed % 13)};
    hak__knobs.purge_delay_ms = (uint32_t)(seed % 3);
    hak__knobs.huge_threshold = 4 * MIB;
    if (seed % 4 == 3) {
        plan = (struct fault_plan){FAULT_SET(FAULT_WAIT) | FAULT_SET(FAULT_WAKE), 1,
                                   seed % 8 == 3 ? EPERM : ENOSYS, true, 0};
    }
    fault_arm(plan, seed);
    for (size_t i = 0; i < WORKERS; i++) {
        workers[i].index = i;
        workers[i].random = seed * WORKERS + i;
        workers[i].thread = thread_start(worker_body, &workers[i]);
    }
    for (size_t i = 0; i < WORKERS; i++) {
        thread_join(workers[i].thread);
    }
    fault_disarm();
    REQUIRE(seed % 4 == 3 || fault_fired_count != 0);
    FREE_ALL(shared_blocks, SLOTS);
    rest_check(&before);
    recover();
    drop_all();
    rest_check(&before);
}

TEST(random_faults)
{
    for (uint64_t seed = 1; seed <= 13; seed++) { /* each of the plans' rates once */
        struct child_end end;
        child_fork(random_faults, &seed, &end);
        if (!WIFEXITED(end.status) || WEXITSTATUS(end.status) != 0 || end.length != 0) {
            fail_msg("seed %llu: status %#x and <%s>", (unsigned long long)seed,
                     (unsigned)end.status, end.text);
        }
    }
}

TESTS(NULL)
