/* SPDX-License-Identifier: MIT */
/* profile_dump.c: the profiles that a process appends to HAKMEM_PROFILE_FILE when it gets the
 * signal HAKMEM_PROFILE_SIGNAL, those of HAKMEM_PROFILE_DUMP, and the thread that writes them.
 *
 * The handler only wakes the thread. So a signal that interrupts hakmem itself, or comes beside a
 * fork, is not lost. The thread opens the file at the start, in a table of descriptors of its own.
 * For HAKMEM_PROFILE_DUMP it looks at the process's memory ten times a second. For each reason
 * there are two files: the newest profile, PROFILE_FILE.REASON, and the one before,
 * PROFILE_FILE.REASON.old. A profile gets its name when it is complete, so a process that is killed
 * leaves the two before. */
#include "control/life.h"

#include <pthread.h>

#include "base/text.h"
#include "control/background.h"
#include "control/exit_file.h"
#include "core/diagnose.h"
#include "core/knobs.h"
#include "core/options.h"
#include "hakmem/profile.h"
#include "os/os.h"

static uint32_t shared_dump_asked; /* signals so far; the thread sleeps on it */
static uint32_t shared_dump_ready; /* 1: the file is open */
static bool dump_catches;          /* the signal asks for profiles */
static bool dump_watches;          /* this process writes profiles by itself, too */

static struct exit_file dump_file = {.name = &hak__settings.profile_file,
                                     .what = "profile",
                                     .write = hak_profile_write,
                                     .stays = true,
                                     .kept = {-1, 0, 0}};

/* The handler. */
static void dump_handle(int signal)
{
    (void)signal;
    atomic_add_relaxed(&shared_dump_asked, 1u); /* the wait and the wake order it */
    hak__os_wake_all(&shared_dump_asked);
}

/* --- profiles without a signal --- */

/* A reason that is over counts again when memory has fallen so far below its mark. Doubled: after a
 * short fall there is no new profile. Halved: memory that goes up and down a little gives many. */
#define WATCH_BACK_PERCENT 10u

enum watch_reason { WATCH_PEAK, WATCH_ABOVE, WATCH_EVERY, WATCH_LIMIT, WATCH_COUNT };
static const char *const watch_names[WATCH_COUNT] = {".peak", ".above", ".every", ".limit"};

static struct {
    struct dump_when when;
    uint64_t peak_bytes; /* resident at the last peak */
    uint64_t every_us;   /* time of the next one */
    uint64_t limit_next; /* percent */
    bool is_above;
} watch HAK_SELDOM;

/* False: there is nothing to look for. */
static bool watch_begin(void)
{
    if (hak__settings.profile_file == NULL || hak__settings.profile_dump == NULL ||
        !hak__options_parse_dump(hak__settings.profile_dump, &watch.when)) {
        return false;
    }
    watch.peak_bytes = 0;
    watch.every_us = hak__os_clock_us() + watch.when.every_s * 1000000;
    watch.limit_next = watch.when.limit_percent;
    watch.is_above = false;
    const struct dump_when *when = &watch.when;
    return when->peak_percent + when->above + when->every_s + when->limit_percent != 0;
}

/* What is full or above its mark has been so in the parent, which has written the profile. Else
 * each child that only becomes another program would write one. */
static void watch_fork_child(void)
{
    watch.peak_bytes = 0;
    watch.every_us = hak__os_clock_us() + watch.when.every_s * 1000000;
}

/* --- what is due --- */

static bool watch_is_peak(uint64_t resident)
{
    uint64_t percent = watch.when.peak_percent;
    bool first = watch.peak_bytes == 0; /* that of the start */
    bool is = percent != 0 && resident > watch.peak_bytes + watch.peak_bytes / 100 * percent;
    watch.peak_bytes = is ? resident : watch.peak_bytes;
    return is && !first;
}

static bool watch_is_above(uint64_t resident)
{
    uint64_t mark = watch.when.above;
    bool is = mark != 0 && resident > mark && !watch.is_above;
    if (resident < mark - mark / 100 * WATCH_BACK_PERCENT) {
        watch.is_above = false;
    }
    watch.is_above |= is;
    return is;
}

/* The next one is due a whole time after this one, also if this one came late. */
static bool watch_is_time(void)
{
    uint64_t now_us = hak__os_clock_us();
    bool is = watch.when.every_s != 0 && now_us >= watch.every_us;
    watch.every_us = is ? now_us + watch.when.every_s * 1000000 : watch.every_us;
    return is;
}

/* The fuller, the more often: the last profile before the end is then a late one. */
static bool watch_is_limit(void)
{
    uint64_t mark = watch.when.limit_percent;
    if (mark == 0) {
        return false;
    }
    uint64_t back = mark > WATCH_BACK_PERCENT ? mark - WATCH_BACK_PERCENT : 1;
    uint64_t percent =
        hak__os_memory_percent("/proc/self/cgroup", "/sys/fs/cgroup", (uint32_t)back);
    uint64_t hard = atomic_load_relaxed(&hak__knobs.limit_hard);
    if (hard != UINT64_MAX) {
        uint64_t own = hak__os_mapped_bytes() / (hard / 100 + 1);
        percent = own > percent ? own : percent;
    }
    bool is = percent >= watch.limit_next;
    watch.limit_next = is ? (percent + 102) / 2 : percent < back ? mark : watch.limit_next;
    return is;
}

/* --- the files --- */

/* The name PROFILE_FILE.REASON, with a word behind it, and its path. */
static void watch_path(char name[EXIT_PATH_SIZE], char path[EXIT_PATH_SIZE],
                       enum watch_reason reason, const char *word)
{
    hak__text_make(name, EXIT_PATH_SIZE, "%s%s%s", hak__settings.profile_file, watch_names[reason],
                   word);
    hak__exit_file_path(name, path);
}

static void watch_write(enum watch_reason reason)
{
    char name[EXIT_PATH_SIZE], made[EXIT_PATH_SIZE], newest[EXIT_PATH_SIZE], old[EXIT_PATH_SIZE];
    const char *const made_name = name;
    struct exit_file file = dump_file;
    file.name = &made_name;
    file.replaces = true;
    file.kept.descriptor = -1;
    watch_path(name, newest, reason, "");
    watch_path(name, old, reason, ".old");
    watch_path(name, made, reason, ".new");
    hak__os_remove(made); /* it may be another name of any file */
    if (!hak__exit_file_write(&file)) {
        hak__os_remove(made);
        return;
    }
    /* There may be none yet. At no moment is there none afterwards. */
    (void)hak__os_link(newest, old);
    int error = hak__os_rename(made, newest);
    if (error != 0) {
        hak__exit_file_complain(file.what, newest, error);
    }
}

/* Looks, and writes the profiles that have become due. */
static void watch_look(void)
{
    uint64_t resident = hak__os_rss();
    if (resident == UINT64_MAX) {
        resident = 0; /* a peak never comes */
    }
    const bool due[WATCH_COUNT] = {
        [WATCH_PEAK] = watch_is_peak(resident),
        [WATCH_ABOVE] = watch_is_above(resident),
        [WATCH_EVERY] = watch_is_time(),
        [WATCH_LIMIT] = watch_is_limit(),
    };
    for (enum watch_reason reason = WATCH_PEAK; reason < WATCH_COUNT; reason++) {
        if (due[reason]) {
            watch_write(reason);
        }
    }
}

/* --- the thread --- */

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
        watch_look();
    }
    /* release: pairs with the acquire in hak__background_wait */
    atomic_store_release(&shared_dump_ready, 1u);
    hak__os_wake_all(&shared_dump_ready);
    while (!hak__background_is_left_alone()) {
        if (atomic_load_relaxed(&shared_dump_asked) != written) {
            written++;
            hak__exit_file_write(&dump_file);
        } else {
            /* Milliseconds between two looks at the process's memory. A look takes some 80 us.
             * Doubled: a peak of a fifth of a second may be missed. Halved: twice as many
             * wake-ups. */
            hak__os_wait_ms(&shared_dump_asked, written, dump_watches ? 100 : BACKGROUND_LOOK_MS);
        }
        if (dump_watches) {
            watch_look();
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
    dump_watches = dump_watches && hak__exit_file_varies(*dump_file.name);
    if (dump_watches) {
        watch_fork_child();
    }
    if (dump_watches || dump_catches) {
        dump_start();
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
    dump_watches = watch_begin();
    if (hak__settings.profile_dump != NULL && hak__settings.profile_file == NULL) {
        hak__diagnose_warn("HAKMEM_PROFILE_DUMP does nothing: HAKMEM_PROFILE_FILE is not set",
                           NULL);
    }
    if (dump_catches || dump_watches) {
        dump_start();
        /* The program may go to where it cannot open the file (chroot, setuid). */
        (void)hak__background_wait(&shared_dump_ready, 0, false);
        pthread_atfork(NULL, NULL, dump_fork_child);
    }
}
