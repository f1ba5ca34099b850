/* SPDX-License-Identifier: MIT */
/* test_scopes.c: scopes of a long-lived site (hakmem/site.h) in several threads, whose objects
 * other threads free (fork: unit/test_apart). No block is damaged, and under
 * ThreadSanitizer no access races. The site is long-lived from the start: the learner's file of an
 * earlier run, which the test writes, says so.
 *
 * ctest: not-again no-qemu
 */
#include "../child.h"
#include "../report.h"
#include "threads.h"

#include <hakmem/site.h>

enum {
    WORKERS = 3,
    SLOTS = 64,
    ROUNDS = SUPPORT_SLOW ? 3000 : 20000,
    LIVES = 4 /* threads, one after the other, for each worker */
};

static struct parcel *shared_slots[SLOTS];

/* Frees what some thread left in the slot, and leaves `parcel` there. */
static void exchange(size_t slot, struct parcel *parcel)
{
    struct parcel *before = __atomic_exchange_n(&shared_slots[slot], parcel, __ATOMIC_ACQ_REL);
    parcel_free(before);
}

/* A long-lived object for the slot, short-lived ones of all kinds around it. */
static void work_once(uint64_t *random)
{
    size_t slot = random_below(random, SLOTS);
    struct parcel *brief = parcel_create(1 + random_below(random, 2000), *random);
    {
        HAK_SITE_SCOPE("kept");
        struct parcel *kept = parcel_create(1 + random_below(random, 2000), *random);
        {
            HAK_SITE_SCOPE("brief");
            parcel_free(parcel_create(1 + random_below(random, 100 * KIB), *random));
        }
        exchange(slot, kept);
    }
    parcel_free(brief);
}

/* The last scope is never left. */
static void *live(void *argument)
{
    uint64_t random = (uintptr_t)argument;
    for (size_t round = 0; round < ROUNDS / LIVES; round++) {
        work_once(&random);
    }
    hak_site_enter(HAK_SITE("kept"));
    exchange(random_below(&random, SLOTS), parcel_create(100, random));
    return NULL;
}

static void *work(void *argument)
{
    for (uintptr_t i = 0; i < LIVES; i++) {
        thread_join(thread_start(live, (void *)(LIVES * (uintptr_t)argument + i)));
    }
    return NULL;
}

/* Threads that the report lists, of those that use the arena for long-lived objects. */
static size_t count_apart(void)
{
    size_t count = 0;
    for (const char *at = report_now()->text; (at = strstr(at, "\"apart\": 1")) != NULL; at++) {
        count++;
    }
    return count;
}

CHILD(scopes)
{
    pthread_t workers[WORKERS];
    uint64_t random = 42;
    work_once(&random);
    REQUIRE_SIZE(count_apart(), ==, 1); /* else the file was not taken */
    REQUIRE_SIZE(report_number("threads_count"), ==, 1);
    threads_start(workers, WORKERS, work, 0);
    for (size_t i = 0; i < ROUNDS / LIVES; i++) {
        work_once(&random);
    }
    JOIN_ALL(workers, WORKERS);
    for (size_t slot = 0; slot < SLOTS; slot++) {
        exchange(slot, NULL);
    }
    REQUIRE_SIZE(count_apart(), ==, 1);
    REQUIRE_SIZE(report_number("threads_count"), ==, 1);
}

/* The value of an option as the file has it: in bytes, or "never". */
static void put_option(FILE *file, const char *name)
{
    char quoted[64], *end;
    snprintf(quoted, sizeof quoted, "\"%s\": \"", name);
    const char *at = strstr(report_now()->text, quoted);
    REQUIRE(at != NULL);
    at += strlen(quoted);
    unsigned long long value = strtoull(at, &end, 10);
    if (end == at) {
        fprintf(file, " %s=never", name);
    } else {
        unsigned shift = *end == 'k' ? 10 : *end == 'm' ? 20 : *end == 'g' ? 30 : 0;
        fprintf(file, " %s=%llu", name, value << shift);
    }
}

static void put_point(FILE *file, const char *name)
{
    fputs(name, file);
    put_option(file, "purge_delay_ms");
    put_option(file, "bin_bytes");
    put_option(file, "cache_bytes");
    put_option(file, "huge_cache_bytes");
    put_option(file, "huge_threshold");
    fputs("\n", file);
}

/* What an earlier run of this program would have written (src/learn/learn_file.c). */
static void write_state(const char *path)
{
    char text[2048];
    FILE *file = fmemopen(text, sizeof text, "w");
    REQUIRE(file != NULL);
    fputs("hakmem-learn 1\nprogram exe\nruns 1\n", file); /* /proc/self/exe: child_exec */
    fputs("memory_percent 100\n", file);
    put_point(file, "options");
    put_point(file, "champion");
    fputs("apart kept\n", file);
    REQUIRE(fclose(file) == 0);
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (const char *at = text; *at != '\0'; at++) {
        hash = (hash ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
    }
    file = fopen(path, "w");
    REQUIRE(file != NULL);
    fprintf(file, "%schecksum %llu\n", text, (unsigned long long)hash);
    REQUIRE(fclose(file) == 0);
}

TEST(scopes)
{
    char variable[] = "HAKMEM_LEARN=/tmp/hakmem-scopes-XXXXXX", *path = strchr(variable, '/');
    struct child_end end;
    int descriptor = mkstemp(path);
    REQUIRE(descriptor >= 0);
    close(descriptor);
    write_state(path);
    child_exec("scopes", child_put, variable, &end);
    unlink(path);
    REQUIRE_EXIT(&end, "^$");
}

TESTS(NULL)
