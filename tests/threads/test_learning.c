/* test_learning.c: the learner turns the knobs while threads allocate (HAKMEM_LEARN). No block is
 * damaged, and under ThreadSanitizer no access races. The first change that is tried is one of
 * bin_bytes, which reports show.
 *
 * ctest: no-qemu
 */
#include "../child.h"
#include "../report.h"
#include "threads.h"

enum { WORKERS = 3, SLOTS = 256, TURNS = 4 };

static int shared_stop;

/* Replaces blocks of all tiers, each with a mark at its ends. */
static void *replace(void *argument)
{
    unsigned char *blocks[SLOTS] = {NULL};
    size_t sizes[SLOTS] = {0};
    uint64_t random = (uintptr_t)argument;
    for (uint32_t i = 0; !__atomic_load_n(&shared_stop, __ATOMIC_RELAXED); i++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        size_t slot = (size_t)(random >> 33) % SLOTS;
        if (blocks[slot] != NULL) {
            REQUIRE(blocks[slot][0] == (unsigned char)slot);
            REQUIRE(blocks[slot][sizes[slot] - 1] == (unsigned char)slot);
            hak_free(blocks[slot]);
        }
        size_t most = i % 4096 == 0 ? 3 * MIB : i % 64 == 0 ? 200 * KIB : 2 * KIB;
        sizes[slot] = 1 + (size_t)(random >> 20) % most;
        blocks[slot] = hak_malloc(sizes[slot]);
        REQUIRE(blocks[slot] != NULL);
        blocks[slot][0] = blocks[slot][sizes[slot] - 1] = (unsigned char)slot;
    }
    for (size_t slot = 0; slot < SLOTS; slot++) {
        hak_free(blocks[slot]);
    }
    return NULL;
}

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
