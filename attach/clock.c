/* SPDX-License-Identifier: MIT */
/* clock.c: time, the alarm that ends waits, and the signals that end the tool: see attach.h. */
#include "attach.h"

#include <signal.h>
#include <sys/time.h>
#include <time.h>

/* How often a wait looks at the clock and at signals. Doubled: a thread that does not stop is let
 * go later. */
#define ALARM_US 5000

uint64_t clock_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

void sleep_us(long duration_us)
{
    struct timespec duration = {duration_us / 1000000, duration_us % 1000000 * 1000};
    nanosleep(&duration, NULL);
}

static void alarm_rings(int signal)
{
    (void)signal; /* ends the wait */
}

/* It rings again and again, also before a wait: a single time may come just before the wait. */
static void set_alarm(suseconds_t every_us)
{
    struct itimerval alarm = {{0, every_us}, {0, every_us}};
    setitimer(ITIMER_REAL, &alarm, NULL);
}

void alarm_begin(void)
{
    struct sigaction action = {.sa_handler = alarm_rings};
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    sigaction(SIGALRM, &action, NULL);
    sigprocmask(SIG_UNBLOCK, &alarm, NULL);
    set_alarm(ALARM_US);
}

void alarm_end(void)
{
    set_alarm(0);
}

bool is_told_to_end(void)
{
    sigset_t pending;
    return sigpending(&pending) == 0 &&
           (sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1 ||
            sigismember(&pending, SIGHUP) == 1 || sigismember(&pending, SIGQUIT) == 1);
}
