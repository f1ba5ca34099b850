/* SPDX-License-Identifier: MIT */
/* test_learning.c: the learner turns the knobs while threads allocate (HAKMEM_LEARN). No block is
 * damaged, and under ThreadSanitizer no access races. Reports show the knobs.
 *
 * ctest: no-qemu
 */
#include "../child.h"
#include "../report.h"
#include "replace.h"

enum { WORKERS = 3, TURNS = 4 };

/* The values of all knobs that the learner turns, as the report has them now. */
struct knob_values {
    char at[5][32];
};

static struct knob_values read_knobs(void)
{
    static const char *const names[] = {"\"purge_delay_ms\":", "\"bin_bytes\":", "\"cache_bytes\":",
                                        "\"whale_cache_bytes\":", "\"huge_threshold\":"};
    struct knob_values values;
    memset(&values, 0, sizeof values);
    const char *text = report_now()->text;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        const char *at = strstr(text, names[i]);
        REQUIRE(at != NULL);
        at += strlen(names[i]);
        snprintf(values.at[i], sizeof values.at[i], "%.*s", (int)strcspn(at, ",}"), at);
    }
    return values;
}

static void allocate_and_learn(void *argument)
{
    pthread_t workers[WORKERS];
    size_t turns = 0;
    for (size_t i = 0; i < WORKERS; i++) {
        workers[i] = thread_start(replace, (void *)(uintptr_t)(i + 1));
    }
    for (struct knob_values before = read_knobs(); turns < TURNS; usleep(10000)) {
        struct knob_values now = read_knobs();
        turns += memcmp(&now, &before, sizeof now) != 0;
        before = now;
    }
    __atomic_store_n(&shared_stop, 1, __ATOMIC_RELAXED);
    JOIN_ALL(workers, WORKERS);
    fprintf(stderr, "the knobs were turned %zu times\n", turns);
}

static void set_learn(void *argument)
{
    REQUIRE(setenv("HAKMEM_LEARN", "on", 1) == 0);
}

TEST(learning)
{
    struct child_end end;
    child_exec("learn", set_learn, NULL, &end);
    REQUIRE_EXIT(&end, "were turned");
}

int main(int argc, char **arguments)
{
    const struct child_case cases[] = {{"learn", allocate_and_learn, NULL}};
    child_main(argc, arguments, cases, COUNT_OF(cases));
    return tests_run(NULL, NULL);
}
