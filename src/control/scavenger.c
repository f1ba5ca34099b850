/* SPDX-License-Identifier: MIT */
/* scavenger.c: an optional thread that returns free memory to the OS while the program idles
 * (HAKMEM_SCAVENGER=1). All other work happens in calls of malloc and free.
 *
 * It takes the notifications of arenas, returns kept spans and purges by the clock. It cannot empty
 * bins, which belong to their threads. While tasks of the program's cgroup or of the machine wait
 * for memory (pressure stall information), every thread purges after 10 ms. The scavenger has no
 * arena, allocates nothing, and has its own table of descriptors. Rights belong to threads, too: a
 * program that gives up capabilities with capset and then calls setuid is ended by the C library,
 * because the scavenger has kept its rights (docs/guarantees.md). */
#include "control/life.h"

#include "arena/arena.h"
#include "control/background.h"
#include "core/knobs.h"
#include "core/options.h"
#include "os/os.h"

/* Longest sleep between two looks whether the program's threads have all ended. It is also the
 * period while memory is short. Doubled: an ended process lives on for up to 200 ms. Halved: twice
 * as many wake-ups of an idle process. */
#define SCAVENGER_LOOK_MS 100u

/* How long tasks have waited for memory, in microseconds. */
struct pressure {
    char group_path[4096];
    uint64_t group_us; /* in the process's cgroup; UINT64_MAX: unknown */
    uint64_t machine_us;
    uint32_t looked_ms;
};

/* Sleeps for a period. False: no thread of the program is left. */
static bool scavenger_sleep(uint32_t period_ms)
{
    for (uint32_t slept_ms = 0; slept_ms < period_ms; slept_ms += SCAVENGER_LOOK_MS) {
        uint32_t left_ms = period_ms - slept_ms;
        if (hak__background_is_left_alone()) {
            return false;
        }
        hak__os_sleep_ms(left_ms < SCAVENGER_LOOK_MS ? left_ms : SCAVENGER_LOOK_MS);
    }
    return true;
}

/* True if some task waited for memory for more than 1 / 64 of `elapsed_ms`. */
static bool pressure_grew(uint64_t *stalled_us, const char *path, uint32_t elapsed_ms)
{
    uint64_t before_us = *stalled_us;
    uint64_t now_us = hak__os_pressure_stalled_us(path);
    *stalled_us = now_us;
    /* Memory is short if some task waited for it for more than 1 / 64 of the last
     * period (docs/decisions/0028). Doubled: half that waiting is enough, and free memory is
     * returned more often after 10 ms. Halved: only twice that waiting is. */
    return before_us < now_us && now_us != UINT64_MAX &&
           now_us - before_us > (uint64_t)elapsed_ms * 1000 / 64;
}

/* Is memory short, for the program's cgroup or for the machine? Called once a period. */
static bool pressure_look(struct pressure *pressure)
{
    uint32_t now_ms = hak__os_clock_ms();
    uint32_t elapsed_ms = now_ms - pressure->looked_ms;
    pressure->looked_ms = now_ms;
    if (pressure->group_us == UINT64_MAX) { /* the first time, or the cgroup has no figure */
        hak__os_pressure_path("/proc/self/cgroup", "/sys/fs/cgroup", pressure->group_path,
                              sizeof pressure->group_path);
    }
    bool group = pressure_grew(&pressure->group_us, pressure->group_path, elapsed_ms);
    bool machine = pressure_grew(&pressure->machine_us, "/proc/pressure/memory", elapsed_ms);
    return group || machine;
}

/* Half the purge delay, which the program may change. */
static uint32_t scavenger_usual_ms(void)
{
    uint32_t usual_ms = atomic_load_relaxed(&hak__knobs.purge_delay_ms) / 2;
    usual_ms = usual_ms < 10 ? 10 : usual_ms;
    /* The bounds of half the purge delay. The lower one is for short delays: halved, up to twice as
     * many rounds. The other is for long ones, so that a memory shortage is noticed within a second
     * (docs/decisions/0028): doubled, up to twice as late. */
    return usual_ms > 1000 ? 1000 : usual_ms;
}

static void *scavenger_run(void *argument)
{
    struct pressure pressure = {.group_us = UINT64_MAX, .machine_us = UINT64_MAX};
    hak__os_name_thread("hakmem");
    /* The scavenger must not touch the program's descriptors: a number that is in use for a moment
     * would change what the program's next open returns. Without a table of its own it does not
     * watch the pressure. */
    bool watches = hak__os_leave_descriptors();
    for (uint32_t period_ms = 0; scavenger_sleep(period_ms);) {
        bool pressed = watches && pressure_look(&pressure);
        hak__arena_set_pressed(pressed);
        hak__arena_scavenge();
        uint32_t usual_ms = scavenger_usual_ms();
        period_ms = pressed && usual_ms > SCAVENGER_LOOK_MS ? SCAVENGER_LOOK_MS : usual_ms;
    }
    hak__arena_set_pressed(false);
    hak__background_end();
    return argument;
}

const char *hak__scavenger_start(void)
{
    hak__arena_set_pressed(false); /* fork's child inherits the parent's value */
    if (!hak__settings.scavenger) {
        return NULL;
    }
    if (atomic_load_relaxed(&hak__knobs.purge_delay_ms) == UINT32_MAX) {
        return "HAKMEM_SCAVENGER does nothing: HAKMEM_PURGE_DELAY_MS is never";
    }
    int error = hak__background_start(scavenger_run);
    return error == 0 ? NULL : "HAKMEM_SCAVENGER: its thread cannot be started";
}
