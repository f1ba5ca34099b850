/* SPDX-License-Identifier: MIT */
/* last_report.c: what a process writes when it ends: the report (HAKMEM_STATS), the heap profile
 * (HAKMEM_PROFILE_FILE) and the heap map (HAKMEM_HEAP_MAP_FILE).
 *
 * The files of the first two are opened at the start: at the end a server's worker may have no
 * right to open them, and programs such as ls have closed standard error. A child of fork writes to
 * the same file, or to one of its own if the name has a %p.
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
#include "hakmem/profile.h"
#include "os/os.h"

static void last_write(hak_report_sink *sink, void *sink_argument)
{
    uint32_t stats = hak__settings.stats;
    hak_report(stats == STATS_SUMMARY ? HAK_REPORT_SUMMARY
               : stats == STATS_JSON  ? HAK_REPORT_JSON
                                      : HAK_REPORT_TEXT,
               sink, sink_argument);
}

enum last_file { LAST_REPORT, LAST_PROFILE, LAST_MAP, LAST_FILES };
static struct exit_file last_files[LAST_FILES] = {
    {.name = &hak__settings.stats_file, .what = "report", .write = last_write, .kept = {-1, 0, 0}},
    {.name = &hak__settings.profile_file,
     .what = "profile",
     .write = hak_profile_write,
     .kept = {-1, 0, 0}},
    {.name = &hak__settings.heap_map_file,
     .what = "heap map",
     .write = hak_heap_map,
     .replaces = true,
     .kept = {-1, 0, 0}}};

/* HAKMEM_STATS_PID may name the only process that writes a report and a map; but with "%p" in the
 * map's name, each process has a map of its own. */
static bool last_is_wanted(enum last_file file)
{
    uint64_t process = hak__settings.stats_process;
    const char *name = *last_files[file].name;
    if (file == LAST_REPORT ? hak__settings.stats == STATS_NONE : name == NULL) {
        return false;
    }
    return file == LAST_PROFILE || process == 0 || process == hak__os_process_id() ||
           (file == LAST_MAP && hak__exit_file_varies(name));
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
    bool any = false;
    for (enum last_file file = LAST_REPORT; file < LAST_FILES; file++) {
        if (last_is_wanted(file)) {
            hak__exit_file_open(&last_files[file]);
            any = true;
        }
    }
    if (hak__settings.stats_signal && any) {
        last_catch_signals();
    }
}

/* A child that does not report closes the file: a daemon would keep its starter's pipe open. */
void hak__last_report_fork_child(void)
{
    struct exit_file *file = &last_files[LAST_REPORT];
    bool reports = last_is_wanted(LAST_REPORT), own = reports && hak__exit_file_varies(*file->name);
    if (!reports || own) {
        hak__exit_file_close(file);
    }
    if (own) {
        hak__exit_file_open(file);
    }
}

void hak__last_report_at_end(void)
{
    for (enum last_file file = LAST_REPORT; file < LAST_FILES; file++) {
        if (last_is_wanted(file)) {
            hak__exit_file_write(&last_files[file]);
        }
    }
}
