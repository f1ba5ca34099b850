/* SPDX-License-Identifier: MIT */
/* test_control.c: threads set options, read figures, trim and list names while others allocate, and
 * the process forks meanwhile; the learner turns the knobs (HAKMEM_LEARN); and blocks are guarded
 * (HAKMEM_GUARD). No block is damaged, no call fails, and under ThreadSanitizer no access races.
 *
 * ctest: no-qemu
 */
#include "../child.h"
#include "../report.h"
#include "hakmem/control.h"
#include "threads.h"

enum { WORKERS = 3, SETTERS = 2, SLOTS = 256, FORKS = 20, TURNS = 4 };
enum { ROUNDS = SUPPORT_SLOW ? 60 : 300 };

static int shared_stop;

/* Replaces blocks of all tiers, each with a mark at its ends. */
static void *replace(void *argument)
{
    unsigned char *blocks[SLOTS] = {NULL};
    size_t sizes[SLOTS] = {0};
    uint64_t random = (uintptr_t)argument;
    for (uint32_t i = 0; !__atomic_load_n(&shared_stop, __ATOMIC_RELAXED); i++) {
        size_t slot = random_below(&random, SLOTS);
        if (blocks[slot] != NULL) {
            REQUIRE(blocks[slot][0] == (unsigned char)slot);
            REQUIRE(blocks[slot][sizes[slot] - 1] == (unsigned char)slot);
            hak_free(blocks[slot]);
        }
        size_t most = i % 4096 == 0 ? 3 * MIB : i % 64 == 0 ? 200 * KIB : 2 * KIB;
        sizes[slot] = 1 + random_below(&random, most);
        blocks[slot] = hak_malloc(sizes[slot]);
        REQUIRE(blocks[slot] != NULL);
        blocks[slot][0] = blocks[slot][sizes[slot] - 1] = (unsigned char)slot;
    }
    FREE_ALL(blocks, SLOTS);
    return NULL;
}

static void replace_beside(void (*body)(void))
{
    pthread_t workers[WORKERS];
    threads_start(workers, WORKERS, replace, 1);
    body();
    __atomic_store_n(&shared_stop, 1, __ATOMIC_RELAXED);
    JOIN_ALL(workers, WORKERS);
}

static const char *const settings[][2] = {{"purge_delay_ms", "1"},
                                          {"bin_bytes", "4k"},
                                          {"cache_bytes", "64k"},
                                          {"cache_bytes_total", "1m"},
                                          {"huge_cache_bytes", "0"},
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
                                          {"huge_cache_bytes", "never"}};

static void *change(void *argument)
{
    static const char *const names[] = {"trim",          "purge",       "counters.malloc_slow",
                                        "options.limit", "reset_peaks", "totals.bytes_mapped",
                                        "profile.start", "profile.stop"};
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

static void change_options(void)
{
    pthread_t setters[SETTERS];
    threads_start(setters, SETTERS, change, 100);
    for (size_t i = 0; i < FORKS && !SUPPORT_SANITIZED; i++) {
        REQUIRE_LIFE(in_child, NULL, NULL);
    }
    JOIN_ALL(setters, SETTERS);
}

TEST(options_beside_allocations)
{
    replace_beside(change_options);
}

/* What the report has of the knobs that the learner turns. */
static void read_knobs(char knobs[1000])
{
    static const char *const names[] = {"purge_delay_ms", "bin_bytes", "cache_bytes",
                                        "huge_cache_bytes", "huge_threshold"};
    size_t length = 0;
    const char *text = report_now()->text;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char quoted[64];
        snprintf(quoted, sizeof quoted, "\"%s\":", names[i]);
        const char *at = strstr(text, quoted);
        REQUIRE(at != NULL);
        length += (size_t)snprintf(knobs + length, 100, "%.*s\n", (int)strcspn(at, ",}"), at);
    }
}

static void wait_for_turns(void)
{
    char before[1000], now[1000];
    read_knobs(before);
    for (size_t turns = 0; turns < TURNS; usleep(10000)) {
        read_knobs(now);
        turns += strcmp(now, before) != 0;
        strcpy(before, now);
    }
}

CHILD(learn)
{
    replace_beside(wait_for_turns);
}

TEST(learning)
{
    REQUIRE_CHILD("learn", "HAKMEM_LEARN=on", "^");
}

/* Threads free the guarded blocks of other threads, also of ended ones, and read what those wrote.
 */
static struct parcel *shared_parcels[SLOTS];

static void *exchange(void *argument)
{
    uint64_t random = (uintptr_t)argument;
    for (size_t i = 0; i < 10 * ROUNDS; i++) {
        struct parcel *parcel = parcel_create(random_below(&random, 250), random);
        struct parcel **place = &shared_parcels[random_below(&random, SLOTS)];
        parcel_free(__atomic_exchange_n(place, parcel, __ATOMIC_ACQ_REL));
    }
    return NULL;
}

CHILD(guard)
{
    /* The first block that is to be guarded maps the slots. Threads that come meanwhile go on
     * without. */
    for (size_t i = 0; i < 10; i++) {
        hak_free(hide(hak_malloc(100)));
    }
    threads_run(WORKERS, exchange, 1);
    FREE_ALL(shared_parcels, SLOTS);
    size_t guarded = report_number("guarded");
    REQUIRE_SIZE(guarded, >=, 10 * ROUNDS);
    REQUIRE_SIZE(guarded, <=, WORKERS * 10 * ROUNDS + 1000);
}

TEST(guarded_blocks)
{
    REQUIRE_CHILD("guard", "HAKMEM_GUARD=1", "^");
}

TESTS(NULL)
