/* SPDX-License-Identifier: MIT */
/* measure_memory.c: the resident memory of a program and all its descendants over time.
 *
 * Two speeds. `statm` of each known process: a few microseconds, at every sample. The list of
 * processes and `smaps_rollup` (lazily freed pages; walks all page tables under the process's
 * memory lock): only when they have cost less than 1 % of the time so far.
 *
 * Pages that forked processes share are counted in each of them. Processes that share the whole
 * address space (vfork) count once.
 */
#include "measure.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    SERIES_COUNT = 512,      /* points that are printed at most; pairs merge when full */
    COST_SHARE = 100,        /* a slow reading rests that many times what it cost */
    INTERVALS_AT_START = 32, /* a short program gets about that many samples as well */
    SAMPLE_COUNT_MIN = 8,    /* of shorter programs: mean is peak, end unknown */
    ROLLUP_FIRST_MS = 50,    /* rollups of shorter programs would be of their start */
    TREE_COUNT_AT_START = 64
};

struct point {
    uint64_t elapsed_ns;
    uint64_t rss_kib;
};

struct process {
    pid_t pid;
    pid_t parent;
};

static struct memory_state {
    pid_t program;
    uint64_t start_ns;
    uint64_t interval_ns;
    uint64_t next_ns;
    uint64_t tree_next_ns;
    uint64_t rollup_next_ns;
    uint64_t last_ns; /* of the last sample */
    double area;      /* KiB times nanoseconds */
    uint64_t sample_count;
    uint64_t rss_kib; /* the last sample */
    uint64_t peak_kib;
    uint64_t lazyfree_kib;
    size_t merge_count;  /* samples in one point of the series */
    size_t merged_count; /* samples in its last point so far */
    size_t series_count;
    bool has_rollup;
    bool is_closed;
    struct point series[SERIES_COUNT];
} memory;

/* What is held some time after the load. */
static struct rest {
    uint64_t rest_s;
    uint64_t rss_kib;
    uint64_t lazyfree_kib;
} rests[MEASURE_RESTS_MAX];

static size_t rest_count;

static struct process *tree;
static pid_t *tree_pids;
static size_t tree_count;
static size_t tree_room;

/* ---- The processes. ---- */

static ssize_t proc_read(const char *path, char *text, size_t size)
{
    ssize_t length;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return -1;
    }
    length = read(file, text, size - 1);
    (void)close(file);
    text[length > 0 ? length : 0] = '\0';
    return length;
}

static void tree_add(pid_t pid, pid_t parent)
{
    if (tree_count == tree_room) {
        tree_room = tree_room == 0 ? TREE_COUNT_AT_START : tree_room * 2;
        tree = realloc(tree, tree_room * sizeof *tree);
        tree_pids = realloc(tree_pids, tree_room * sizeof *tree_pids);
        if (tree == NULL || tree_pids == NULL) {
            measure_fail(1, "no memory for a list of %zu processes.", tree_room);
        }
    }
    tree[tree_count++] = (struct process){.pid = pid, .parent = parent};
}

/* Reads one thread's children; false if there is no such file. */
static bool tree_add_children(const char *path, pid_t parent, pid_t except)
{
    char text[4096];
    size_t kept = 0;
    ssize_t length;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return false;
    }
    /* Numbers with a space behind each; one may be cut by the end of the buffer. */
    while ((length = read(file, text + kept, sizeof text - 1 - kept)) > 0) {
        char *at = text;
        char *space;
        text[kept + (size_t)length] = '\0';
        while ((space = strchr(at, ' ')) != NULL) {
            pid_t pid = (pid_t)strtol(at, NULL, 10);
            if (pid > 0 && pid != except) {
                tree_add(pid, parent);
            }
            at = space + 1;
        }
        kept = strlen(at);
        memmove(text, at, kept + 1);
    }
    (void)close(file);
    return true;
}

/* The children of all threads of a process. */
static bool tree_add_process(pid_t parent, pid_t except)
{
    char path[96];
    struct dirent *entry;
    bool is_known = false;
    DIR *threads;
    (void)snprintf(path, sizeof path, "/proc/%d/task", parent);
    threads = opendir(path);
    if (threads == NULL) {
        return false;
    }
    while ((entry = readdir(threads)) != NULL) {
        if (entry->d_name[0] != '.') {
            (void)snprintf(path, sizeof path, "/proc/%d/task/%.20s/children", parent,
                           entry->d_name);
            is_known = tree_add_children(path, parent, except) || is_known;
        }
    }
    (void)closedir(threads);
    return is_known;
}

struct memory_tree memory_tree_list(pid_t program, pid_t except)
{
    tree_count = 0;
    /* From here, not from the program: orphans become children of this process. */
    if (!tree_add_process(getpid(), except)) {
        tree_add(program, getpid());
    }
    for (size_t i = 0; i < tree_count; i++) {
        (void)tree_add_process(tree[i].pid, except);
    }
    for (size_t i = 0; i < tree_count; i++) {
        tree_pids[i] = tree[i].pid;
    }
    return (struct memory_tree){.pids = tree_pids, .count = tree_count};
}

/* ---- Their memory. ---- */

static uint64_t process_rss_kib(pid_t pid)
{
    static uint64_t page_kib;
    char path[64];
    char text[256];
    const char *at;
    if (page_kib == 0) {
        page_kib = (uint64_t)sysconf(_SC_PAGESIZE) / 1024;
    }
    (void)snprintf(path, sizeof path, "/proc/%d/statm", pid);
    if (proc_read(path, text, sizeof text) <= 0 || (at = strchr(text, ' ')) == NULL) {
        return 0;
    }
    return strtoull(at, NULL, 10) * page_kib;
}

/* A child of vfork has its parent's memory until it executes something. */
static bool process_borrows(const struct process *process)
{
    return process->parent != getpid() &&
           syscall(SYS_kcmp, process->pid, process->parent, KCMP_VM, 0UL, 0UL) == 0;
}

static uint64_t tree_rss_kib(void)
{
    uint64_t sum_kib = 0;
    for (size_t i = 0; i < tree_count; i++) {
        sum_kib += process_borrows(&tree[i]) ? 0 : process_rss_kib(tree[i].pid);
    }
    return sum_kib;
}

/* Lazily freed memory; false where the kernel does not tell. */
static bool tree_lazyfree_read(uint64_t *lazyfree_kib)
{
    uint64_t sum_kib = 0;
    bool is_read = false;
    for (size_t i = 0; i < tree_count; i++) {
        char path[64];
        char text[8192];
        const char *at;
        (void)snprintf(path, sizeof path, "/proc/%d/smaps_rollup", tree[i].pid);
        if (proc_read(path, text, sizeof text) > 0 && (at = strstr(text, "\nLazyFree:")) != NULL &&
            !process_borrows(&tree[i])) {
            sum_kib += strtoull(at + strlen("\nLazyFree:"), NULL, 10);
            is_read = true;
        }
    }
    if (is_read) {
        *lazyfree_kib = sum_kib;
    }
    return is_read;
}

/* ---- The series. ---- */

/* Two points become one: the later time, the larger memory. */
static void series_halve(void)
{
    for (size_t i = 0; i < SERIES_COUNT / 2; i++) {
        const struct point *first = &memory.series[2 * i];
        const struct point *second = &memory.series[2 * i + 1];
        memory.series[i].elapsed_ns = second->elapsed_ns;
        memory.series[i].rss_kib =
            first->rss_kib > second->rss_kib ? first->rss_kib : second->rss_kib;
    }
    memory.series_count = SERIES_COUNT / 2;
    memory.merge_count *= 2;
}

static void series_add(uint64_t elapsed_ns, uint64_t rss_kib)
{
    if (memory.merged_count == memory.merge_count || memory.series_count == 0) {
        if (memory.series_count == SERIES_COUNT) {
            series_halve();
        }
        memory.series[memory.series_count++] = (struct point){0, 0};
        memory.merged_count = 0;
    }
    struct point *last = &memory.series[memory.series_count - 1];
    last->elapsed_ns = elapsed_ns;
    last->rss_kib = last->rss_kib > rss_kib ? last->rss_kib : rss_kib;
    memory.merged_count++;
}

void memory_start(pid_t program, uint64_t start_ns, uint64_t interval_ns)
{
    memory = (struct memory_state){
        .program = program,
        .start_ns = start_ns,
        .interval_ns = interval_ns,
        .next_ns = start_ns,
        .tree_next_ns = start_ns,
        .rollup_next_ns = start_ns + ROLLUP_FIRST_MS * MEASURE_MS,
        .last_ns = start_ns,
        .merge_count = 1,
    };
}

uint64_t memory_next_ns(void)
{
    return memory.is_closed ? UINT64_MAX : memory.next_ns;
}

/* What a reading costs is our processor time: a wait for a processor is no reason to rest. */
static uint64_t spent_ns(void)
{
    struct timespec spent;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    return (uint64_t)spent.tv_sec * 1000000000 + (uint64_t)spent.tv_nsec;
}

static uint64_t next_after(uint64_t spent_before_ns)
{
    return measure_now_ns() + COST_SHARE * (spent_ns() - spent_before_ns);
}

static void memory_read(pid_t except, bool is_last)
{
    uint64_t now_ns = measure_now_ns();
    uint64_t spent_before_ns = spent_ns();
    uint64_t rss_kib;
    if (is_last || now_ns >= memory.tree_next_ns) {
        (void)memory_tree_list(memory.program, except);
        memory.tree_next_ns = next_after(spent_before_ns);
    }
    rss_kib = tree_rss_kib();
    now_ns = measure_now_ns();
    if (rss_kib != 0) { /* else it is ending */
        memory.area += (double)rss_kib * (double)(now_ns - memory.last_ns);
        memory.last_ns = now_ns;
        memory.rss_kib = rss_kib;
        memory.peak_kib = rss_kib > memory.peak_kib ? rss_kib : memory.peak_kib;
        memory.sample_count++;
        series_add(now_ns - memory.start_ns, rss_kib);
    }
    if (is_last || now_ns >= memory.rollup_next_ns) {
        spent_before_ns = spent_ns();
        memory.has_rollup = tree_lazyfree_read(&memory.lazyfree_kib) || memory.has_rollup;
        memory.rollup_next_ns = next_after(spent_before_ns);
    }
}

void memory_sample(pid_t except)
{
    uint64_t now_ns = measure_now_ns();
    uint64_t pause_ns;
    if (memory.is_closed || now_ns < memory.next_ns) {
        return;
    }
    memory_read(except, false);
    pause_ns = (now_ns - memory.start_ns) / INTERVALS_AT_START;
    pause_ns = pause_ns < MEASURE_MS ? MEASURE_MS : pause_ns;
    memory.next_ns =
        measure_now_ns() + (pause_ns < memory.interval_ns ? pause_ns : memory.interval_ns);
}

void memory_close(pid_t except)
{
    if (!memory.is_closed) {
        memory_read(except, true);
        memory.is_closed = true;
    }
}

void memory_rest(uint64_t rest_s)
{
    if (rest_count == MEASURE_RESTS_MAX) {
        measure_fail(2, "--rest-s may be given %d times.", MEASURE_RESTS_MAX);
    }
    struct rest *rest = &rests[rest_count++];
    (void)memory_tree_list(memory.program, 0);
    rest->rest_s = rest_s;
    rest->rss_kib = tree_rss_kib();
    (void)tree_lazyfree_read(&rest->lazyfree_kib);
}

/* A field that may be unknown. */
static void field_print(FILE *out, const char *name, bool is_known, uint64_t value)
{
    if (is_known) {
        (void)fprintf(out, ",\"%s\":%llu", name, (unsigned long long)value);
    } else {
        (void)fprintf(out, ",\"%s\":null", name);
    }
}

void memory_print(FILE *out, uint64_t maxrss_kib)
{
    uint64_t peak_kib = memory.peak_kib > maxrss_kib ? memory.peak_kib : maxrss_kib;
    /* A few samples are of the program's start only. */
    bool is_sampled = memory.sample_count >= SAMPLE_COUNT_MIN;
    double mean_kib =
        is_sampled ? memory.area / (double)(memory.last_ns - memory.start_ns) : (double)peak_kib;
    (void)fprintf(out, ",\"rss_peak_kib\":%llu,\"rss_mean_kib\":%.1f", (unsigned long long)peak_kib,
                  mean_kib);
    field_print(out, "rss_end_kib", is_sampled, memory.rss_kib);
    field_print(out, "lazyfree_end_kib", memory.has_rollup, memory.lazyfree_kib);
    (void)fputs(",\"rss_series\":[", out);
    for (size_t i = 0; i < memory.series_count; i++) {
        (void)fprintf(out, "%s[%.1f,%llu]", i == 0 ? "" : ",",
                      (double)memory.series[i].elapsed_ns / (double)MEASURE_MS,
                      (unsigned long long)memory.series[i].rss_kib);
    }
    (void)fputs("],\"rest\":[", out);
    for (size_t i = 0; i < rest_count; i++) {
        (void)fprintf(out, "%s[%llu,%llu,%llu]", i == 0 ? "" : ",",
                      (unsigned long long)rests[i].rest_s, (unsigned long long)rests[i].rss_kib,
                      (unsigned long long)rests[i].lazyfree_kib);
    }
    (void)fputs("]", out);
}
