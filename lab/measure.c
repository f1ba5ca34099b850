/* SPDX-License-Identifier: MIT */
/* measure.c: runs one program and prints one line of JSON about it.
 *
 *   measure [OPTIONS] -- PROGRAM [ARGUMENT...]
 *
 *   --interval-ms N     longest time between two samples of the memory (10)
 *   --timeout-s N       then everything it started is killed (120)
 *   --directory D       where the program runs
 *   --env NAME=VALUE    for the program alone, not for the load; may be repeated
 *   --stdout FILE, --stderr FILE   of the program (/dev/null)
 *   --load WORD         a word of the command that loads the program; may be repeated
 *   --load-stdout FILE  what the load prints (/dev/null)
 *   --ready-ms N        how long the program may take until it is ready: the load waits so long for
 *                       a socket that listens, and is tried again if it fails this soon (10000)
 *   --stop-ms N         how long a loaded program may take to stop (10000)
 *   --rest-s N          reads the memory N seconds after the load's end, before the program is
 *                       stopped; may be repeated with rising N
 *
 * With a load the program is a server: the load starts when it accepts connections (TCP or Unix
 * sockets), or after the time of --ready-ms if it accepts none. Its time is that of the load, its
 * memory at the end is that at the load's end. Then it rests if --rest-s asks for that, and SIGTERM
 * stops it.
 * Time, peak, mean and series end with the load; processor time, faults and switches are those of
 * the whole process, the rest included.
 *
 * The line: "end" is "exit", "signal", "timeout", "load" (the load failed) or "stopped" (the load
 * went well and the program was stopped); "status" the exit status or signal number of the program,
 * of the load for "load"; then the figures of a run (python/hakmem/lab/model.py).
 *
 * Exit status: 0 the line was printed, 1 it cannot measure, 2 usage, 126 and 127 the program cannot
 * be started, 128 + N ended by signal N.
 *
 * Why a program of its own: the peak of a process starts with what the process that forked it had
 * (ru_maxrss survives exec), so a large parent hides small programs. This one is small. Nothing
 * outlives it: it adopts orphans, kills the tree at the end, and dies with its parent.
 */
#include "measure.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOAD_PAUSE_MS = 50, KILL_PAUSE_MS = 10, LISTEN_PAUSE_MS = 5 };

static struct run {
    pid_t program;   /* 0: ended */
    pid_t load;      /* 0: none runs */
    const char *end; /* NULL: not yet */
    int status;
    uint64_t start_ns;
    uint64_t wall_ns;
    uint64_t load_start_ns;
    uint64_t load_next_ns; /* when to start the load (again) */
    uint64_t load_end_ns;
    uint64_t deadline_ns;
    size_t rest_index; /* the next reading */
    bool is_loaded;    /* the load went well */
    bool is_stopping;
    struct rusage usage; /* of all that ended, but loads */
} run;

static sigset_t awaited; /* what measure waits for instead of being interrupted by it */

void measure_fail(int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)fputs("measure: ", stderr);
    (void)vfprintf(stderr, format, arguments);
    (void)fputs("\n", stderr);
    va_end(arguments);
    exit(status);
}

/* ---- Starting processes. ---- */

static pid_t own_id;

/* Becomes the command; reports an errno through `errors` when it cannot. */
static _Noreturn void child_become(char **command, bool is_load, int go, int errors)
{
    char byte;
    int error;
    /* A session of its own: no terminal, and signals meant for us do not reach it. */
    (void)setsid();
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != own_id) {
        _exit(EXIT_FAILURE); /* it ended before that was asked for */
    }
    (void)sigprocmask(SIG_UNBLOCK, &awaited, NULL);
    for (char **variable = options.environment; *variable != NULL && !is_load; variable++) {
        (void)putenv(*variable);
    }
    int output = open(is_load ? options.load_output : options.output,
                      O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    int input = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int said = open(options.errors, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    bool is_ready = input >= 0 && output >= 0 && said >= 0 && dup2(input, STDIN_FILENO) >= 0 &&
                    dup2(output, STDOUT_FILENO) >= 0 && dup2(said, STDERR_FILENO) >= 0 &&
                    (options.directory == NULL || chdir(options.directory) == 0);
    error = errno;
    /* Also who is not ready waits: the parent's write must find a reader. */
    if (read(go, &byte, 1) == 1 && is_ready) {
        (void)execvp(command[0], command);
        error = errno;
    }
    (void)!write(errors, &error, sizeof error);
    _exit(127);
}

/* Starts the command and sets `*start_ns` to the moment of its exec; 0 or the errno. */
static int child_start(char **command, bool is_load, pid_t *pid, uint64_t *start_ns)
{
    int go[2];
    int errors[2];
    int error = 0;
    if (pipe2(go, O_CLOEXEC) != 0 || pipe2(errors, O_CLOEXEC) != 0) {
        measure_fail(1, "cannot make a pipe: %s.", strerror(errno));
    }
    *pid = fork();
    if (*pid < 0) {
        measure_fail(1, "cannot start a process: %s.", strerror(errno));
    }
    if (*pid == 0) {
        child_become(command, is_load, go[0], errors[1]);
    }
    (void)close(go[0]);
    (void)close(errors[1]);
    *start_ns = measure_now_ns();
    (void)!write(go[1], "", 1);
    (void)close(go[1]);
    /* The end of the pipe closes with the exec. */
    if (read(errors[0], &error, sizeof error) != (ssize_t)sizeof error) {
        error = 0;
    }
    (void)close(errors[0]);
    return error;
}

static void program_start(char **command)
{
    int error = child_start(command, false, &run.program, &run.start_ns);
    if (error != 0) {
        measure_fail(error == ENOENT ? 127 : 126, "cannot start %s: %s.", command[0],
                     strerror(error));
    }
    run.deadline_ns = run.start_ns + options.timeout_s * MEASURE_SECOND;
    run.load_next_ns = options.load[0] != NULL ? run.start_ns : UINT64_MAX;
    memory_start(run.program, run.start_ns, options.interval_ms * MEASURE_MS);
}

/* A server that accepts connections may be loaded; so may one that has not for so long that it
 * may be no server of sockets at all. */
static bool load_is_due(uint64_t now_ns)
{
    if (now_ns < run.load_next_ns) {
        return false;
    }
    if (now_ns < run.start_ns + options.ready_ms * MEASURE_MS && !server_listens(run.program)) {
        run.load_next_ns = now_ns + LISTEN_PAUSE_MS * MEASURE_MS;
        return false;
    }
    return true;
}

static void load_start(void)
{
    int error = child_start(options.load, true, &run.load, &run.load_start_ns);
    if (error != 0) {
        run.end = "load";
        run.status = 127;
    }
    run.load_next_ns = UINT64_MAX;
}

/* ---- Their ends. ---- */

static void time_add(struct timeval *sum, const struct timeval *part)
{
    sum->tv_sec += part->tv_sec + (sum->tv_usec + part->tv_usec) / 1000000;
    sum->tv_usec = (sum->tv_usec + part->tv_usec) % 1000000;
}

static void usage_add(const struct rusage *part)
{
    struct rusage *sum = &run.usage;
    time_add(&sum->ru_utime, &part->ru_utime);
    time_add(&sum->ru_stime, &part->ru_stime);
    sum->ru_maxrss = sum->ru_maxrss > part->ru_maxrss ? sum->ru_maxrss : part->ru_maxrss;
    sum->ru_minflt += part->ru_minflt;
    sum->ru_majflt += part->ru_majflt;
    sum->ru_nvcsw += part->ru_nvcsw;
    sum->ru_nivcsw += part->ru_nivcsw;
}

/* When the memory of the resting program is to be read next. */
static uint64_t rest_next_ns(void)
{
    if (!run.is_loaded || options.rest_s[run.rest_index] == NULL) {
        return UINT64_MAX;
    }
    return run.load_end_ns + number_read(options.rest_s[run.rest_index]) * MEASURE_SECOND;
}

/* Reads what is due; stops the program after the last reading. */
static void rest_continue(uint64_t now_ns)
{
    while (now_ns >= rest_next_ns()) {
        memory_rest(number_read(options.rest_s[run.rest_index++]));
    }
    if (run.is_loaded && !run.is_stopping && options.rest_s[run.rest_index] == NULL) {
        run.is_stopping = true;
        run.deadline_ns = now_ns + options.stop_ms * MEASURE_MS;
        (void)kill(run.program, SIGTERM);
    }
}

static void load_ended(int status, uint64_t now_ns)
{
    run.load = 0;
    if (run.end != NULL || run.is_loaded) {
        return;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        run.wall_ns = now_ns - run.load_start_ns;
        memory_close(0);
        run.load_end_ns = now_ns;
        run.is_loaded = true;
        run.deadline_ns = UINT64_MAX; /* it rests for a known time, and then must stop */
        rest_continue(now_ns);
    } else if (now_ns < run.start_ns + options.ready_ms * MEASURE_MS) {
        run.load_next_ns = now_ns + LOAD_PAUSE_MS * MEASURE_MS;
    } else {
        run.end = "load";
        run.status = WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status);
    }
}

static void program_ended(int status, uint64_t now_ns)
{
    run.program = 0;
    if (run.end != NULL) {
        return;
    }
    if (!run.is_loaded) {
        run.wall_ns = now_ns - run.start_ns;
    }
    run.status = WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status);
    run.end = WIFEXITED(status) ? "exit" : "signal";
    if (run.is_stopping || (run.is_loaded && status == 0)) {
        run.end = "stopped"; /* by us, or by itself as its load asked */
    }
}

static void reap(void)
{
    struct rusage usage;
    int status;
    pid_t pid;
    while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0) {
        uint64_t now_ns = measure_now_ns();
        if (pid == run.load) {
            load_ended(status, now_ns);
            continue;
        }
        usage_add(&usage);
        if (pid == run.program) {
            program_ended(status, now_ns);
        }
    }
}

/* Kills until there is nobody left: what is killed may just have forked. */
static void kill_all(void)
{
    struct memory_tree tree;
    siginfo_t ended;
    while ((tree = memory_tree_list(run.program, 0)).count != 0) {
        const struct timespec pause = {0, KILL_PAUSE_MS * (long)MEASURE_MS};
        for (size_t i = 0; i < tree.count; i++) {
            if (tree.pids[i] > 0) {
                (void)kill(tree.pids[i], SIGKILL);
            }
        }
        (void)sigtimedwait(&awaited, NULL, &pause);
        reap();
        if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0) {
            break; /* no child is left, and so no descendant */
        }
    }
}

/* ---- The loop. ---- */

static void wait_until(uint64_t time_ns)
{
    uint64_t now_ns = measure_now_ns();
    uint64_t pause_ns = time_ns > now_ns ? time_ns - now_ns : 0;
    const struct timespec pause = {(time_t)(pause_ns / MEASURE_SECOND),
                                   (long)(pause_ns % MEASURE_SECOND)};
    int signal_number = sigtimedwait(&awaited, NULL, &pause);
    if (signal_number > 0 && signal_number != SIGCHLD) {
        kill_all();
        exit(128 + signal_number);
    }
}

static void run_to_its_end(void)
{
    while (run.end == NULL) {
        uint64_t times_ns[] = {memory_next_ns(), run.load_next_ns, rest_next_ns()};
        uint64_t next_ns = run.deadline_ns;
        for (size_t i = 0; i < sizeof times_ns / sizeof times_ns[0]; i++) {
            next_ns = times_ns[i] < next_ns ? times_ns[i] : next_ns;
        }
        wait_until(next_ns);
        reap();
        if (run.end != NULL) {
            break;
        }
        if (measure_now_ns() >= run.deadline_ns) {
            run.end = run.is_stopping ? "stopped" : "timeout";
            run.status = SIGKILL;
        } else if (load_is_due(measure_now_ns())) {
            load_start();
        }
        memory_sample(run.load);
        rest_continue(measure_now_ns());
    }
    if (run.wall_ns == 0) {
        run.wall_ns = measure_now_ns() - run.start_ns;
    }
    kill_all();
}

static unsigned long long nanoseconds(const struct timeval *time)
{
    return (unsigned long long)time->tv_sec * MEASURE_SECOND +
           (unsigned long long)time->tv_usec * 1000;
}

static void run_print(FILE *out)
{
    const struct rusage *usage = &run.usage;
    (void)fprintf(out,
                  "{\"end\":\"%s\",\"status\":%d,\"wall_ns\":%llu,\"user_ns\":%llu,"
                  "\"system_ns\":%llu,\"minor_faults\":%ld,\"major_faults\":%ld,"
                  "\"voluntary_switches\":%ld,\"involuntary_switches\":%ld",
                  run.end, run.status, (unsigned long long)run.wall_ns,
                  nanoseconds(&usage->ru_utime), nanoseconds(&usage->ru_stime), usage->ru_minflt,
                  usage->ru_majflt, usage->ru_nvcsw, usage->ru_nivcsw);
    memory_print(out, (uint64_t)usage->ru_maxrss);
    (void)fputs("}\n", out);
    if (fflush(out) != 0) {
        measure_fail(1, "cannot write the result: %s.", strerror(errno));
    }
}

/* ---- All together. ---- */

int main(int argc, char **argv)
{
    char **command = options_read(argc, argv);
    own_id = getpid();
    static const int signals[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP};
    (void)sigemptyset(&awaited);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        (void)sigaddset(&awaited, signals[i]);
    }
    (void)sigprocmask(SIG_BLOCK, &awaited, NULL);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    program_start(command);
    run_to_its_end();
    run_print(stdout);
    return 0;
}
