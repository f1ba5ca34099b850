/* SPDX-License-Identifier: MIT */
/* profile_dump.c: see profile_dump.h. */
#include "observe/profile_dump.h"

#include <pthread.h>

#include "control/background.h"
#include "control/exit_file.h"
#include "core/diagnose.h"
#include "core/options.h"
#include "hakmem/profile.h"
#include "observe/profile_watch.h"
#include "os/os.h"

/* Milliseconds between two looks whether the program's threads have all ended. Doubled: a process
 * whose main thread ended by pthread_exit may live on for a second. Halved: twice as many wake-ups
 * of an idle process. */
#define DUMP_LOOK_MS 500u
/* The same between two looks at the process's memory. A look takes some 80 us. Doubled: a peak of a
 * fifth of a second may be missed. Halved: twice as many wake-ups. */
#define DUMP_WATCH_MS 100u
/* Longest wait of a process's start for the thread to open the file. A busy machine needs some 10
 * ms. Doubled: a process whose thread never runs starts a second later. */
#define DUMP_WAIT_MS 1000u

static uint32_t shared_dump_asked; /* signals so far; the thread sleeps on it */
static uint32_t shared_dump_ready; /* 1: the file is open */
static bool dump_catches;          /* the signal asks for profiles */
static bool dump_watches;          /* this process writes profiles by itself, too */

static struct exit_file dump_file = {
    .name = &hak__settings.profile_file, .what = "profile", .stays = true, .kept = {-1, 0, 0}};

/* The handler. */
static void dump_handle(int signal)
{
    (void)signal;
    atomic_add_relaxed(&shared_dump_asked, 1u); /* the wait and the wake order it */
    hak__os_wake_all(&shared_dump_asked);
}

static void dump_write(void *context, hak_report_sink *sink, void *sink_argument)
{
    (void)context;
    hak_profile_write(sink, sink_argument);
}

/* Writes a profile for each signal and reason, until no thread of the program is left. */
static void *dump_run(void *argument)
{
    uint32_t written = 0;
    hak__os_name_thread("hakmem-profile");
    (void)hak__os_leave_descriptors();
    if (dump_catches) {
        hak__exit_file_open(&dump_file);
    }
    if (dump_watches) { /* peaks are above what is there now */
        hak__profile_watch_look(dump_write);
    }
    atomic_store_relaxed(&shared_dump_ready, 1u);
    hak__os_wake_all(&shared_dump_ready);
    while (!hak__background_is_left_alone()) {
        if (atomic_load_relaxed(&shared_dump_asked) != written) {
            written++;
            hak__exit_file_write(&dump_file, dump_write, NULL);
        } else {
            hak__os_wait_ms(&shared_dump_asked, written,
                            dump_watches ? DUMP_WATCH_MS : DUMP_LOOK_MS);
        }
        if (dump_watches) {
            hak__profile_watch_look(dump_write);
        }
    }
    hak__exit_file_close(&dump_file);
    hak__background_end();
    return argument;
}

static void dump_start(void)
{
    atomic_store_relaxed(&shared_dump_asked, 0u);
    atomic_store_relaxed(&shared_dump_ready, 0u);
    dump_file.kept.descriptor = -1; /* in the child of a fork: the parent's thread has it */
    if (hak__background_start(dump_run) != 0) {
        hak__diagnose_warn("the thread that writes profiles cannot be started", NULL);
    }
}

/* In the child of a fork. Without a %p in the name, its parent has the files. */
static void dump_fork_child(void)
{
    dump_watches = dump_watches && hak__exit_file_varies(&dump_file);
    if (dump_watches) {
        hak__profile_watch_fork_child();
    }
    if (dump_watches || dump_catches) {
        dump_start();
    }
}

/* The program may go to where it cannot open the file (chroot, setuid). */
static void dump_wait(void)
{
    uint32_t began_ms = hak__os_clock_ms();
    while (atomic_load_relaxed(&shared_dump_ready) == 0 &&
           hak__os_clock_ms() - began_ms < DUMP_WAIT_MS) {
        hak__os_wait_ms(&shared_dump_ready, 0, DUMP_WAIT_MS);
    }
}

/* True: the signal asks for profiles from now on. */
static bool dump_catch(int signal)
{
    if (signal == 0) {
        return false;
    }
    if (hak__settings.profile_file == NULL) {
        hak__diagnose_warn("HAKMEM_PROFILE_SIGNAL does nothing: HAKMEM_PROFILE_FILE is not set",
                           NULL);
        return false;
    }
    if (!hak__os_catch_default(signal, dump_handle)) {
        hak__diagnose_warn("HAKMEM_PROFILE_SIGNAL does nothing: the signal is ignored", NULL);
        return false;
    }
    return true;
}

void hak__profile_dump_begin(void)
{
    dump_catches = dump_catch((int)hak__settings.profile_signal);
    dump_watches = hak__profile_watch_begin();
    if (hak__settings.profile_dump != NULL && hak__settings.profile_file == NULL) {
        hak__diagnose_warn("HAKMEM_PROFILE_DUMP does nothing: HAKMEM_PROFILE_FILE is not set",
                           NULL);
    }
    if (dump_catches || dump_watches) {
        dump_start();
        dump_wait();
        pthread_atfork(NULL, NULL, dump_fork_child);
    }
}
