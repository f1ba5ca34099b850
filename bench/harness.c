/* SPDX-License-Identifier: MIT */
/* harness.c: the command line, the threads and the clock. See harness.h.
 *
 * Locks: three barriers between the main thread and the others; nothing is shared while measuring.
 */
#include "harness_state.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { STACK_SIZE = 256 * 1024 };

struct bench_state bench = {.thread_count = 1, .seed = 1};

static const struct bench_phases *run_phases;
static pthread_barrier_t run_ready; /* all have prepared */
static pthread_barrier_t run_go;    /* the main thread has opened the interval */
static pthread_barrier_t run_measured;

/* ---- Failing. ---- */

void bench_fail(int status, const char *format, ...)
{
    va_list arguments;
    dprintf(STDERR_FILENO, "%s: ", bench.workload->name);
    va_start(arguments, format);
    vdprintf(STDERR_FILENO, format, arguments);
    va_end(arguments);
    dprintf(STDERR_FILENO, "\n");
    _exit(status);
}

void bench_fail_usage(const char *sentence)
{
    bench_fail(BENCH_STATUS_USAGE, "%s", sentence);
}

void bench_fail_run(const char *sentence)
{
    bench_fail(BENCH_STATUS_FAILED, "%s", sentence);
}

void bench_fail_memory(size_t size)
{
    bench_fail(BENCH_STATUS_FAILED,
               "malloc(%zu) returned NULL: the run needs more memory than it may have.", size);
}

/* ---- The command line. ---- */

static void argument_print_range(const struct bench_argument *argument, char *text, size_t size)
{
    if (argument->kind == BENCH_WORD) {
        size_t used = (size_t)snprintf(text, size, "one of");
        for (size_t i = 0; argument->words[i] != NULL && used < size; i++) {
            used += (size_t)snprintf(text + used, size - used, " %s", argument->words[i]);
        }
    } else if (argument->kind == BENCH_SECONDS) {
        (void)snprintf(text, size, "seconds from %g to %g", (double)argument->min / 1e3,
                       (double)argument->max / 1e3);
    } else {
        (void)snprintf(text, size, "a whole number from %llu to %llu",
                       (unsigned long long)argument->min, (unsigned long long)argument->max);
    }
}

void bench_argument_print(const struct bench_argument *argument, char *text, size_t size)
{
    if (argument->kind == BENCH_WORD) {
        (void)snprintf(text, size, "\"%s\"", argument->words[argument->value]);
    } else if (argument->kind == BENCH_SECONDS) {
        (void)snprintf(text, size, "%g", (double)argument->value / 1e3);
    } else {
        (void)snprintf(text, size, "%llu", (unsigned long long)argument->value);
    }
}

/* Digits, and for seconds a point with up to three more; false also for more than 64 bits. */
static bool number_parse(const char *text, bool is_seconds, uint64_t *value)
{
    uint64_t number = 0;
    int decimals = -1; /* digits after the point, -1 before one was seen */
    if (*text < '0' || *text > '9') {
        return false;
    }
    for (; *text != '\0'; text++) {
        if (*text == '.' && is_seconds && decimals < 0) {
            decimals = 0;
            continue;
        }
        if (*text < '0' || *text > '9' || decimals == 3 ||
            __builtin_mul_overflow(number, UINT64_C(10), &number) ||
            __builtin_add_overflow(number, (uint64_t)(*text - '0'), &number)) {
            return false;
        }
        decimals += decimals >= 0;
    }
    for (int i = decimals < 0 ? 0 : decimals; is_seconds && i < 3; i++) {
        if (__builtin_mul_overflow(number, UINT64_C(10), &number)) {
            return false;
        }
    }
    *value = number;
    return true;
}

static bool argument_parse(struct bench_argument *argument, const char *text)
{
    if (argument->kind != BENCH_WORD) {
        return number_parse(text, argument->kind == BENCH_SECONDS, &argument->value) &&
               argument->value >= argument->min && argument->value <= argument->max;
    }
    for (size_t i = 0; argument->words[i] != NULL; i++) {
        if (strcmp(text, argument->words[i]) == 0) {
            argument->value = i;
            return true;
        }
    }
    return false;
}

static void argument_set(struct bench_argument *argument, const char *text)
{
    char range[256];
    if (!argument_parse(argument, text)) {
        argument_print_range(argument, range, sizeof range);
        bench_fail(BENCH_STATUS_USAGE, "%s must be %s, not '%s'.", argument->name, range, text);
    }
    argument->is_given = true;
}

static struct bench_argument *argument_find(const char *name)
{
    for (size_t i = 0; i < bench.workload->argument_count; i++) {
        if (strcmp(bench.workload->arguments[i].name, name) == 0) {
            return &bench.workload->arguments[i];
        }
    }
    return NULL;
}

_Noreturn static void help_print(void)
{
    const struct bench_workload *workload = bench.workload;
    char value[64];
    char range[256];
    dprintf(STDOUT_FILENO, "usage: %s", workload->name);
    for (size_t i = 0; i < workload->argument_count; i++) {
        dprintf(STDOUT_FILENO, " [%s", workload->arguments[i].name);
    }
    for (size_t i = 0; i < workload->argument_count; i++) {
        dprintf(STDOUT_FILENO, "]");
    }
    dprintf(STDOUT_FILENO, " [options]\n%s\n\n", workload->summary);
    for (size_t i = 0; i < workload->argument_count; i++) {
        const struct bench_argument *argument = &workload->arguments[i];
        bench_argument_print(argument, value, sizeof value);
        argument_print_range(argument, range, sizeof range);
        dprintf(STDOUT_FILENO, "  %-14s %s: %s (default %s)\n", argument->name, argument->meaning,
                range, value);
    }
    dprintf(
        STDOUT_FILENO,
        "  --threads N    threads that run it at once: 1 to %d\n"
        "  --smoke        small counts, under a second\n"
        "  --latency      time every single call, print percentiles\n"
        "  --rest N       afterwards sleep, print what memory is held N seconds after the end;\n"
        "                 may be repeated with rising N\n"
        "  --expect NAME  exit status 3 unless the allocator's file name contains NAME\n"
        "                 (its path, if NAME has a slash)\n"
        "  --json         one line of JSON on stdout (always so)\n",
        BENCH_THREADS_MAX);
    _exit(0);
}

/* The value of "--name VALUE" or "--name=VALUE" at argv[*at]; NULL if that is another option. */
static const char *option_value(const char *name, char **argv, int *at)
{
    size_t length = strlen(name);
    const char *text = argv[*at];
    if (strncmp(text, name, length) != 0 || (text[length] != '\0' && text[length] != '=')) {
        return NULL;
    }
    if (text[length] == '=') {
        return text + length + 1;
    }
    if (argv[*at + 1] == NULL) {
        bench_fail(BENCH_STATUS_USAGE, "%s needs a value after it.", name);
    }
    *at += 1;
    return argv[*at];
}

static void rest_add(const char *text)
{
    struct bench_argument option = {
        .name = "--rest", .kind = BENCH_SECONDS, .min = 1, .max = 86400000};
    argument_set(&option, text);
    if (bench.rest_count == BENCH_RESTS_MAX) {
        bench_fail(BENCH_STATUS_USAGE, "--rest may stand at most %d times.", BENCH_RESTS_MAX);
    }
    if (bench.rest_count > 0 && option.value <= bench.rests_ms[bench.rest_count - 1]) {
        bench_fail(BENCH_STATUS_USAGE, "the seconds of --rest must rise.");
    }
    bench.rests_ms[bench.rest_count++] = option.value;
}

static void option_read(char **argv, int *at)
{
    const char *text = argv[*at];
    const char *value;
    if (strcmp(text, "--smoke") == 0) {
        bench.is_smoke = true;
    } else if (strcmp(text, "--latency") == 0) {
        bench.is_latency = true;
    } else if (strcmp(text, "--json") == 0) {
        return;
    } else if (strcmp(text, "--help") == 0) {
        help_print();
    } else if ((value = option_value("--expect", argv, at)) != NULL) {
        bench.expected = value;
    } else if ((value = option_value("--rest", argv, at)) != NULL) {
        rest_add(value);
    } else if ((value = option_value("--threads", argv, at)) != NULL) {
        struct bench_argument *argument = argument_find("THREADS");
        struct bench_argument option = {.name = "--threads", .min = 1, .max = BENCH_THREADS_MAX};
        argument_set(&option, value);
        bench.threads_option = option.value;
        if (argument != NULL) {
            argument_set(argument, value);
        }
    } else {
        bench_fail(BENCH_STATUS_USAGE, "there is no option '%s'; --help lists them.", text);
    }
}

static void arguments_read(char **argv)
{
    const struct bench_workload *workload = bench.workload;
    size_t count = 0;
    for (int at = 1; argv[at] != NULL; at++) {
        if (argv[at][0] == '-') {
            option_read(argv, &at);
        } else if (count == workload->argument_count) {
            bench_fail(BENCH_STATUS_USAGE,
                       "it takes at most %zu arguments, '%s' is one too many; --help lists them.",
                       workload->argument_count, argv[at]);
        } else {
            argument_set(&workload->arguments[count++], argv[at]);
        }
    }
    for (size_t i = 0; bench.is_smoke && i < workload->argument_count; i++) {
        if (!workload->arguments[i].is_given) {
            workload->arguments[i].value = workload->arguments[i].value_smoke;
        }
    }
}

/* ---- Threads and the clock. ---- */

void bench_start(const struct bench_workload *workload, int argc, char **argv)
{
    const struct bench_argument *argument;
    bench.workload = workload;
    if (argc > 0) {
        arguments_read(argv);
    }
    argument = argument_find("SEED");
    if (argument != NULL) {
        bench.seed = (uint32_t)argument->value;
    }
    argument = argument_find("THREADS");
    if (argument != NULL) {
        bench.thread_count = (unsigned)argument->value;
    } else if (bench.threads_option != 0) {
        bench.thread_count = (unsigned)bench.threads_option;
    }
    bench_serving_find();
}

unsigned bench_thread_count(void)
{
    return bench.thread_count;
}

void *bench_map(size_t size)
{
    size_t step = 4096; /* the smallest OS page there is */
    char *start = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) {
        bench_fail(BENCH_STATUS_FAILED, "could not map %zu bytes for its own tables: %s.", size,
                   strerror(errno));
    }
    (void)madvise(start, size, MADV_NOHUGEPAGE); /* fails where there are none: no harm */
    for (size_t i = 0; i < size; i += step) {
        ((volatile char *)start)[i] = 0;
    }
    bench.mapped_size += (size + step - 1) / step * step;
    return start;
}

/* Thread 0 has SEED itself; the others a mix of it (the finalizer of Appleby's MurmurHash3). */
static uint32_t thread_seed(unsigned index)
{
    uint32_t h = bench.seed + index * UINT32_C(0x9E3779B9);
    if (index != 0) {
        h = (h ^ (h >> 16)) * UINT32_C(0x85EBCA6B);
        h = (h ^ (h >> 13)) * UINT32_C(0xC2B2AE35);
        h ^= h >> 16;
    }
    return h == 0 ? 1 : h;
}

struct bench_thread *bench_threads_reset(void)
{
    if (bench.threads == NULL) {
        bench.threads = bench_map(bench.thread_count * sizeof *bench.threads);
    }
    for (unsigned i = 0; i < bench.thread_count; i++) {
        struct bench_thread *thread = &bench.threads[i];
        struct bench_latency *latency = thread->latency;
        if (bench.is_latency && latency == NULL) {
            latency = bench_map(sizeof *latency);
        } else if (latency != NULL) {
            memset(latency, 0, sizeof *latency);
        }
        *thread = (struct bench_thread){.index = i, .seed = thread_seed(i), .latency = latency};
    }
    bench_notes_clear();
    return bench.threads;
}

void bench_interval_open(void)
{
    (void)getrusage(RUSAGE_SELF, &bench.usage_open);
}

void bench_interval_close(void)
{
    uint64_t start_ns = UINT64_MAX;
    uint64_t end_ns = 0;
    (void)getrusage(RUSAGE_SELF, &bench.usage_close);
    bench.operations = 0;
    for (unsigned i = 0; i < bench.thread_count; i++) {
        const struct bench_thread *thread = &bench.threads[i];
        start_ns = thread->start_ns < start_ns ? thread->start_ns : start_ns;
        end_ns = thread->end_ns > end_ns ? thread->end_ns : end_ns;
        bench.operations += thread->operations;
    }
    bench.duration_ns = end_ns > start_ns ? end_ns - start_ns : 1;
}

pthread_t bench_thread_create(void *(*body)(void *), void *argument)
{
    pthread_attr_t attributes;
    pthread_t handle;
    int error = pthread_attr_init(&attributes);
    if (error == 0) {
        (void)pthread_attr_setstacksize(&attributes, STACK_SIZE);
        error = pthread_create(&handle, &attributes, body, argument);
        (void)pthread_attr_destroy(&attributes);
    }
    if (error != 0) {
        bench_fail(BENCH_STATUS_FAILED, "could not start a thread: %s.", strerror(error));
    }
    return handle;
}

static void thread_measure(struct bench_thread *thread)
{
    thread->start_ns = bench_now_ns();
    run_phases->measure(thread);
    thread->end_ns = bench_now_ns();
}

static void *thread_body(void *argument)
{
    struct bench_thread *thread = argument;
    if (run_phases->prepare != NULL) {
        run_phases->prepare(thread);
    }
    (void)pthread_barrier_wait(&run_ready);
    (void)pthread_barrier_wait(&run_go);
    thread_measure(thread);
    (void)pthread_barrier_wait(&run_measured);
    if (run_phases->drain != NULL) {
        run_phases->drain(thread);
    }
    return NULL;
}

static void run_alone(struct bench_thread *thread)
{
    if (run_phases->prepare != NULL) {
        run_phases->prepare(thread);
    }
    bench_interval_open();
    thread_measure(thread);
    bench_interval_close();
    if (run_phases->drain != NULL) {
        run_phases->drain(thread);
    }
}

void bench_run(const struct bench_phases *phases)
{
    struct bench_thread *threads = bench_threads_reset();
    run_phases = phases;
    if (bench.thread_count == 1) {
        run_alone(threads);
        return;
    }
    (void)pthread_barrier_init(&run_ready, NULL, bench.thread_count + 1);
    (void)pthread_barrier_init(&run_go, NULL, bench.thread_count + 1);
    (void)pthread_barrier_init(&run_measured, NULL, bench.thread_count + 1);
    for (unsigned i = 0; i < bench.thread_count; i++) {
        threads[i].handle = bench_thread_create(thread_body, &threads[i]);
    }
    (void)pthread_barrier_wait(&run_ready);
    bench_interval_open();
    (void)pthread_barrier_wait(&run_go);
    (void)pthread_barrier_wait(&run_measured);
    bench_interval_close();
    for (unsigned i = 0; i < bench.thread_count; i++) {
        (void)pthread_join(threads[i].handle, NULL);
    }
    (void)pthread_barrier_destroy(&run_ready);
    (void)pthread_barrier_destroy(&run_go);
    (void)pthread_barrier_destroy(&run_measured);
}
