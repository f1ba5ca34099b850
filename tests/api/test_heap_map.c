/* SPDX-License-Identifier: MIT */
/* test_heap_map.c: hak_heap_map: its figures are those of hak_stats_get, at rest; known blocks
 * stand where they are; it is whole beside running threads, in fork's child, and with a sink that
 * allocates. Whether a map agrees with itself, the reader of `./hakmem heap` says. */
#include "../report.h"
#include "../threads/threads.h"

enum { SLICE = 32 << 10 };

static struct collected first, second, third;

static void take(void *into, const char *text, size_t size)
{
    collect(into, text, size);
    for (size_t i = 0; i < COUNT_OF(tier_sizes); i++) { /* a sink may allocate */
        void *block = hak_malloc(tier_sizes[i]);
        REQUIRE(block != NULL);
        hak_free(block);
    }
}

static const char *map_read(struct collected *map, hak_report_sink *sink)
{
    map->length = 0;
    errno = ERRNO_UNTOUCHED;
    hak_heap_map(sink, map);
    REQUIRE(errno == ERRNO_UNTOUCHED);
    REQUIRE(strncmp(map->text, "{\"heap_map\": {\"version\": 1, ", 28) == 0);
    REQUIRE(strcmp(map->text + map->length - 3, "]}\n") == 0);
    return map->text;
}

/* qemu-user does not start programs. */
static void map_check(const struct collected *map)
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

/* A number of the record that begins with these words. */
static size_t number_of(const char *map, const char *key, const char *format, ...)
{
    char words[64];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    const char *record = strstr(map, words);
    REQUIRE(record != NULL);
    return report_number_at(record, key);
}

/* What the strings of the superslabs say; by class: objects in use or in thread caches, and
 * resident bytes; by letter: slices. */
static struct {
    size_t superslabs, spans, slices[128], out[256], resident[256];
} sums;

static size_t class_number(const char *map, unsigned long of_class, const char *key)
{
    return number_of(map, key, "{\"class\": %lu, ", of_class);
}

static char *number_behind(const char *at, unsigned long *number)
{
    char *end;
    *number = strtoul(at + 1, &end, 10);
    REQUIRE(end > at + 1);
    return end;
}

static void count_words(const char *map, const char *at, const char *digits)
{
    unsigned long of_class = 0, number, free, times;
    size_t slice = 0;
    bool alike = digits[1] == '"';
    while (*at != '"') {
        unsigned char letter = (unsigned char)*at;
        at = number_behind(at, &number);
        if (letter == 'z') {
            of_class = number;
        } else if (letter == 'u') {
            times = 1;
            at = *at == 'f' ? number_behind(at, &free) : at;
            at = *at == 'x' ? number_behind(at, &times) : at;
            sums.out[of_class] += times * number;
            for (size_t end = slice + times * class_number(map, of_class, "slab_slices");
                 slice < end; slice++) {
                sums.resident[of_class] += (size_t)(digits[alike ? 0 : slice] - '0') * SLICE / 8;
            }
        } else if (letter != 'h') {
            sums.slices[letter] += number;
            sums.spans += letter == 's';
            slice += number;
        }
    }
}

static void count_all(const char *map)
{
    memset(&sums, 0, sizeof sums);
    const char *end = strstr(map, "\"classes\": [");
    for (const char *at = map; (at = strstr(at, "{\"index\": ")) != NULL && at < end; at++) {
        static const char slices[] = "\"slices\": \"", resident[] = "\"resident\": \"";
        const char *words = strstr(at, slices), *digits = strstr(at, resident);
        REQUIRE(words != NULL && digits != NULL);
        count_words(map, words + sizeof slices - 1, digits + sizeof resident - 1);
        sums.superslabs++;
    }
}

/* Huge blocks in use, and the bytes of those that are kept or not. */
static size_t huge_of(const char *map, size_t bytes[2])
{
    size_t count = 0, last = 0;
    const char *at = strstr(map, "\"huge\": [");
    while ((at = strstr(at, "{\"address\": ")) != NULL) {
        size_t address = report_number_at(at, "address"), kept = report_number_at(at, "kept");
        REQUIRE(address > last && kept <= 1);
        REQUIRE_SIZE(report_number_at(at, "resident_bytes"), <=, report_number_at(at, "bytes"));
        bytes[kept] += report_number_at(at, "bytes");
        count += kept == 0;
        last = address;
        at++;
    }
    return count;
}

/* What must be true at rest. */
static void check_stats(const char *map)
{
    struct hak_stats stats = stats_now();
    const char *classes = strstr(map, "\"classes\": ["), *end = strstr(classes, "\"huge\": [");
    count_all(map);
    size_t huge_bytes[2] = {0, 0}, huge = huge_of(map, huge_bytes);
    size_t objects = sums.spans + huge, bytes = huge_bytes[0];
    size_t cached = sums.slices['k'] * SLICE + huge_bytes[1];
    for (const char *at = classes; (at = strstr(at, "{\"class\": ")) != NULL && at < end; at++) {
        size_t object_bytes = report_number_at(at, "object_bytes");
        size_t of_caches = report_number_at(at, "cached");
        size_t out = sums.out[report_number_at(at, "class")];
        REQUIRE_SIZE(of_caches, <=, out);
        objects += out - of_caches;
        bytes += (out - of_caches) * object_bytes;
        cached += of_caches * object_bytes;
    }
    REQUIRE_SIZE(objects, ==, stats.objects_in_use_count);
    REQUIRE_SIZE(report_number_at(map, "objects_in_use_count"), ==, stats.objects_in_use_count);
    REQUIRE_SIZE(report_number_at(map, "bytes_in_use"), ==, stats.bytes_in_use);
    REQUIRE_SIZE(report_number_at(map, "process"), ==, (size_t)getpid());
    REQUIRE_SIZE(huge, ==, stats.huge_count);
    REQUIRE_SIZE(sums.superslabs, ==, stats.superslabs_count);
    REQUIRE_SIZE(cached, ==, stats.bytes_cached);
    REQUIRE_SIZE((sums.slices['d'] + sums.slices['a']) * SLICE, ==, stats.bytes_free_dirty);
    /* Blocks of spans start up to 63 cache lines behind their first slice. */
    size_t span_bytes = (sums.slices['s'] + sums.slices['t']) * SLICE;
    REQUIRE_SIZE(stats.bytes_in_use, <=, bytes + span_bytes);
    REQUIRE_SIZE(stats.bytes_in_use + sums.spans * 63 * 64, >=, bytes + span_bytes);
}

/* Of the map that was counted last. */
static size_t in_use_of(const char *map, unsigned long of_class)
{
    return sums.out[of_class] - class_number(map, of_class, "cached");
}

TEST(known_blocks)
{
    enum { COUNT = 5000 };
    static void *blocks[COUNT];
    size_t bytes[2] = {0, 0};
    support_small_pages();
    hak_free(hak_malloc(96)); /* the class has a record */
    const char *before = map_read(&first, collect);
    check_stats(before);
    size_t in_use = in_use_of(before, 6), huge = huge_of(before, bytes), spans = sums.spans;
    ALLOCATE_WRITTEN(blocks, COUNT, 96);
    char *span = hak_malloc(300 * KIB), *block = hak_malloc(5 * MIB), *kept = hak_malloc(9 * MIB);
    memset(span, 1, 300 * KIB);
    memset(block, 1, 3 * MIB);
    memset(kept, 1, 9 * MIB);
    const char *with = map_read(&second, collect);
    check_stats(with);
    map_check(&second);
    assert_int_equal(class_number(with, 6, "object_bytes"), 96);
    assert_int_equal(in_use_of(with, 6), in_use + COUNT);
    assert_true(sums.resident[6] >= COUNT * 96);
    assert_int_equal(sums.spans, spans + 1);
    assert_int_equal(huge_of(with, bytes), huge + 2);
    size_t address = (size_t)block;
    assert_int_equal(number_of(with, "bytes", "{\"address\": %zu", address), 5 * MIB);
    assert_in_range(number_of(with, "resident_bytes", "{\"address\": %zu", address), 3 * MIB,
                    3 * MIB + 128 * KIB);
    hak_free(kept);
    hak_free(span);
    for (size_t i = 0; i < COUNT; i += 2) {
        hak_free(blocks[i]);
    }
    const char *after = map_read(&third, collect);
    check_stats(after);
    map_check(&third);
    assert_int_equal(in_use_of(after, 6), in_use + COUNT / 2);
    assert_int_equal(sums.spans, spans);
    assert_int_equal(huge_of(after, bytes), huge + 1);
    for (size_t i = 1; i < COUNT; i += 2) {
        hak_free(blocks[i]);
    }
    hak_free(block);
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
        REQUIRE(report_number_at(map_read(&second, take), "objects_in_use_count") > 0);
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
        map_read(&first, i % 2 == 0 ? take : collect);
        if (i % 20 == 0) {
            map_check(&first);
        }
        if (!SUPPORT_SANITIZED) {
            run_child();
        }
    }
    __atomic_store_n(&stopped, true, __ATOMIC_RELAXED);
    JOIN_ALL(threads, THREADS);
    check_stats(map_read(&first, collect));
    map_check(&first);
    for (size_t i = 0; i < THREADS; i++) {
        FREE_ALL(slots[i], SLOTS);
    }
}

TESTS(NULL)
