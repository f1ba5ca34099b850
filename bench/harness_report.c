/* SPDX-License-Identifier: MIT */
/* harness_report.c: who serves the allocations, the percentiles, the line of JSON.
 *
 * State: the serving files, found once; the notes of the last run; the line being written. The
 * main thread's, all of it. Why no stdio streams: their buffers come from malloc and would be part
 * of the memory under test.
 */
#include "harness_state.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#if !defined(__PIC__)
#error "compile the benches with -fPIC or -fPIE: else &malloc may be the program's own jump to it"
#endif

enum { SERVED_COUNT = 5, NOTE_COUNT_MAX = 8, LINE_SIZE = 16384 };

static const char *const served_names[SERVED_COUNT] = {
    "malloc", "free", "calloc", "realloc", "operator new",
};
static const char *served_files[SERVED_COUNT];

static struct note {
    const char *key;
    const char *text;
    uint64_t number;
} notes[NOTE_COUNT_MAX];
static size_t note_count;

static char line[LINE_SIZE]; /* not touched, so not resident, before the first report */
static size_t line_length;

/* ---- Which allocator serves. ---- */

static const char *program_path(void)
{
    static char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    return length > 0 ? path : "the program";
}

/* The file that owns the address the program calls: `linked`, as the loader bound it, which is
 * what dlsym finds too unless the program has a malloc that nobody else can see; or what dlsym
 * finds of a name the program never calls. */
static const char *symbol_owner(const char *name, uintptr_t linked)
{
    Dl_info info;
    Dl_info own;
    uintptr_t address = linked != 0 ? linked : (uintptr_t)dlsym(RTLD_DEFAULT, name);
    if (address == 0) {
        return NULL;
    }
    if (dladdr((const void *)address, &info) == 0 || info.dli_fname == NULL) {
        return program_path(); /* no shared object holds it: a fully static program */
    }
    if (dladdr((const void *)(uintptr_t)bench_report, &own) != 0 &&
        own.dli_fbase == info.dli_fbase) {
        return program_path();
    }
    return info.dli_fname;
}

/* The directory counts only if --expect has a slash: in a checkout called like the allocator every
 * peer would pass. */
static void serving_check(void)
{
    for (size_t i = 0; i < SERVED_COUNT && bench.expected != NULL; i++) {
        const char *path = served_files[i];
        const char *slash = path == NULL ? NULL : strrchr(path, '/');
        const char *part = slash == NULL || strchr(bench.expected, '/') != NULL ? path : slash + 1;
        if (part != NULL && strstr(part, bench.expected) == NULL) {
            bench_fail(BENCH_STATUS_WRONG_ALLOCATOR,
                       "%s is served by %s, not by %s as --expect says.", served_names[i], path,
                       bench.expected);
        }
    }
}

void bench_serving_find(void)
{
    served_files[0] = symbol_owner("malloc", (uintptr_t)malloc);
    served_files[1] = symbol_owner("free", (uintptr_t)free);
    served_files[2] = symbol_owner("calloc", (uintptr_t)calloc);
    served_files[3] = symbol_owner("realloc", (uintptr_t)realloc);
    served_files[4] = symbol_owner("_Znwm", 0); /* only there if a library brings it */
    serving_check();
}

/* ---- Percentiles. ---- */

/* Durations below 32 ns have a bucket each; above, the exponent and the five bits that follow. */
static size_t histogram_bucket(uint64_t duration_ns)
{
    unsigned exponent;
    if (duration_ns < (UINT64_C(1) << BENCH_STEP_BITS)) {
        return duration_ns;
    }
    exponent = 63u - (unsigned)__builtin_clzll(duration_ns);
    if (exponent > BENCH_EXPONENT_MAX) {
        return BENCH_BUCKETS - 1;
    }
    return ((size_t)(exponent - BENCH_STEP_BITS) << BENCH_STEP_BITS) +
           (duration_ns >> (exponent - BENCH_STEP_BITS));
}

/* The longest duration that falls into the bucket. */
static uint64_t histogram_bucket_end(size_t bucket)
{
    uint64_t step = bucket & ((1u << BENCH_STEP_BITS) - 1);
    unsigned row = (unsigned)(bucket >> BENCH_STEP_BITS);
    if (row == 0) {
        return bucket;
    }
    return (((UINT64_C(1) << BENCH_STEP_BITS) + step + 1) << (row - 1)) - 1;
}

void bench_histogram_record(struct bench_histogram *histogram, uint64_t duration_ns)
{
    histogram->count++;
    histogram->buckets[histogram_bucket(duration_ns)]++;
    if (duration_ns > histogram->max) {
        histogram->max = duration_ns;
    }
}

void bench_histogram_merge(struct bench_histogram *into, const struct bench_histogram *from)
{
    into->count += from->count;
    into->max = from->max > into->max ? from->max : into->max;
    for (size_t i = 0; i < BENCH_BUCKETS; i++) {
        into->buckets[i] += from->buckets[i];
    }
}

uint64_t bench_histogram_percentile(const struct bench_histogram *histogram, uint64_t part_count,
                                    uint64_t whole_count)
{
    uint64_t rank = (histogram->count * part_count + whole_count - 1) / whole_count;
    uint64_t seen_count = 0;
    for (size_t i = 0; i < BENCH_BUCKETS; i++) {
        seen_count += histogram->buckets[i];
        if (seen_count >= rank && seen_count != 0) {
            uint64_t end = histogram_bucket_end(i);
            return end < histogram->max && i + 1 < BENCH_BUCKETS ? end : histogram->max;
        }
    }
    return 0;
}

/* What two readings of the clock in a row cost: the floor under every recorded duration. */
static uint64_t clock_cost_ns(void)
{
    uint64_t best_ns = UINT64_MAX;
    for (int i = 0; i < 1000; i++) {
        uint64_t start_ns = bench_now_ns();
        uint64_t cost_ns = bench_now_ns() - start_ns;
        best_ns = cost_ns < best_ns ? cost_ns : best_ns;
    }
    return best_ns;
}

/* ---- The line. ---- */

__attribute__((format(printf, 1, 2))) static void line_put(const char *format, ...)
{
    va_list arguments;
    int length;
    va_start(arguments, format);
    length = vsnprintf(line + line_length, sizeof line - line_length, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof line - line_length) {
        bench_fail(BENCH_STATUS_FAILED, "its line of JSON is longer than %d bytes.", LINE_SIZE);
    }
    line_length += (size_t)length;
}

static void line_put_string(const char *string)
{
    if (string == NULL) {
        line_put("null");
        return;
    }
    line_put("\"");
    for (; *string != '\0'; string++) {
        unsigned char c = (unsigned char)*string;
        if (c == '"' || c == '\\') {
            line_put("\\%c", c);
        } else if (c < 0x20) {
            line_put("\\u%04x", c);
        } else {
            line_put("%c", c);
        }
    }
    line_put("\"");
}

static void line_put_number(const char *key, uint64_t number)
{
    line_put(",\"%s\":%llu", key, (unsigned long long)number);
}

static void line_put_arguments(void)
{
    const struct bench_workload *workload = bench.workload;
    char value[64];
    const char *comma = "";
    line_put(",\"arguments\":{");
    for (size_t i = 0; i < workload->argument_count; i++) {
        bench_argument_print(&workload->arguments[i], value, sizeof value);
        line_put("%s\"%s\":%s", comma, workload->arguments[i].name, value);
        comma = ",";
    }
    line_put("}");
}

static uint64_t time_difference_ns(const struct timeval *from, const struct timeval *to)
{
    int64_t difference_us =
        (int64_t)(to->tv_sec - from->tv_sec) * 1000000 + (int64_t)(to->tv_usec - from->tv_usec);
    return difference_us > 0 ? (uint64_t)difference_us * 1000 : 0;
}

static void line_put_usage(void)
{
    const struct rusage *from = &bench.usage_open;
    const struct rusage *to = &bench.usage_close;
    line_put_number("minor_faults", (uint64_t)(to->ru_minflt - from->ru_minflt));
    line_put_number("major_faults", (uint64_t)(to->ru_majflt - from->ru_majflt));
    line_put_number("user_ns", time_difference_ns(&from->ru_utime, &to->ru_utime));
    line_put_number("system_ns", time_difference_ns(&from->ru_stime, &to->ru_stime));
    line_put_number("voluntary_switches", (uint64_t)(to->ru_nvcsw - from->ru_nvcsw));
    line_put_number("involuntary_switches", (uint64_t)(to->ru_nivcsw - from->ru_nivcsw));
}

static void line_put_histogram(const char *name, const struct bench_histogram *histogram)
{
    static const struct {
        const char *key;
        uint64_t part_count;
    } percentiles[] = {
        {"p50", 5000}, {"p90", 9000}, {"p99", 9900}, {"p99.9", 9990}, {"p99.99", 9999},
    };
    line_put(",\"%s\":{\"count\":%llu", name, (unsigned long long)histogram->count);
    for (size_t i = 0; i < sizeof percentiles / sizeof percentiles[0]; i++) {
        line_put_number(percentiles[i].key,
                        bench_histogram_percentile(histogram, percentiles[i].part_count, 10000));
    }
    line_put_number("max", histogram->max);
    line_put("}");
}

/* Adds the other threads' records to the first one's. */
static void line_put_latency(void)
{
    struct bench_latency *total = bench.threads[0].latency;
    for (unsigned i = 1; i < bench.thread_count; i++) {
        bench_histogram_merge(&total->allocate, &bench.threads[i].latency->allocate);
        bench_histogram_merge(&total->release, &bench.threads[i].latency->release);
    }
    line_put(",\"latency\":{\"clock_ns\":%llu", (unsigned long long)clock_cost_ns());
    line_put_histogram("allocate", &total->allocate);
    line_put_histogram("release", &total->release);
    line_put("}");
}

/* A field of a /proc file in KiB; 0 where the kernel has no such file or field. */
static uint64_t proc_read_kib(const char *path, const char *field)
{
    char text[8192];
    const char *at;
    ssize_t length;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return 0;
    }
    length = read(file, text, sizeof text - 1);
    (void)close(file);
    text[length > 0 ? length : 0] = '\0';
    at = strstr(text, field);
    return at == NULL ? 0 : strtoull(at + strlen(field), NULL, 10);
}

/* smaps_rollup counts pages, the other files read counters that lag by some hundred KiB. */
static uint64_t rss_read_kib(void)
{
    uint64_t rss_kib = proc_read_kib("/proc/self/smaps_rollup", "\nRss:");
    return rss_kib != 0 ? rss_kib : proc_read_kib("/proc/self/status", "\nVmRSS:");
}

static uint64_t lazyfree_read_kib(void)
{
    return proc_read_kib("/proc/self/smaps_rollup", "\nLazyFree:");
}

static void rest_for(uint64_t delay_ms)
{
    struct timespec rest = {.tv_sec = (time_t)(delay_ms / 1000),
                            .tv_nsec = (long)(delay_ms % 1000) * 1000000};
    while (nanosleep(&rest, &rest) != 0) {
    }
}

void bench_idle(uint64_t delay_ms)
{
    rest_for(delay_ms);
    bench_note("rss_idle_kib", NULL, rss_read_kib());
    bench_note("lazyfree_idle_kib", NULL, lazyfree_read_kib());
}

/* VmHWM is of this program; ru_maxrss includes what the measuring process was before exec. */
static void line_put_memory(void)
{
    uint64_t end_kib = rss_read_kib();
    uint64_t lazyfree_kib = lazyfree_read_kib();
    uint64_t peak_kib = proc_read_kib("/proc/self/status", "\nVmHWM:");
    line_put_number("rss_peak_kib", peak_kib > end_kib ? peak_kib : end_kib);
    line_put_number("rss_end_kib", end_kib);
    line_put_number("lazyfree_end_kib", lazyfree_kib);
    line_put_number("harness_kib", bench.mapped_size / 1024);
}

/* Everything is freed and every thread has ended: the process sleeps, as idle ones do. */
static void line_put_rests(void)
{
    uint64_t rested_ms = 0;
    line_put(",\"rest\":[");
    for (size_t i = 0; i < bench.rest_count; i++) {
        rest_for(bench.rests_ms[i] - rested_ms);
        rested_ms = bench.rests_ms[i];
        line_put("%s[%g,%llu,%llu]", i == 0 ? "" : ",", (double)rested_ms / 1e3,
                 (unsigned long long)rss_read_kib(), (unsigned long long)lazyfree_read_kib());
    }
    line_put("]");
}

void bench_notes_clear(void)
{
    note_count = 0;
}

void bench_note(const char *key, const char *text, uint64_t number)
{
    if (note_count == NOTE_COUNT_MAX) {
        bench_fail(BENCH_STATUS_FAILED, "it has more than %d notes.", NOTE_COUNT_MAX);
    }
    notes[note_count++] = (struct note){.key = key, .text = text, .number = number};
}

static void line_write(void)
{
    size_t written = 0;
    while (written < line_length) {
        ssize_t count = write(STDOUT_FILENO, line + written, line_length - written);
        if (count <= 0) {
            bench_fail(BENCH_STATUS_FAILED, "could not write its result to stdout.");
        }
        written += (size_t)count;
    }
}

void bench_report(void)
{
    line_length = 0;
    line_put("{\"workload\":\"%s\"", bench.workload->name);
    line_put_arguments();
    line_put(",\"smoke\":%s", bench.is_smoke ? "true" : "false");
    line_put_number("threads", bench.thread_count);
    line_put_number("seed", bench.seed);
    line_put_number("operations", bench.operations);
    line_put_number("nanoseconds", bench.duration_ns);
    line_put(",\"operations_per_second\":%.0f",
             (double)bench.operations * 1e9 / (double)bench.duration_ns);
    line_put_usage();
    line_put_memory();
    line_put_rests();
    for (size_t i = 0; i < note_count; i++) {
        if (notes[i].text == NULL) {
            line_put_number(notes[i].key, notes[i].number);
        } else {
            line_put(",\"%s\":", notes[i].key);
            line_put_string(notes[i].text);
        }
    }
    for (size_t i = 0; i < SERVED_COUNT; i++) {
        line_put("%s\"%s\":", i == 0 ? ",\"serving\":{" : ",", served_names[i]);
        line_put_string(served_files[i]);
    }
    line_put("}");
    if (bench.is_latency) {
        line_put_latency();
    }
    line_put("}\n");
    line_write();
}
