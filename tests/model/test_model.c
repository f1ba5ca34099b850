/* SPDX-License-Identifier: MIT */
/* test_model.c: random operations of the whole hak_ API by several threads, each result held
 * against a model.
 *
 *   test_model [--seconds N] [--threads N] [--seed N] [--operations N] [--max-live BYTES]
 *              [--size-bits N]
 *
 * A lane is a table of blocks and a chain of threads, one at a time, that work on it; threads end
 * and begin often, so blocks outlive their threads and arenas pass from one to the next. Lanes
 * exchange blocks through shared slots, so every kind of block is freed and resized by others. All
 * draws of an operation come from (seed, lane, operation number): a lane does the same for the same
 * seed, up to the blocks it gets from others (`--threads 1` is exact). The model takes no memory
 * from the allocator under test. A difference ends the process with status 1 and one line that
 * names seed, lane, operation and what differs.
 */
#include "lane.h"

static uint64_t option_operations, option_seconds;
static bool shared_stop;

static void crash_report(int signal_number)
{
    char line[256];
    const struct lane *lane = lane_current;
    int length = snprintf(
        line, sizeof line,
        "model: FAILED: signal %d: seed %llu, threads %llu, lane %llu, operation %llu (%s)\n",
        signal_number, (unsigned long long)option_seed, (unsigned long long)option_threads,
        lane == NULL ? 999ULL : (unsigned long long)lane->number,
        lane == NULL ? 0ULL : (unsigned long long)lane->shared_operation,
        lane == NULL ? "outside a lane" : lane->doing);
    ssize_t ignored = write(STDERR_FILENO, line, (size_t)length);
    (void)ignored;
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static bool lane_is_done(const struct lane *lane)
{
    return __atomic_load_n(&shared_stop, __ATOMIC_RELAXED) ||
           lane->shared_operation >= option_operations;
}

/* One thread's life: some operations, then the end with all, some or none of the lane's blocks
 * alive. */
static void *generation_run(void *argument)
{
    struct lane *lane = argument;
    lane_current = lane;
    uint64_t random = option_seed + lane->number * 7919 + lane->generation * 104729;
    size_t length = random_size(&random, 13);
    size_t ending = random_below(&random, 8);
    for (size_t i = 0; i < length && !lane_is_done(lane); i++) {
        lane->draws.random = (option_seed * 1000003 + lane->number) * UINT64_C(0xd1342543de82ef95) +
                             lane->shared_operation;
        lane_step(lane);
        __atomic_store_n(&lane->shared_operation, lane->shared_operation + 1, __ATOMIC_RELAXED);
    }
    if (ending < 3) {
        lane_drain(lane, ending + 1);
    }
    return NULL;
}

static void *lane_run(void *argument)
{
    struct lane *lane = argument;
    while (!lane_is_done(lane)) {
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, generation_run, lane) == 0);
        REQUIRE(pthread_join(thread, NULL) == 0);
        lane->generation++;
    }
    return NULL;
}

/* Ends the run when its time is over; a lane that does not move for a minute is a deadlock. */
static void lanes_watch(void)
{
    uint64_t last[LANES_MAX], moved[LANES_MAX], start = now_ms(CLOCK_MONOTONIC);
    for (size_t i = 0; i < option_threads; i++) {
        last[i] = UINT64_MAX;
        moved[i] = start;
    }
    for (bool busy = true; busy && now_ms(CLOCK_MONOTONIC) - start < option_seconds * 1000;) {
        busy = false;
        usleep(20000);
        for (size_t i = 0; i < option_threads; i++) {
            uint64_t operation = __atomic_load_n(&lanes[i].shared_operation, __ATOMIC_RELAXED);
            moved[i] = operation == last[i] ? moved[i] : now_ms(CLOCK_MONOTONIC);
            last[i] = operation;
            if (operation < option_operations) {
                busy = true;
                if (now_ms(CLOCK_MONOTONIC) - moved[i] > 60000) {
                    model_fail(&lanes[i], "no progress for a minute");
                }
            }
        }
    }
    __atomic_store_n(&shared_stop, true, __ATOMIC_RELAXED);
}

static void options_read(int count, char **arguments)
{
    uint64_t clock_seed = (uint64_t)time(NULL) * 1000 + (uint64_t)getpid() % 1000;
    option_seed = argument_number(count, arguments, "--seed", clock_seed);
    option_threads = argument_number(count, arguments, "--threads", 4);
    option_operations = argument_number(count, arguments, "--operations", UINT64_MAX);
    option_seconds = argument_number(count, arguments, "--seconds",
                                     option_operations == UINT64_MAX ? 3 : 1000000);
    option_size_bits = argument_number(count, arguments, "--size-bits", SIZE_BITS);
    option_max_live = argument_number(count, arguments, "--max-live", 2 * GIB);
    if (option_threads == 0 || option_threads > LANES_MAX) {
        support_fail("model: --threads must be 1 to %d\n", LANES_MAX);
    }
    if (option_size_bits < 12 || option_size_bits > SIZE_BITS) {
        support_fail("model: --size-bits must be 12 to %d\n", SIZE_BITS);
    }
    printf("model: seed %llu, threads %llu, level %d\n", (unsigned long long)option_seed,
           (unsigned long long)option_threads, HAK_LEVEL);
    fflush(stdout);
}

int main(int count, char **arguments)
{
    pthread_t drivers[LANES_MAX];
    options_read(count, arguments);
    if (!SUPPORT_SANITIZED) {
        signal(SIGSEGV, crash_report);
        signal(SIGBUS, crash_report);
        signal(SIGABRT, crash_report);
    }
    struct hak_stats before = stats_now();
    for (size_t i = 0; i < SHARED_SLOTS; i++) {
        pthread_mutex_init(&shared_slots[i].lock, NULL);
    }
    for (size_t i = 0; i < option_threads; i++) {
        lane_init(i, LANE_SLOTS);
        REQUIRE(pthread_create(&drivers[i], NULL, lane_run, &lanes[i]) == 0);
    }
    lanes_watch();
    uint64_t operations = 0, generations = 0;
    for (size_t i = 0; i < option_threads; i++) {
        pthread_join(drivers[i], NULL);
        operations += lanes[i].shared_operation;
        generations += lanes[i].generation;
    }
    lanes_end(option_threads, &before);
    printf("model: no difference in %llu operations by %llu threads\n",
           (unsigned long long)operations, (unsigned long long)generations);
    return 0;
}
