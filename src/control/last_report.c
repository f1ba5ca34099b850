/* SPDX-License-Identifier: MIT */
/* last_report.c: the report that a process writes when it ends (HAKMEM_STATS).
 *
 * Its file is opened at the start: at the end a server's worker may have no right to open it, and
 * programs such as ls have closed standard error. A child of fork writes to the same file, or to
 * one of its own if the name has a %p.
 *
 * A signal that ends the process runs no destructor. With HAKMEM_STATS_SIGNAL=1 hakmem installs
 * handlers where the program's parent left the default action. They write the documents that are
 * asked for, and then let the default action end the process. That is off by default, because
 * sigaction shows the program that there is a handler. */

#include <signal.h>

#include "control/ending.h"
#include "control/exit_file.h"
#include "control/life.h"
#include "core/options.h"
#include "os/os.h"

/* True if this process writes a report at its end. */
static bool last_reports(void)
{
    uint64_t process = hak__settings.stats_process;
    return hak__settings.stats != STATS_NONE && (process == 0 || process == hak__os_process_id());
}

static struct exit_file last_file = {
    .name = &hak__settings.stats_file, .what = "report", .kept = {-1, 0, 0}};

static void last_write(hak_report_sink *sink, void *sink_argument)
{
    uint32_t stats = hak__settings.stats;
    hak_report(stats == STATS_SUMMARY ? HAK_REPORT_SUMMARY
               : stats == STATS_JSON  ? HAK_REPORT_JSON
                                      : HAK_REPORT_TEXT,
               sink, sink_argument);
}

/* --- signals --- */

static const int last_signals[] = {SIGHUP, SIGINT, SIGPIPE, SIGALRM, SIGTERM, SIGXCPU};

/* The handler. It may have interrupted any code of the program: it takes no lock of the C library,
 * and waits only a moment for a fork, which may be waiting for such a lock that this thread holds.
 * If it has interrupted hakmem, the gate refuses it (core/gate.h). */
static void last_handle(int signal)
{
    hak__ending_by_signal();
    hak__os_end_by_signal(signal);
}

static void last_catch_signals(void)
{
    for (size_t i = 0; i < sizeof last_signals / sizeof last_signals[0]; i++) {
        (void)hak__os_catch_default(last_signals[i], last_handle);
    }
}

/* --- the process --- */

void hak__last_report_begin(void)
{
    if (last_reports()) {
        hak__exit_file_open(&last_file);
    }
    if (hak__settings.stats_signal && (last_reports() || hak__settings.profile_file != NULL ||
                                       hak__settings.heap_map_file != NULL)) {
        last_catch_signals();
    }
}

/* A child that does not report closes the file: a daemon would keep its starter's pipe open. */
void hak__last_report_fork_child(void)
{
    bool reports = last_reports(), own = reports && hak__exit_file_varies(&last_file);
    if (!reports || own) {
        hak__exit_file_close(&last_file);
    }
    if (own) {
        hak__exit_file_open(&last_file);
    }
}

void hak__last_report_at_end(void)
{
    if (last_reports()) {
        hak__exit_file_write(&last_file, last_write);
    }
}
