/* SPDX-License-Identifier: MIT */
/* test_start.c: each call fails in turn in a process that has never allocated; and in the library's
 * first and last moments, of a program that was told to report.
 * ctest: no-qemu */
#define FAULT_HIDES_VDSO true /* the clock is a system call, too */
/* So that how often it is asked does not depend on how long the work takes. */
#define FAULT_CLOCK_STANDS true
#define FAULT_CLOCK_FAILS true
#include "scenario.h"

/* Times depend on nothing but what is done; the library has not begun. */
static void prepare_nothing(void)
{
    hak__knobs.purge_delay_ms = UINT32_MAX;
}

/* The first of each size, from the first on. */
static void play_first(void)
{
    REQUIRE(hak__window.shared_limit == 0);
    for (size_t i = 0; i < COUNT_OF(tier_sizes); i++) {
        try_malloc(i, tier_sizes[i]);
    }
    for (size_t i = 0; i < COUNT_OF(tier_sizes); i++) {
        drop(i);
        try_calloc(i, tier_sizes[i]);
    }
    for (size_t i = 0; i < COUNT_OF(tier_sizes); i++) {
        try_realloc(i, tier_sizes[i] + 100);
        drop(i);
    }
}

static void play_first_huge(void)
{
    try_calloc(0, 3 * MIB);
    try_aligned(1, 8 * MIB, 5 * MIB);
    try_malloc(2, 3);
    drop_all();
}

/* Questions before the first allocation. */
static void play_first_questions(void)
{
    errno = ERRNO_UNTOUCHED;
    hak_free(NULL);
    REQUIRE(!hak_owns(held_blocks) && hak_usable_size(NULL) == 0);
    REQUIRE(stats_now().objects_in_use_count == 0);
    hak_trim(0);
    REQUIRE(errno == ERRNO_UNTOUCHED);
    try_malloc(0, 100);
    drop(0);
}

static const struct scenario scenarios[] = {
    {"first allocations", prepare_nothing, play_first, false},
    {"first huge block", prepare_nothing, play_first_huge, false},
    {"first questions", prepare_nothing, play_first_questions, false},
};

TEST(first_allocations)
{
    scenario_require_all(scenarios, COUNT_OF(scenarios));
}

/* --- the first and last moments --- */

#define PLAN_VARIABLE "HAKMEM_TEST_PLAN"

/* Right after the library's own constructor (101), which allocates nothing: the plan that the
 * environment names. */
__attribute__((constructor(102))) static void arm_from_environment(void);

static void arm_from_environment(void)
{
    const char *text = getenv(PLAN_VARIABLE);
    unsigned calls, nth, on;
    int error;
    if (text != NULL && sscanf(text, "%u %u %d %u", &calls, &nth, &error, &on) == 4) {
        fault_arm((struct fault_plan){calls, nth, error, on != 0, 0}, 0);
    }
}

CHILD(report)
{
    __real_close(OS_KEPT_MIN); /* the report's file: it is opened again */
    for (size_t i = 0; i < COUNT_OF(tier_sizes); i++) {
        try_malloc(i, tier_sizes[i]);
        drop(i);
    }
    exit(0); /* with the library's destructor, which reports; child_main's end is without */
}

struct report {
    struct fault_plan plan;
    bool to_file;
    const char *said; /* NULL: nothing */
};

static void exec_setup(void *argument)
{
    const struct report *report = argument;
    char text[64];
    snprintf(text, sizeof text, "%u %u %d %u", report->plan.calls, report->plan.nth,
             report->plan.error, (unsigned)report->plan.on);
    setenv(PLAN_VARIABLE, text, 1);
    setenv("HAKMEM_STATS", "json", 1);
    if (report->to_file) {
        setenv("HAKMEM_STATS_FILE", "/dev/null", 1);
    }
}

/* It ends well, and within its time; what it says may be cut. */
TEST(reports_at_exit)
{
    static const enum fault_call calls[] = {FAULT_MMAP,    FAULT_MMAP_AT,     FAULT_MUNMAP,
                                            FAULT_OPEN,    FAULT_CLOSE,       FAULT_WRITE,
                                            FAULT_SYSINFO, FAULT_GETAFFINITY, FAULT_CLOCK};
    struct child_end end;
    for (size_t i = 0; i < COUNT_OF(calls); i++) {
        const int *errors = fault_kinds[calls[i]].errors;
        for (size_t j = 0; j < FAULT_ERRORS_MAX && errors[j] != 0; j++) {
            for (uint32_t way = 0; way < 12; way++) {
                struct fault_plan plan = {FAULT_SET(calls[i]), 1 + way / 4, errors[j], way % 2, 0};
                struct report report = {plan, way / 2 % 2, NULL};
                child_exec("report", exec_setup, &report, &end);
                if (!WIFEXITED(end.status) || WEXITSTATUS(end.status) != 0) {
                    fail_msg("calls %#x, number %u, errno %d: status %#x and <%s>", plan.calls,
                             plan.nth, plan.error, (unsigned)end.status, end.text);
                }
            }
        }
    }
}

/* What went wrong shows: the test above does make calls fail. */
TEST(reports_are_cut)
{
    static struct report reports[] = {
        {{0, 0, 0, false, 0}, false, "\"hakmem\""},
        {{FAULT_SET(FAULT_WRITE), 1, EIO, true, 0}, false, NULL},
        {{FAULT_SET(FAULT_WRITE), 1, ENOSPC, false, 0},
         true,
         "^hakmem: cannot write the report to /dev/null: no space left$"},
        {{FAULT_SET(FAULT_OPEN), 1, EMFILE, true, 0},
         true,
         "^hakmem: cannot write the report to /dev/null: too many open files$"},
    };
    for (size_t i = 0; i < COUNT_OF(reports); i++) {
        struct child_end end;
        child_exec("report", exec_setup, &reports[i], &end);
        REQUIRE_EXIT(&end, reports[i].said);
    }
}

TESTS(NULL)
