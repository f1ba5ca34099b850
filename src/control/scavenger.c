/* scavenger.c: see scavenger.h. */
#include "control/scavenger.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include "core/knobs.h"
#include "core/options.h"
#include "heap/heap.h"
#include "os/os.h"

/* Where the thread-local variables of all libraries, which the C library puts there too, do not
 * fit, the default's size is taken. */
#define SCAVENGER_STACK_SIZE ((size_t)256 << 10)
#define SCAVENGER_PERIOD_MS_MIN 10u
#define SCAVENGER_PERIOD_MS_MAX 1000u /* by then a shortage of memory is noticed */
/* How much longer a process may live on than its last own thread; and the period while memory is
 * short. */
#define SCAVENGER_LOOK_MS 100u
/* Memory is short when some task waited for it for 1 / PRESSURE_SHARE of the last period. */
#define PRESSURE_SHARE 64u
#define PRESSURE_PATH_SIZE 4096u

/* Sleeps for a period. False: a process whose main thread has ended goes on until its last thread
 * ends, which is not to be this one. */
static bool scavenger_sleep(uint32_t period_ms)
{
    for (uint32_t slept_ms = 0; slept_ms < period_ms; slept_ms += SCAVENGER_LOOK_MS) {
        uint32_t left_ms = period_ms - slept_ms;
        if (hak__os_is_last_thread()) {
            return false;
        }
        hak__os_sleep_ms(left_ms < SCAVENGER_LOOK_MS ? left_ms : SCAVENGER_LOOK_MS);
    }
    return true;
}

static void *scavenger_run(void *argument)
{
    uint32_t usual_ms = hak__knobs.purge_delay_ms / 2;
    usual_ms = usual_ms < SCAVENGER_PERIOD_MS_MIN ? SCAVENGER_PERIOD_MS_MIN : usual_ms;
    usual_ms = usual_ms > SCAVENGER_PERIOD_MS_MAX ? SCAVENGER_PERIOD_MS_MAX : usual_ms;
    char path[PRESSURE_PATH_SIZE] = "";
    pthread_detach(pthread_self());
    hak__os_name_thread("hakmem");
    /* The program's descriptors are not to be touched: one that is free for a moment only would
     * change which one its next open returns. */
    if (hak__os_leave_descriptors()) {
        hak__os_pressure_path("/proc/self/cgroup", "/sys/fs/cgroup", path, sizeof path);
    }
    bool watches = path[0] != '\0';
    uint64_t before_us = watches ? hak__os_pressure_stalled_us(path) : 0;
    for (uint32_t period_ms = usual_ms; scavenger_sleep(period_ms);) {
        uint64_t stalled_us = watches ? hak__os_pressure_stalled_us(path) : 0;
        bool pressed = (stalled_us - before_us) * PRESSURE_SHARE > (uint64_t)period_ms * 1000;
        before_us = stalled_us;
        hak__heap_set_pressed(pressed);
        hak__heap_scavenge();
        period_ms = pressed && usual_ms > SCAVENGER_LOOK_MS ? SCAVENGER_LOOK_MS : usual_ms;
    }
    return argument;
}

static int scavenger_create(const pthread_attr_t *attributes)
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all); /* the program's signals are for its own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, attributes, scavenger_run, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static int scavenger_create_small(void)
{
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    if (error == 0) {
        pthread_attr_setstacksize(&attributes, SCAVENGER_STACK_SIZE);
        error = scavenger_create(&attributes);
        pthread_attr_destroy(&attributes);
    }
    return error;
}

const char *hak__scavenger_start(void)
{
    if (!hak__settings.scavenger) {
        return NULL;
    }
    if (hak__knobs.purge_delay_ms == UINT32_MAX) {
        return "HAKMEM_SCAVENGER does nothing: HAKMEM_PURGE_DELAY_MS is never";
    }
    int error = scavenger_create_small();
    if (error == EINVAL) {
        error = scavenger_create(NULL);
    }
    return error == 0 ? NULL : "HAKMEM_SCAVENGER: its thread cannot be started";
}
