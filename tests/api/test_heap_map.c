/* SPDX-License-Identifier: MIT */
/* test_heap_map.c: hak_heap_map: its figures are those of hak_stats_get, at rest; known blocks
 * stand where they are; it is whole beside running threads, in fork's child, and with a sink that
 * allocates. Whether a map agrees with itself, the reader of `./hakmem heap` says. */
#include "../threads/threads.h"

#include <sys/wait.h>

enum { MAP_MAX = 8 << 20, SLICE = 32 << 10 };

struct map {
    char *text;
    size_t length;
    bool allocates; /* the sink does */
};

static void take(void *argument, const char *text, size_t size)
{
    struct map *map = argument;
    REQUIRE_SIZE(map->length + size, <, MAP_MAX);
    memcpy(map->text + map->length, text, size);
    map->length += size;
    for (size_t i = 0; map->allocates && i < COUNT_OF(tier_sizes); i++) {
        void *block = hak_malloc(tier_sizes[i]);
        REQUIRE(block != NULL);
        hak_free(block);
    }
}

static struct map map_read(bool allocates)
{
    struct map map = {support_map(MAP_MAX), 0, allocates};
    errno = ERRNO_UNTOUCHED;
    hak_heap_map(take, &map);
    REQUIRE(errno == ERRNO_UNTOUCHED);
    REQUIRE(strncmp(map.text, "{\"heap_map\": {\"version\": 1, ", 28) == 0);
    REQUIRE(strcmp(map.text + map.length - 3, "]}\n") == 0);
    return map;
}

/* qemu-user does not start programs. */
static void map_check(const struct map *map)
{
    FILE *reader = SUPPORT_EMULATED
                       ? NULL
                       : popen("PYTHONPATH=${TEST_ROOT:-.}/python exec python3 -B -c 'import sys; "
                               "from hakmem.look import heap_map; "
                               "heap_map.from_text(sys.stdin.read(), \"the map\")'",
                               "w");
    if (reader != NULL) {
        REQUIRE(fwrite(map->text, 1, map->length, reader) == map->length);
        REQUIRE(pclose(reader) == 0);
    }
}

static void map_free(struct map *map)
{
    munmap(map->text, MAP_MAX);
}

/* The number after the next "key": from `at` on. */
static size_t number_after(const char *at, const char *key)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    at = at == NULL ? NULL : strstr(at, quoted);
    if (at == NULL) {
        support_fail("the map lacks the key %s\n", quoted);
    }
    return strtoull(at + strlen(quoted), NULL, 10);
}

/* A number of the record that begins with these words. */
static size_t number_of(const struct map *map, const char *key, const char *format, ...)
{
    char words[64];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    return number_after(strstr(map->text, words), key);
}

static size_t slices_of(const struct map *map, const char *kind)
{
    return number_of(map, "count", "{\"kind\": \"%s\"", kind);
}

/* Whales in use, and the bytes of those that are kept or not. */
static size_t whales_of(const struct map *map, size_t bytes[2])
{
    size_t count = 0, last = 0;
    const char *at = strstr(map->text, "\"whales\": [");
    while ((at = strstr(at, "{\"address\": ")) != NULL) {
        size_t address = number_after(at, "address"), kept = number_after(at, "kept");
        REQUIRE(address > last && kept <= 1);
        REQUIRE_SIZE(number_after(at, "resident_bytes"), <=, number_after(at, "bytes"));
        bytes[kept] += number_after(at, "bytes");
        count += kept == 0;
        last = address;
        at++;
    }
    return count;
}

/* What must be true at rest. */
static void check_stats(const struct map *map)
{
    struct hak_stats stats = stats_now();
    const char *classes = strstr(map->text, "\"classes\": ["),
               *end = strstr(classes, "\"whales\": [");
    size_t spans = number_after(map->text, "spans"), superslabs = 0, whale_bytes[2] = {0, 0};
    size_t whales = whales_of(map, whale_bytes), objects = spans + whales, bytes = whale_bytes[0];
    size_t cached = slices_of(map, "kept_spans") * SLICE + whale_bytes[1];
    for (const char *at = map->text; (at = strstr(at, "{\"index\": ")) != NULL && at < classes;
         at++) {
        superslabs++;
    }
    for (const char *at = classes; (at = strstr(at, "{\"class\": ")) != NULL && at < end; at++) {
        size_t object_bytes = number_after(at, "object_bytes");
        objects += number_after(at, "in_use");
        bytes += number_after(at, "in_use") * object_bytes;
        cached += number_after(at, "cached") * object_bytes;
    }
    REQUIRE_SIZE(objects, ==, stats.objects_in_use_count);
    REQUIRE_SIZE(number_after(map->text, "objects_in_use"), ==, stats.objects_in_use_count);
    REQUIRE_SIZE(number_after(map->text, "bytes_in_use"), ==, stats.bytes_in_use);
    REQUIRE_SIZE(number_after(map->text, "process"), ==, (size_t)getpid());
    REQUIRE_SIZE(whales, ==, stats.whales_count);
    REQUIRE_SIZE(superslabs, ==, stats.superslabs_count);
    REQUIRE_SIZE(cached, ==, stats.bytes_cached);
    REQUIRE_SIZE((slices_of(map, "free_dirty") + slices_of(map, "free_aged")) * SLICE, ==,
                 stats.bytes_free_dirty);
    /* Blocks of spans start up to 63 cache lines behind their first slice. */
    size_t span_bytes = slices_of(map, "spans") * SLICE;
    REQUIRE_SIZE(stats.bytes_in_use, <=, bytes + span_bytes);
    REQUIRE_SIZE(stats.bytes_in_use + spans * 63 * 64, >=, bytes + span_bytes);
}

TEST(known_blocks)
{
    enum { COUNT = 5000 };
    static void *blocks[COUNT];
    size_t bytes[2] = {0, 0};
    support_small_pages();
    hak_free(hak_malloc(96)); /* the class has a record */
    struct map before = map_read(false);
    check_stats(&before);
    size_t in_use = number_of(&before, "in_use", "{\"class\": 6, "),
           whales = whales_of(&before, bytes);
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = hak_malloc(96);
        memset(blocks[i], 1, 96);
    }
    char *span = hak_malloc(300 * KIB), *whale = hak_malloc(5 * MIB), *kept = hak_malloc(9 * MIB);
    memset(span, 1, 300 * KIB);
    memset(whale, 1, 3 * MIB);
    memset(kept, 1, 9 * MIB);
    struct map with = map_read(false);
    check_stats(&with);
    map_check(&with);
    assert_int_equal(number_of(&with, "object_bytes", "{\"class\": 6, "), 96);
    assert_int_equal(number_of(&with, "in_use", "{\"class\": 6, "), in_use + COUNT);
    assert_true(number_of(&with, "resident_bytes", "{\"class\": 6, ") >= COUNT * 96);
    assert_int_equal(number_after(with.text, "spans"), number_after(before.text, "spans") + 1);
    assert_int_equal(whales_of(&with, bytes), whales + 2);
    size_t address = (size_t)whale;
    assert_int_equal(number_of(&with, "bytes", "{\"address\": %zu", address), 5 * MIB);
    assert_in_range(number_of(&with, "resident_bytes", "{\"address\": %zu", address), 3 * MIB,
                    3 * MIB + 128 * KIB);
    hak_free(kept);
    hak_free(span);
    for (size_t i = 0; i < COUNT; i += 2) {
        hak_free(blocks[i]);
    }
    struct map after = map_read(false);
    check_stats(&after);
    map_check(&after);
    assert_int_equal(number_of(&after, "in_use", "{\"class\": 6, "), in_use + COUNT / 2);
    assert_int_equal(number_after(after.text, "spans"), number_after(before.text, "spans"));
    assert_int_equal(whales_of(&after, bytes), whales + 1);
    for (size_t i = 1; i < COUNT; i += 2) {
        hak_free(blocks[i]);
    }
    hak_free(whale);
    map_free(&before);
    map_free(&with);
    map_free(&after);
}

enum { THREADS = 4, SLOTS = 500 };
static bool stopped;
static void *slots[THREADS][SLOTS];

static void *run(void *argument)
{
    void **own = argument;
    uint64_t random = (uintptr_t)argument;
    while (!__atomic_load_n(&stopped, __ATOMIC_RELAXED)) {
        void **slot = &own[random_below(&random, SLOTS)];
        hak_free(*slot);
        *slot = hak_malloc(random_size(&random, random_below(&random, 50) == 0 ? 23 : 12));
        REQUIRE(*slot != NULL);
    }
    return NULL;
}

static void run_child(void)
{
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        void *block = hak_malloc(100);
        struct map map = map_read(true);
        REQUIRE(number_after(map.text, "objects_in_use") > 0);
        hak_free(block);
        _exit(0);
    }
    int status;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(beside_threads_and_forks)
{
    pthread_t threads[THREADS];
    stopped = false;
    for (size_t i = 0; i < THREADS; i++) {
        threads[i] = thread_start(run, slots[i]);
    }
    for (size_t i = 0; i < (SUPPORT_SLOW ? 10 : 40); i++) {
        struct map map = map_read(i % 2 == 0);
        if (i % 20 == 0) {
            map_check(&map);
        }
        map_free(&map);
        if (!SUPPORT_SANITIZED) {
            run_child();
        }
    }
    __atomic_store_n(&stopped, true, __ATOMIC_RELAXED);
    JOIN_ALL(threads, THREADS);
    struct map map = map_read(false);
    check_stats(&map);
    map_check(&map);
    map_free(&map);
    for (size_t i = 0; i < THREADS; i++) {
        FREE_ALL(slots[i], SLOTS);
    }
}

TESTS(NULL)
