/* SPDX-License-Identifier: MIT */
/* startup.c: a trivial process from fork and exec to its end, again and again.
 *
 * Imitates: shell scripts, build systems and git hooks, which start thousands of programs that
 * hardly allocate. The workload starts itself COUNT times, one after another, by fork and exec; the
 * started process allocates and frees ten small blocks and ends. One operation is one such process.
 * What counts is what an allocator does before main (mappings, tables, reading its options, the
 * dynamic loader's work on its file) and at exit. The shape is the project's own.
 *
 * Does not show: the fork of a large process (this one is small). Most of the half millisecond or
 * so is the kernel's and the loader's, the same for all. User and system time and faults in the
 * line are of the parent, `allocate` of --latency is a whole process; the notes children_* are of
 * all started processes together. --threads N: N threads start COUNT processes each.
 */
#include "harness.h"

#include <limits.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT, ARGUMENT_COUNT };
enum { CHILD_BLOCKS = 10, EXEC_FAILED = 127 };

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_COUNT(COUNT, "processes each thread starts, one after another", 500, 20, 1,
                UINT64_C(1000000000)),
};

BENCH_WORKLOAD("startup",
               "Starts a trivial process by fork and exec and waits for its end, each step.");

/* What execv wants; filled before the clock: nothing may be computed between fork and exec. */
static char program_path[PATH_MAX];
static char child_word[] = "--child";
static char *child_arguments[] = {program_path, child_word, NULL};

/* The trivial program. */
static int child_main(void)
{
    unsigned char *blocks[CHILD_BLOCKS];
    for (size_t i = 0; i < CHILD_BLOCKS; i++) {
        blocks[i] = malloc((size_t)16 << i);
        if (blocks[i] == NULL) {
            _exit(1);
        }
        blocks[i][0] = 1;
    }
    for (size_t i = 0; i < CHILD_BLOCKS; i++) {
        free(blocks[i]);
    }
    return 0;
}

static void process_run(void)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        (void)execve(program_path, child_arguments, environ);
        _exit(EXEC_FAILED);
    }
    if (child < 0) {
        bench_fail_run("could not start a process: fork failed.");
    }
    if (waitpid(child, &status, 0) != child || status != 0) {
        bench_fail_run("a process it started did not end well.");
    }
}

static void processes_measure(struct bench_thread *thread)
{
    for (uint64_t i = 0; i < arguments[COUNT].value; i++) {
        uint64_t start_ns = thread->latency == NULL ? 0 : bench_now_ns();
        process_run();
        if (thread->latency != NULL) {
            bench_histogram_record(&thread->latency->allocate, bench_now_ns() - start_ns);
        }
    }
    thread->operations = arguments[COUNT].value;
}

static uint64_t time_ns(const struct timeval *time)
{
    return (uint64_t)time->tv_sec * UINT64_C(1000000000) + (uint64_t)time->tv_usec * 1000;
}

static void children_note(void)
{
    struct rusage usage;
    (void)getrusage(RUSAGE_CHILDREN, &usage);
    bench_note("children_user_ns", NULL, time_ns(&usage.ru_utime));
    bench_note("children_system_ns", NULL, time_ns(&usage.ru_stime));
    bench_note("children_minor_faults", NULL, (uint64_t)usage.ru_minflt);
}

int main(int argc, char **argv)
{
    static const struct bench_phases phases = {.measure = processes_measure};
    if (argc == 2 && strcmp(argv[1], child_word) == 0) {
        return child_main();
    }
    bench_start(&workload, argc, argv);
    if (readlink("/proc/self/exe", program_path, sizeof program_path - 1) <= 0) {
        bench_fail_run("could not find its own file: /proc is not there.");
    }
    bench_run(&phases);
    children_note();
    bench_report();
    return 0;
}
