/* SPDX-License-Identifier: MIT */
/* test_control.c: threads set options, read figures, trim and list names while others allocate, and
 * the process forks meanwhile. No block is damaged, no call fails, and under ThreadSanitizer no
 * access races.
 *
 * ctest: no-qemu
 */
#include "../child.h"
#include "hakmem/control.h"
#include "replace.h"

enum { WORKERS = 3, SETTERS = 2, ROUNDS = SUPPORT_SLOW ? 60 : 300, FORKS = 20 };

static const char *const settings[][2] = {
    {"purge_delay_ms", "1"},
    {"bin_bytes", "4k"},
    {"cache_bytes", "64k"},
    {"cache_bytes_total", "1m"},
    {"whale_cache_bytes", "0"},
    {"huge_threshold", "never"},
    {"limit", "1m"},
    {"limit_hard", "4t"},
    {"abort_on_foreign", "1"},
    {"keep_deepbind", "1"},
    {"purge_delay_ms", "never"},
    {"bin_bytes", "512k"},
    {"cache_bytes", "32m"},
    {"cache_bytes_total", "1g"},
    {"limit", "never"},
    {"whale_cache_bytes", "never"},
};

static void *change(void *argument)
{
    static const char *const names[] = {"trim",          "purge",       "counters.malloc_slow",
                                        "options.limit", "reset_peaks", "totals.bytes_mapped"};
    uint64_t random = (uintptr_t)argument;
    for (size_t i = 0; i < ROUNDS; i++) {
        const char *const *setting = settings[random_below(&random, COUNT_OF(settings))];
        char value[32];
        REQUIRE(hak_option_set(setting[0], setting[1]) == 0);
        REQUIRE(hak_option_get(setting[0], value, sizeof value) == 0 && value[0] != '\0');
        REQUIRE(hak_control(names[random_below(&random, COUNT_OF(names))], NULL, value,
                            sizeof value) == 0);
    }
    char *list = support_map(MIB);
    REQUIRE(hak_control("list", NULL, list, MIB) == 0 && list[0] != '\0');
    munmap(list, MIB);
    return NULL;
}

static void in_child(void *argument)
{
    REQUIRE(hak_option_set("limit", "2t") == 0);
    REQUIRE(hak_option_set("bin_bytes", "8k") == 0);
    REQUIRE(hak_control("trim", NULL, NULL, 0) == 0);
    void *block = hak_malloc(100);
    REQUIRE(block != NULL);
    hak_free(block);
}

TEST(options_beside_allocations)
{
    pthread_t workers[WORKERS], setters[SETTERS];
    for (size_t i = 0; i < WORKERS; i++) {
        workers[i] = thread_start(replace, (void *)(uintptr_t)(i + 1));
    }
    for (size_t i = 0; i < SETTERS; i++) {
        setters[i] = thread_start(change, (void *)(uintptr_t)(i + 100));
    }
    for (size_t i = 0; i < FORKS && !SUPPORT_SANITIZED; i++) {
        REQUIRE_LIFE(in_child, NULL, NULL);
    }
    JOIN_ALL(setters, SETTERS);
    __atomic_store_n(&shared_stop, 1, __ATOMIC_RELAXED);
    JOIN_ALL(workers, WORKERS);
}

TESTS(NULL)
