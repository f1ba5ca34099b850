/* SPDX-License-Identifier: MIT */
/* test_scavenger.c: HAKMEM_SCAVENGER=1: memory that was freed goes back to the OS while the program
 * idles, also in a forked child (jemalloc #1127: dirty memory stays when a process idles); and
 * nothing else about the program changes: its signals, its file descriptors, and its end when the
 * main thread has ended before the others.
 *
 * While tasks wait for memory it goes back long before its time (played: a file of ours in place of
 * the kernel's, where a mount name space is allowed).
 *
 * The options are read once at start, so the program runs itself anew with them.
 *
 * ctest: no-qemu
 */
#include "override.h"

#include <sys/mount.h>

enum {
    THREADS = 8,
    BLOCKS = 4096,
    BLOCK_SIZE_MAX = 8000,
    KEPT_OF = 20, /* one in so many is kept */
    DELAY_MS = 100,
    LONG_DELAY_MS = 40000,
    WAIT_MS = 10000 /* the bound: ten seconds */
};

static void *blocks[THREADS][BLOCKS];

static void *churn(void *argument)
{
    void **mine = argument;
    uint32_t random = 1;
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < BLOCKS; i++) {
            random = random * 1664525 + 1013904223;
            size_t size = 64 + (random >> 8) % BLOCK_SIZE_MAX;
            mine[i] = malloc(size);
            CHECK(mine[i] != NULL);
            memset(mine[i], 1, size);
        }
        /* at the end the first ones stay */
        for (size_t i = round < 2 ? 0 : BLOCKS / KEPT_OF; i < BLOCKS; i++) {
            free(mine[i]);
            mine[i] = NULL;
        }
    }
    return NULL;
}

static void churn_in_threads(void)
{
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, churn, blocks[i]) == 0);
    }
    join_all(threads, THREADS);
}

/* "total" microseconds were waited so far, in the file that is put in the place of the kernel's. */
static void write_pressure(int file, unsigned long long total_us)
{
    char line[96];
    int length = snprintf(line, sizeof line,
                          "some avg10=0.00 avg60=0.00 avg300=0.00 total=%020llu\n", total_us);
    CHECK(pwrite(file, line, (size_t)length, 0) == length);
}

static int pressure_file = -1;

/* Does nothing until at least four fifths of what was used and freed is gone, or it is too late. */
static bool idle_until_gone(size_t before)
{
    size_t used = (size_t)THREADS * BLOCKS * (64 + BLOCK_SIZE_MAX / 2);
    size_t freed = used - used / KEPT_OF;
    for (int waited = 0; waited < WAIT_MS; waited += 20) {
        if (resident_bytes() < before + used - freed / 5 * 4) {
            return true;
        }
        usleep(20000);
        if (pressure_file >= 0) { /* half the time somebody waits */
            write_pressure(pressure_file, (unsigned long long)waited * 500);
        }
    }
    return false;
}

static void free_kept(void)
{
    for (size_t i = 0; i < THREADS * BLOCKS; i++) {
        free(blocks[i / BLOCKS][i % BLOCKS]);
        blocks[i / BLOCKS][i % BLOCKS] = NULL;
    }
}

static void idle_after_churn(void)
{
    size_t before = resident_bytes();
    churn_in_threads();
    CHECK(idle_until_gone(before));
    free_kept();
}

static void has_a_scavenger(void)
{
    for (int waited = 0; threads_count(getpid()) != 2 && waited < WAIT_MS; waited++) {
        usleep(1000);
    }
    CHECK_EQUAL(threads_count(getpid()), 2);
}

/* A signal to the process that its only thread blocks stays pending. */
static void signals_are_the_programs(void)
{
    sigset_t mine;
    struct timespec second = {1, 0};
    sigemptyset(&mine);
    sigaddset(&mine, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &mine, NULL) == 0);
    CHECK(kill(getpid(), SIGUSR1) == 0);
    CHECK_EQUAL(sigtimedwait(&mine, NULL, &second), SIGUSR1);
}

static long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The lowest free descriptor is what the next open returns, whatever the scavenger does. */
static void descriptors_are_the_programs(void)
{
    int expected = dup(0);
    CHECK(expected >= 0 && close(expected) == 0);
    for (long start = now_ms(); now_ms() - start < 4 * DELAY_MS;) {
        CHECK_EQUAL(dup(0), expected);
        close(expected);
    }
}

/* A descriptor that the program has closed is closed: the scavenger holds none. */
static void descriptors_are_closed(const int pipe_ends[2])
{
    char byte;
    close(pipe_ends[1]);
    CHECK(read(pipe_ends[0], &byte, 1) == 0);
    close(pipe_ends[0]);
}

static void *outlive_main(void *argument)
{
    usleep(50000);
    return argument;
}

/* In a process of its own, which ends with status 0 when its last own thread does: long before the
 * period of the scavenger is over. */
static void end_after_main(void)
{
    long start = now_ms();
    IN_CHILD("child") {
        pthread_t thread;
        alarm(20);
        CHECK(pthread_create(&thread, NULL, outlive_main, NULL) == 0);
        pthread_exit(NULL);
    }
    CHECK(now_ms() - start < LONG_DELAY_MS / 4);
}

static void run_with(void)
{
    prove_served();
    has_a_scavenger();
    signals_are_the_programs();
    descriptors_are_the_programs();
    idle_after_churn();
    int pipe_ends[2];
    CHECK(pipe(pipe_ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        has_a_scavenger();
        descriptors_are_closed(pipe_ends);
        idle_after_churn();
        _exit(0);
    }
    descriptors_are_closed(pipe_ends);
    wait_for_success(child, "child");
}

/* In a mount name space of its own; false when that is not allowed here. */
static bool put_in_place(const char *path)
{
    int user = geteuid() == 0 ? 0 : CLONE_NEWUSER;
    return unshare(user | CLONE_NEWNS) == 0 &&
           mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", "/sys/fs/cgroup", "tmpfs", 0, NULL) == 0 &&
           mount(path, "/proc/pressure/memory", NULL, MS_BIND, NULL) == 0;
}

static void run_self_pressed(const char *self)
{
    char path[] = "/tmp/hakmem-pressure-XXXXXX", number[16];
    int file = mkstemp(path);
    CHECK(file >= 0);
    write_pressure(file, 0);
    IN_CHILD("child") {
        snprintf(number, sizeof number, "%d", file);
        if (!put_in_place(path)) {
            printf("no pressure is played: %s\n", strerror(errno));
            exit(0);
        }
        CHECK(setenv("HAKMEM_PURGE_DELAY_MS", "1000000", 1) == 0);
        CHECK(setenv("HAKMEM_SCAVENGER", "1", 1) == 0);
        execl(self, self, "pressed", number, (char *)NULL);
        _exit(126);
    }
    unlink(path);
    close(file);
}

static void run_pressed(const char *number)
{
    prove_served();
    has_a_scavenger();
    size_t before = resident_bytes();
    churn_in_threads();
    size_t churned = resident_bytes();
    usleep(1500000);
    CHECK(resident_bytes() + (churned - before) / 4 > churned); /* nobody waits: it is not time */
    free_kept();
    pressure_file = (int)strtol(number, NULL, 10);
    idle_after_churn();
}

static void run_self(const char *part, const char *scavenger, int delay_ms)
{
    char delay[16];
    snprintf(delay, sizeof delay, "%d", delay_ms);
    const char *const variables[] = {"HAKMEM_PURGE_DELAY_MS", delay, "HAKMEM_SCAVENGER", scavenger,
                                     NULL};
    run_again(part, variables);
}

int main(int count, char **arguments)
{
    if (count == 1) {
        run_self("with", "1", DELAY_MS);
        run_self("end", "1", LONG_DELAY_MS);
        run_self("without", "0", DELAY_MS);
        run_self_pressed(arguments[0]);
    } else if (strcmp(arguments[1], "with") == 0) {
        run_with();
    } else if (strcmp(arguments[1], "end") == 0) {
        end_after_main();
    } else if (strcmp(arguments[1], "pressed") == 0) {
        run_pressed(arguments[2]);
    } else {
        prove_served();
        CHECK_EQUAL(threads_count(getpid()), 1); /* without the option */
    }
    return 0;
}
