/* SPDX-License-Identifier: MIT */
/* test_soak.c: hours of a server in which the kind of work keeps changing, watched for what only
 * time shows.
 *
 *   test_soak [--seconds N] [--seed N] [--drift PER_MILLE]
 *
 * A cycle is five phases by new threads, twice as many as processors, then a rest:
 *   small      blocks to 512 bytes take each other's place
 *   mixed      blocks to 64 KiB, one in two hundred to 4 MiB
 *   growing    buffers grow by realloc to megabytes and go
 *   hand over  every other thread allocates what its neighbour frees
 *   grow, shrink   much is allocated, then freed in random order
 * and a store that lives for the whole run, of which each cycle replaces a twentieth: the part that
 * fragments. At the end of each rest only the store is in use. Then:
 *   - every block freed carried its pattern to the last byte looked at
 *   - the library counts exactly the store's objects; at level 2 all its walkers find nothing
 *   - resident memory is noted; the least of the last two fifths of the cycles is at most PER_MILLE
 *     above the most of the second fifth (drift). Single cycles may differ by a quarter: a few
 *     slabs that are not purged yet, or that the store fragments. In 20 s a fifth of the cycles is
 *     one or two, so 300 are allowed there; `./hakmem test --soak` allows 100.
 *
 * ctest: args=--seconds args=8 args=--drift args=300 no-qemu
 */
#include "../threads/threads.h"

enum {
    THREADS_MAX = 64,
    SLOTS = 4096,
    STORE_BLOCKS = 40000,
    STORE_PARTS = 20,
    PHASE_MS = 150,
    REST_MS = 1300, /* longer than the purge delay */
    CYCLES_MAX = 100000
};

struct worker {
    pthread_t thread;
    size_t number;
    size_t phase;
    uint64_t random;
    uint64_t operations;
    struct parcel *slots[SLOTS];
};

static struct worker *workers;
static size_t worker_count;
static struct parcel **store;
static struct queue *queues[THREADS_MAX];
static size_t *resident; /* at the end of each cycle's rest */
static uint64_t operations;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static struct parcel *create(struct worker *worker, size_t size)
{
    worker->operations++;
    return parcel_create(size, worker->random);
}

static void slot_empty(struct worker *worker, size_t slot)
{
    if (worker->slots[slot] != NULL) {
        parcel_free(worker->slots[slot]);
        worker->slots[slot] = NULL;
        worker->operations++;
    }
}

static void slots_empty(struct worker *worker)
{
    for (size_t i = 0; i < SLOTS; i++) {
        slot_empty(worker, i);
    }
}

static size_t small_size(uint64_t *random)
{
    return random_below(random, 512);
}

static size_t mixed_size(uint64_t *random)
{
    return random_below(random, 200) == 0 ? random_size(random, 22) : random_size(random, 16);
}

static void replace_blocks(struct worker *worker, size_t slots, size_t (*size)(uint64_t *))
{
    uint64_t end = now_ns() + PHASE_MS * UINT64_C(1000000);
    while (now_ns() < end) {
        for (int i = 0; i < 64; i++) {
            size_t slot = random_below(&worker->random, slots);
            slot_empty(worker, slot);
            worker->slots[slot] = create(worker, size(&worker->random));
        }
    }
    slots_empty(worker);
}

static void phase_small(struct worker *worker)
{
    replace_blocks(worker, SLOTS, small_size);
}

static void phase_mixed(struct worker *worker)
{
    replace_blocks(worker, SLOTS / 8, mixed_size);
}

static void phase_growing(struct worker *worker)
{
    uint64_t end = now_ns() + PHASE_MS * UINT64_C(1000000);
    while (now_ns() < end) {
        size_t size = 16 + random_below(&worker->random, 1000);
        size_t last = random_size(&worker->random, 24);
        unsigned char *buffer = NULL;
        for (size_t before = 0; size < last; before = size, size += size / 2) {
            buffer = hak_realloc(buffer, size);
            REQUIRE(buffer != NULL);
            if (before != 0) {
                REQUIRE(buffer[0] == 0xa5 && buffer[before - 1] == 0x5a);
            }
            buffer[0] = 0xa5;
            buffer[size - 1] = 0x5a;
            worker->operations++;
        }
        hak_free(buffer);
    }
}

static void hand_over_take(struct worker *worker)
{
    void *items[64];
    size_t count;
    while ((count = queue_take(queues[worker->number / 2], items, COUNT_OF(items), 0)) != 0) {
        for (size_t i = 0; i < count; i++) {
            parcel_free(items[i]);
        }
        worker->operations += count;
    }
}

static void phase_hand_over(struct worker *worker)
{
    uint64_t end = now_ns() + PHASE_MS * UINT64_C(1000000);
    if (worker->number % 2 == 1) {
        hand_over_take(worker);
        return;
    }
    while (now_ns() < end) {
        void *items[64];
        for (size_t i = 0; i < COUNT_OF(items); i++) {
            items[i] = create(worker, random_size(&worker->random, 12));
        }
        queue_put(queues[worker->number / 2], items, COUNT_OF(items));
    }
    queue_close(queues[worker->number / 2]);
}

static void phase_grow_and_shrink(struct worker *worker)
{
    for (size_t i = 0; i < SLOTS; i++) {
        worker->slots[i] = create(worker, random_size(&worker->random, 15));
    }
    for (size_t i = 0; i < 3 * SLOTS; i++) {
        slot_empty(worker, random_below(&worker->random, SLOTS));
    }
    slots_empty(worker);
}

static void (*const phases[])(struct worker *) = {phase_small, phase_mixed, phase_growing,
                                                  phase_hand_over, phase_grow_and_shrink};

static void *worker_run(void *argument)
{
    struct worker *worker = argument;
    phases[worker->phase](worker);
    return NULL;
}

/* By new threads: each phase's are those of another generation. */
static void run_phase(size_t phase)
{
    for (size_t i = 0; i < worker_count; i += 2) {
        queues[i / 2] = queue_create(1024, 1);
    }
    for (size_t i = 0; i < worker_count; i++) {
        workers[i].phase = phase;
        workers[i].thread = thread_start(worker_run, &workers[i]);
    }
    for (size_t i = 0; i < worker_count; i++) {
        thread_join(workers[i].thread);
    }
    for (size_t i = 0; i < worker_count; i += 2) {
        queue_destroy(queues[i / 2]);
    }
}

/* Another twentieth of the store. The sizes at a place stay, so that the store's bytes do. */
static void store_replace(size_t part, uint64_t seed)
{
    for (size_t i = part; i < STORE_BLOCKS; i += STORE_PARTS) {
        uint64_t random = i * 7919;
        parcel_free(store[i]);
        store[i] = parcel_create(random_size(&random, 12), seed + i);
    }
}

/* A child of a process that has had many threads works, too. */
static void fork_once(struct worker *worker)
{
    int status;
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(280);
        phase_grow_and_shrink(worker);
        _exit(0);
    }
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
}

/* Nothing but now and then an operation, as a server that waits. */
static void rest(void)
{
    for (int i = 0; i < REST_MS / 10; i++) {
        usleep(10000);
        hak_free(hide(hak_malloc(100 * KIB)));
    }
}

static size_t objects_before; /* the process's own */

static void start_counts(void)
{
    objects_before = stats_now().objects_in_use_count;
}

static void check_counts(size_t cycle)
{
    struct hak_stats stats = stats_now();
    if (stats.objects_in_use_count != objects_before + STORE_BLOCKS) {
        support_fail("soak: FAILED: cycle %zu: %zu objects in use, not %zu\n", cycle,
                     stats.objects_in_use_count, objects_before + STORE_BLOCKS);
    }
    if (HAK_LEVEL >= 2) {
        hak_trim(0); /* walks every arena */
    }
}

static void run_cycle(size_t cycle)
{
    for (size_t phase = 0; phase < COUNT_OF(phases); phase++) {
        run_phase(phase);
    }
    store_replace(cycle % STORE_PARTS, cycle);
    fork_once(&workers[0]);
    rest();
    resident[cycle] = rss_bytes();
    check_counts(cycle);
}

/* The least and the most of the cycles [first, last). */
static size_t resident_least(size_t first, size_t last)
{
    size_t least = resident[first];
    for (size_t i = first; i < last; i++) {
        least = resident[i] < least ? resident[i] : least;
    }
    return least;
}

static size_t resident_most(size_t first, size_t last)
{
    size_t most = resident[first];
    for (size_t i = first; i < last; i++) {
        most = resident[i] > most ? resident[i] : most;
    }
    return most;
}

/* Ends the process when resident memory has crept up. */
static void report(size_t cycles, uint64_t seconds, long drift_max)
{
    size_t part = cycles * 2 / 5;
    size_t early = resident_most(part / 2, part), late = resident_least(cycles - part, cycles);
    double drift = ((double)late - (double)early) * 1000 / (double)early;
    for (size_t i = 0; i < worker_count; i++) {
        operations += workers[i].operations;
    }
    printf("soak: %zu cycles in %llu s, %llu blocks by %zu threads at a time; resident at most %zu "
           "KiB in the second fifth, at least %zu KiB in the last two: drift %.1f per mille\n",
           cycles, (unsigned long long)seconds, (unsigned long long)operations, worker_count,
           early / KIB, late / KIB, drift);
    if (drift > (double)drift_max) {
        support_fail("soak: FAILED: drift above %ld per mille\n", drift_max);
    }
}

static void store_fill(void)
{
    for (size_t i = 0; i < STORE_BLOCKS; i++) {
        uint64_t random = i * 7919;
        store[i] = parcel_create(random_size(&random, 12), i);
    }
}

int main(int count, char **arguments)
{
    uint64_t seconds = argument_number(count, arguments, "--seconds", 60);
    uint64_t seed = argument_number(count, arguments, "--seed", (uint64_t)time(NULL));
    uint64_t drift_max = argument_number(count, arguments, "--drift", 10);
    uint64_t start = now_ns(), end = start + seconds * 1000000000;
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    worker_count = processors < THREADS_MAX / 2 ? 2 * (size_t)processors : THREADS_MAX;
    printf("soak: seed %llu, %llu seconds, level %d\n", (unsigned long long)seed,
           (unsigned long long)seconds, HAK_LEVEL);
    fflush(stdout);
    workers = support_map(worker_count * sizeof *workers);
    store = support_map(STORE_BLOCKS * sizeof(struct parcel *));
    resident = support_map(CYCLES_MAX * sizeof *resident);
    for (size_t i = 0; i < worker_count; i++) {
        workers[i].number = i;
        workers[i].random = seed + i;
    }
    run_phase(0); /* what the C library keeps for threads */
    start_counts();
    store_fill();
    size_t cycle = 0;
    for (; cycle < CYCLES_MAX && (now_ns() < end || cycle < 5); cycle++) {
        run_cycle(cycle);
    }
    report(cycle, (now_ns() - start) / 1000000000, (long)drift_max);
    return 0;
}
