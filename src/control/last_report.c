/* last_report.c: see last_report.h. */
#include "control/last_report.h"

#include <signal.h>

#include "base/bits.h"
#include "base/text.h"
#include "control/life.h"
#include "core/gate.h"
#include "core/options.h"
#include "hakmem/stats.h"
#include "os/os.h"

/* Longest name of a report file: the option's value with a process id in it. Twice: more stack. */
#define LAST_PATH_SIZE 1200u
/* Bytes for a report at a signal, before it is written at once: enough for some 200 heaps and
 * threads; a longer one is written in parts. */
#define LAST_SIGNAL_SIZE ((size_t)256 << 10)
/* Milliseconds that a second thread with a signal waits for the first one's report. Twice: a
 * process whose report hangs lives that much longer. Half: a report on a slow disk may be cut. */
#define LAST_WAIT_MS 2000u

/* True if this process writes a report at its end. */
static bool last_reports(void)
{
    uint64_t process = hak__settings.stats_process;
    return hak__settings.stats != STATS_NONE && (process == 0 || process == hak__os_process_id());
}

static struct os_kept last_file = {-1, 0, 0};

/* --- the name of the file --- */

static bool last_path_varies(void)
{
    const char *at = hak__settings.stats_file;
    for (; at != NULL && *at != '\0'; at++) {
        if (*at == '%' && *++at == 'p') { /* the option lets only %p and %% pass */
            return true;
        }
    }
    return false;
}

/* Writes the name of this process's file to `path`. */
static void last_path(char path[LAST_PATH_SIZE])
{
    struct text text = {path, LAST_PATH_SIZE - 1, 0};
    for (const char *at = hak__settings.stats_file; *at != '\0'; at++) {
        if (*at == '%' && *++at == 'p') {
            hak__text_put_unsigned(&text, hak__os_process_id());
        } else {
            hak__text_put_part(&text, at, 1);
        }
    }
    path[text.length] = '\0';
}

static void last_open(void)
{
    char path[LAST_PATH_SIZE];
    if (hak__settings.stats_file == NULL) {
        last_file = hak__os_keep(2);
        return;
    }
    last_path(path);
    last_file = hak__os_keep_append(path);
}

/* --- writing --- */

/* Collects the report to write it at once, because several processes may append to one file. */
struct last_report {
    char *data; /* NULL: no memory; each piece is written as it comes */
    size_t size;
    size_t length;
    int descriptor;
    int error; /* of the last write that failed; 0: all is written */
};

static void last_write(struct last_report *report, const char *data, size_t size)
{
    int error = 0;
    if (report->descriptor == 2) {
        hak__os_write_error(data, size);
    } else {
        error = hak__os_write(report->descriptor, data, size);
    }
    report->error = error != 0 ? error : report->error;
}

static void last_collect(void *argument, const char *piece, size_t size)
{
    struct last_report *report = argument;
    if (report->size - report->length < size) {
        last_write(report, report->data, report->length);
        report->length = 0;
    }
    if (report->size < size) {
        last_write(report, piece, size);
        return;
    }
    for (size_t i = 0; i < size; i++) {
        report->data[report->length++] = piece[i];
    }
}

/* Bytes for a report: the fixed part takes some 30 KiB, and each heap and thread has a line with
 * all its counters. */
static size_t last_size(void)
{
    struct hak_stats stats;
    hak_stats_get(&stats);
    size_t lines = stats.heaps_count + stats.threads_count;
    return bits_align_up(((size_t)64 << 10) + lines * 1024, hak__os_page_size());
}

static enum hak_report_format last_format(void)
{
    switch (hak__settings.stats) {
    case STATS_SUMMARY:
        return HAK_REPORT_SUMMARY;
    case STATS_JSON:
        return HAK_REPORT_JSON;
    case STATS_PROMETHEUS:
        return HAK_REPORT_PROMETHEUS;
    default:
        return HAK_REPORT_TEXT;
    }
}

/* `soon`: in a signal handler. Returns 0, or -errno of a write. */
static int last_report(int descriptor, bool soon)
{
    static const char refused[] = "hakmem: no report: the signal interrupted hakmem itself\n";
    struct last_report report = {NULL, soon ? LAST_SIGNAL_SIZE : last_size(), 0, descriptor, 0};
    void *memory = NULL;
    if (hak__os_map(report.size, hak__os_page_size(), &memory) != 0) {
        report.size = 0;
    }
    report.data = memory;
    if (!soon) {
        hak_report(last_format(), last_collect, &report);
    } else if (!hak__report_soon(last_format(), last_collect, &report)) {
        hak__os_write_error(refused, sizeof refused - 1);
    }
    last_write(&report, report.data, report.length);
    if (report.size != 0) {
        hak__os_discard(memory, report.size);
    }
    return report.error;
}

static void last_complain(const char *path, int error)
{
    char line[LAST_PATH_SIZE + 128]; /* a path and a sentence */
    struct text text = {line, sizeof line - 1, 0};
    hak__text_put(&text, "hakmem: cannot write the report to ");
    hak__text_put(&text, path);
    hak__text_put(&text, ": ");
    hak__text_put(&text, hak__os_file_error(error));
    line[text.length++] = '\n';
    hak__os_write_error(line, text.length);
}

static void last_report_write(bool soon)
{
    char path[LAST_PATH_SIZE];
    bool kept = hak__os_is_kept(&last_file);
    if (hak__settings.stats_file == NULL) {
        last_report(kept ? last_file.descriptor : 2, soon);
        return;
    }
    last_path(path);
    int descriptor = kept ? last_file.descriptor : hak__os_open_append(path);
    int error = descriptor < 0 ? descriptor : last_report(descriptor, soon);
    if (error != 0) {
        last_complain(path, error);
    }
    if (descriptor >= 0) {
        hak__os_close(descriptor);
    }
}

/* --- signals --- */

static const int last_signals[] = {SIGHUP, SIGINT, SIGPIPE, SIGALRM, SIGTERM, SIGXCPU};
static uint32_t last_process;      /* a child of vfork is another process, in this one's memory */
static uint32_t shared_last_begun; /* 1: some thread writes the report, or has written it */

/* The handler. It may have interrupted any code of the program: it takes no lock of the C library,
 * and waits for no fork, which may be waiting for such a lock that this thread holds. If it has
 * interrupted hakmem, the gate refuses it (core/gate.h). */
static void last_handle(int signal)
{
    uint32_t begun = 0;
    if (last_process == hak__os_process_id() && last_reports()) {
        if (atomic_cas_acquire(&shared_last_begun, &begun, 1u)) {
            last_report_write(true);
        } else if (hak__inside == 0) {
            hak__os_sleep_ms(LAST_WAIT_MS); /* another thread's report ends the process */
        }
    }
    hak__os_end_by_signal(signal);
    atomic_store_relaxed(&shared_last_begun, 0u);
}

static void last_catch_signals(void)
{
    last_process = hak__os_process_id();
    for (size_t i = 0; i < sizeof last_signals / sizeof last_signals[0]; i++) {
        hak__os_catch_default(last_signals[i], last_handle);
    }
}

/* --- the process --- */

void hak__last_report_begin(void)
{
    if (last_reports()) {
        last_open();
        if (hak__settings.stats_signal) {
            last_catch_signals();
        }
    }
}

/* A child that does not report closes the file: a daemon would keep its starter's pipe open. */
void hak__last_report_fork_child(void)
{
    last_process = hak__os_process_id();
    atomic_store_relaxed(&shared_last_begun, 0u);
    bool reports = last_reports(), other = reports && last_path_varies();
    if (last_file.descriptor >= 0 && (!reports || other)) {
        if (hak__os_is_kept(&last_file)) {
            hak__os_close(last_file.descriptor);
        }
        last_file.descriptor = -1;
    }
    if (other) {
        last_open();
    }
}

void hak__last_report_at_exit(void)
{
    uint32_t begun = 0;
    if (last_reports() && atomic_cas_acquire(&shared_last_begun, &begun, 1u)) {
        last_report_write(false);
    }
}
