/* test_learning.c: the learner turns the knobs while threads allocate (HAKMEM_LEARN). No block is
 * damaged, and under ThreadSanitizer no access races. The first change that is tried is one of
 * bin_bytes, which reports show.
 *
 * ctest: no-qemu
 */
#include "../child.h"
#include "../report.h"
#include "replace.h"

enum { WORKERS = 3, TURNS = 4 };

/* The value of the option as the report has it now. */
static void read_option(const char *name, char value[32])
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", name);
    const char *at = strstr(report_now()->text, quoted);
    REQUIRE(at != NULL);
    snprintf(value, 32, "%.*s", (int)strcspn(at + strlen(quoted), ",}"), at + strlen(quoted));
}

static void allocate_and_learn(void *argument)
{
    pthread_t workers[WORKERS];
    char before[32], now[32];
    size_t turns = 0;
    (void)argument;
    for (size_t i = 0; i < WORKERS; i++) {
        workers[i] = thread_start(replace, (void *)(uintptr_t)(i + 1));
    }
    for (read_option("bin_bytes", before); turns < TURNS; usleep(10000)) {
        read_option("bin_bytes", now);
        turns += strcmp(now, before) != 0;
        memcpy(before, now, sizeof before);
    }
    __atomic_store_n(&shared_stop, 1, __ATOMIC_RELAXED);
    for (size_t i = 0; i < WORKERS; i++) {
        thread_join(workers[i]);
    }
    fprintf(stderr, "bin_bytes was turned %zu times\n", turns);
}

static void set_learn(void *argument)
{
    (void)argument;
    REQUIRE(setenv("HAKMEM_LEARN", "on", 1) == 0);
}

static void test_learning(void **state)
{
    struct child_end end;
    (void)state;
    child_exec("learn", set_learn, NULL, &end);
    REQUIRE_EXIT(&end, "was turned");
}

int main(int argc, char **arguments)
{
    const struct child_case cases[] = {{"learn", allocate_and_learn, NULL}};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_learning),
    };
    child_main(argc, arguments, cases, COUNT_OF(cases));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
