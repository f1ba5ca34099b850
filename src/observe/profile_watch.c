/* SPDX-License-Identifier: MIT */
/* profile_watch.c: see profile_watch.h. */
#include "observe/profile_watch.h"

#include "base/text.h"
#include "core/knobs.h"
#include "core/options.h"

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
} watch;

bool hak__profile_watch_begin(void)
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
void hak__profile_watch_fork_child(void)
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

/* Name of a file: PROFILE_FILE.REASON, and a word behind it. */
static void watch_put_name(char name[EXIT_PATH_SIZE], enum watch_reason reason, const char *word)
{
    struct text text = {name, EXIT_PATH_SIZE - 1, 0};
    hak__text_put(&text, hak__settings.profile_file);
    hak__text_put(&text, watch_names[reason]);
    hak__text_put(&text, word);
    name[text.length] = '\0';
}

static void watch_path(char path[EXIT_PATH_SIZE], enum watch_reason reason, const char *word)
{
    char name[EXIT_PATH_SIZE];
    const char *place = name;
    const struct exit_file file = {.name = &place};
    watch_put_name(name, reason, word);
    hak__exit_file_path(&file, path);
}

static void watch_write(enum watch_reason reason, exit_file_writer *writer)
{
    char name[EXIT_PATH_SIZE], made[EXIT_PATH_SIZE], newest[EXIT_PATH_SIZE], old[EXIT_PATH_SIZE];
    const char *place = name;
    struct exit_file file = {
        .name = &place, .what = "profile", .replaces = true, .kept = {-1, 0, 0}};
    watch_put_name(name, reason, ".new");
    watch_path(made, reason, ".new");
    watch_path(newest, reason, "");
    watch_path(old, reason, ".old");
    hak__os_remove(made); /* it may be another name of any file */
    if (!hak__exit_file_write(&file, writer, NULL)) {
        hak__os_remove(made);
        return;
    }
    /* There may be none yet. At no moment is there none afterwards. */
    (void)hak__os_link(newest, old);
    int error = hak__os_rename(made, newest);
    if (error != 0) {
        hak__exit_file_complain(&file, newest, error);
    }
}

void hak__profile_watch_look(exit_file_writer *writer)
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
            watch_write(reason, writer);
        }
    }
}
