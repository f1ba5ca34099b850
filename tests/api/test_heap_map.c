/* SPDX-License-Identifier: MIT */
/* test_heap_map.c: hak_heap_map: the document agrees with itself and with hak_stats_get, at rest;
 * known blocks stand where they are; it is whole beside running threads, in fork's child, and with
 * a sink that allocates. */
#include "../threads/threads.h"

#include <sys/wait.h>

enum { MAP_MAX = 8 << 20, CLASSES_MAX = 256, SLICE = 32 << 10 };

struct document {
    char *text;
    size_t length;
    bool allocates; /* the sink does */
};

/* What the strings "slices" and "resident" of all superslabs add up to. */
struct walked {
    size_t kinds[128]; /* [letter]: slices of c, d, a, k, s and t; of u: of slabs */
    size_t spans;
    size_t claimed;
    size_t superslabs;
    size_t out[CLASSES_MAX];
    size_t free[CLASSES_MAX];
    size_t slabs[CLASSES_MAX];
    size_t resident[CLASSES_MAX]; /* bytes; [0]: of all slices */
};

struct class_line {
    size_t object_bytes, slab_slices, slab_objects, slabs, in_use, cached, free, not_carved,
        resident;
};

struct map {
    struct document document;
    struct walked walked;
    struct class_line classes[CLASSES_MAX];
    size_t whales, whale_bytes, kept, kept_bytes;
};

static void take(void *argument, const char *text, size_t size)
{
    struct document *document = argument;
    REQUIRE_SIZE(document->length + size, <, MAP_MAX);
    memcpy(document->text + document->length, text, size);
    document->length += size;
    if (document->allocates) {
        for (size_t i = 0; i < COUNT_OF(tier_sizes); i++) {
            void *block = hak_malloc(tier_sizes[i]);
            REQUIRE(block != NULL);
            hak_free(block);
        }
    }
}

/* The number after the next "key": from `at` on. */
static size_t number_after(const char *at, const char *key)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    at = strstr(at, quoted);
    if (at == NULL) {
        support_fail("the map lacks the key %s\n", quoted);
    }
    return strtoull(at + strlen(quoted), NULL, 10);
}

/* The string after the next "key": from `at` on. */
static const char *string_after(const char *at, const char *key)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\": \"", key);
    at = strstr(at, quoted);
    REQUIRE(at != NULL);
    return at + strlen(quoted);
}

static void read_classes(struct map *map)
{
    const char *at = strstr(map->document.text, "\"classes\": [");
    const char *end = strstr(map->document.text, "\"whales\": [");
    REQUIRE(at != NULL && end != NULL && at < end);
    while ((at = strstr(at, "{\"class\": ")) != NULL && at < end) {
        size_t index = number_after(at, "class");
        REQUIRE(index > 0 && index < CLASSES_MAX);
        map->classes[index] =
            (struct class_line){number_after(at, "object_bytes"),  number_after(at, "slab_slices"),
                                number_after(at, "slab_objects"),  number_after(at, "slabs"),
                                number_after(at, "in_use"),        number_after(at, "cached"),
                                number_after(at, "free"),          number_after(at, "not_carved"),
                                number_after(at, "resident_bytes")};
        at++;
    }
}

static size_t resident_of(const char *digits, size_t claimed, size_t slice)
{
    size_t count = strcspn(digits, "\"");
    REQUIRE(count == 1 || count == claimed);
    char digit = digits[count == 1 ? 0 : slice];
    REQUIRE(digit >= '0' && digit <= '8');
    return (size_t)(digit - '0') * SLICE / 8;
}

static void read_slabs(struct map *map, size_t class_index, const size_t numbers[128], size_t first,
                       const char *digits, size_t claimed)
{
    const struct class_line *of_class = &map->classes[class_index];
    struct walked *walked = &map->walked;
    size_t count = numbers['x'], slices = count * of_class->slab_slices;
    REQUIRE(of_class->slab_slices != 0);
    REQUIRE(numbers['u'] + numbers['f'] <= of_class->slab_objects);
    walked->kinds['u'] += slices;
    walked->slabs[class_index] += count;
    walked->out[class_index] += count * numbers['u'];
    walked->free[class_index] += count * numbers['f'];
    for (size_t i = first; i < first + slices; i++) {
        walked->resident[class_index] += resident_of(digits, claimed, i);
    }
}

/* Reads one superslab: words of a letter and a number. Returns the end of its description. */
static void read_superslab(struct map *map, const char *at)
{
    size_t claimed = number_after(at, "claimed"), slice = 0, class_index = 0, heap = 0;
    const char *digits = string_after(at, "resident");
    struct walked *walked = &map->walked;
    at = string_after(at, "slices");
    while (*at != '"') {
        size_t numbers[128] = {['x'] = 1};
        char letter = *at, *end;
        size_t number = strtoull(at + 1, &end, 10);
        REQUIRE(end > at + 1);
        at = end;
        if (letter == 'h') {
            heap = number;
        } else if (letter == 'z') {
            class_index = number;
        } else if (letter == 'u') {
            REQUIRE(heap != 0 && class_index > 0 && class_index < CLASSES_MAX);
            numbers['u'] = number;
            while (*at == 'f' || *at == 'x') {
                letter = *at;
                numbers[(unsigned char)letter] = strtoull(at + 1, &end, 10);
                at = end;
            }
            read_slabs(map, class_index, numbers, slice, digits, claimed);
            slice += numbers['x'] * map->classes[class_index].slab_slices;
        } else {
            REQUIRE(strchr("cdakstp", letter) != NULL && number > 0);
            walked->kinds[(unsigned char)letter] += number;
            walked->spans += letter == 's';
            slice += number;
        }
    }
    REQUIRE_SIZE(slice, ==, claimed);
    for (size_t i = 0; i < claimed; i++) {
        walked->resident[0] += resident_of(digits, claimed, i);
    }
    walked->claimed += claimed;
    walked->superslabs++;
}

static void read_whales(struct map *map)
{
    const char *at = strstr(map->document.text, "\"whales\": [");
    size_t last = 0;
    while ((at = strstr(at, "{\"address\": ")) != NULL) {
        size_t address = number_after(at, "address"), bytes = number_after(at, "bytes");
        bool kept = number_after(at, "kept") != 0;
        REQUIRE(address > last && number_after(at, "resident_bytes") <= bytes);
        *(kept ? &map->kept : &map->whales) += 1;
        *(kept ? &map->kept_bytes : &map->whale_bytes) += bytes;
        last = address;
        at++;
    }
}

static void sum_of_kind(const struct map *map, const char *kind, size_t count)
{
    char words[64];
    snprintf(words, sizeof words, "{\"kind\": \"%s\"", kind);
    const char *at = strstr(map->document.text, words);
    REQUIRE(at != NULL);
    REQUIRE_SIZE(number_after(at, "count"), ==, count);
}

/* What must be true also while the program runs. */
static void check_itself(const struct map *map)
{
    const struct walked *walked = &map->walked;
    size_t resident = 0;
    for (size_t i = 1; i < CLASSES_MAX; i++) {
        const struct class_line *of_class = &map->classes[i];
        REQUIRE_SIZE(walked->slabs[i], ==, of_class->slabs);
        REQUIRE_SIZE(walked->out[i], ==, of_class->in_use + of_class->cached);
        REQUIRE_SIZE(walked->free[i], ==, of_class->free);
        REQUIRE_SIZE(walked->out[i] + walked->free[i] + of_class->not_carved, ==,
                     of_class->slabs * of_class->slab_objects);
        REQUIRE_SIZE(walked->resident[i], ==, of_class->resident);
        resident += walked->resident[i];
    }
    REQUIRE(resident <= walked->resident[0]);
    sum_of_kind(map, "free_clean", walked->kinds['c']);
    sum_of_kind(map, "free_dirty", walked->kinds['d']);
    sum_of_kind(map, "free_aged", walked->kinds['a']);
    sum_of_kind(map, "kept_spans", walked->kinds['k']);
    sum_of_kind(map, "spans", walked->kinds['s'] + walked->kinds['t']);
    sum_of_kind(map, "slabs", walked->kinds['u']);
    REQUIRE_SIZE(number_after(map->document.text, "spans"), ==, walked->spans);
}

static struct map *map_read(bool allocates)
{
    struct map *map = support_map(sizeof *map);
    map->document = (struct document){support_map(MAP_MAX), 0, allocates};
    errno = ERRNO_UNTOUCHED;
    hak_heap_map(take, &map->document);
    REQUIRE(errno == ERRNO_UNTOUCHED);
    const char *text = map->document.text;
    REQUIRE(strncmp(text, "{\"heap_map\": {\"version\": 1, ", 28) == 0);
    REQUIRE(strcmp(text + map->document.length - 3, "]}\n") == 0);
    read_classes(map);
    const char *end = strstr(text, "\"classes\": [");
    for (const char *at = text; (at = strstr(at, "{\"index\": ")) != NULL && at < end; at++) {
        read_superslab(map, at);
    }
    read_whales(map);
    check_itself(map);
    return map;
}

static void map_free(struct map *map)
{
    munmap(map->document.text, MAP_MAX);
    munmap(map, sizeof *map);
}

/* What must be true at rest. */
static void check_stats(const struct map *map)
{
    struct hak_stats stats = stats_now();
    const char *text = map->document.text;
    const size_t *kinds = map->walked.kinds;
    size_t objects = map->walked.spans + map->whales, bytes = map->whale_bytes;
    size_t cached = kinds['k'] * SLICE + map->kept_bytes;
    for (size_t i = 1; i < CLASSES_MAX; i++) {
        const struct class_line *of_class = &map->classes[i];
        objects += of_class->in_use;
        bytes += of_class->in_use * of_class->object_bytes;
        cached += of_class->cached * of_class->object_bytes;
    }
    REQUIRE_SIZE(objects, ==, stats.objects_in_use_count);
    REQUIRE_SIZE(number_after(text, "objects_in_use"), ==, stats.objects_in_use_count);
    REQUIRE_SIZE(number_after(text, "bytes_in_use"), ==, stats.bytes_in_use);
    REQUIRE_SIZE(number_after(text, "process"), ==, (size_t)getpid());
    REQUIRE_SIZE(map->whales, ==, stats.whales_count);
    REQUIRE_SIZE(map->walked.superslabs, ==, stats.superslabs_count);
    REQUIRE_SIZE(cached, ==, stats.bytes_cached);
    REQUIRE_SIZE((kinds['d'] + kinds['a']) * SLICE, ==, stats.bytes_free_dirty);
    /* Blocks of spans start up to 63 cache lines behind their first slice. */
    size_t span_bytes = (kinds['s'] + kinds['t']) * SLICE;
    REQUIRE_SIZE(stats.bytes_in_use, <=, bytes + span_bytes);
    REQUIRE_SIZE(stats.bytes_in_use + map->walked.spans * 63 * 64, >=, bytes + span_bytes);
}

TEST(an_empty_heap)
{
    struct map *map = map_read(false);
    check_stats(map);
    map_free(map);
}

TEST(known_blocks)
{
    enum { COUNT = 5000 };
    static void *blocks[COUNT];
    support_small_pages();
    struct map *before = map_read(false);
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = hak_malloc(96);
        memset(blocks[i], 1, 96);
    }
    char *span = hak_malloc(300 * KIB), *whale = hak_malloc(5 * MIB), *kept = hak_malloc(9 * MIB);
    memset(span, 1, 300 * KIB);
    memset(whale, 1, 3 * MIB);
    memset(kept, 1, 9 * MIB);
    struct map *with = map_read(false);
    check_stats(with);
    const struct class_line *old = &before->classes[6], *now = &with->classes[6];
    assert_int_equal(now->object_bytes, 96);
    assert_int_equal(now->in_use - old->in_use, COUNT);
    assert_true(now->resident >= COUNT * 96);
    assert_int_equal(with->walked.spans - before->walked.spans, 1);
    assert_int_equal(with->whales - before->whales, 2);
    char words[64];
    snprintf(words, sizeof words, "{\"address\": %zu", (size_t)whale);
    const char *at = strstr(with->document.text, words);
    assert_non_null(at);
    assert_int_equal(number_after(at, "bytes"), 5 * MIB);
    assert_in_range(number_after(at, "resident_bytes"), 3 * MIB, 3 * MIB + 128 * KIB);
    assert_int_equal(number_after(at, "kept"), 0);
    hak_free(kept);
    hak_free(span);
    for (size_t i = 0; i < COUNT; i += 2) {
        hak_free(blocks[i]);
    }
    struct map *after = map_read(false);
    check_stats(after);
    assert_int_equal(after->classes[6].in_use - old->in_use, COUNT / 2);
    assert_int_equal(after->walked.spans, before->walked.spans);
    assert_int_equal(after->whales - before->whales, 1);
    for (size_t i = 1; i < COUNT; i += 2) {
        hak_free(blocks[i]);
    }
    hak_free(whale);
    map_free(before);
    map_free(with);
    map_free(after);
}

static void fill(void **blocks, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) {
        size_t size = random_size(&seed, i % 40 == 0 ? 22 : 13);
        blocks[i] = hak_malloc(size);
        REQUIRE(blocks[i] != NULL);
    }
}

TEST(random_blocks)
{
    enum { COUNT = SUPPORT_SLOW ? 3000 : 20000 };
    void **blocks = support_map(COUNT * sizeof *blocks);
    uint64_t random = 5;
    fill(blocks, COUNT, 7);
    for (size_t round = 0; round < 5; round++) {
        for (size_t i = 0; i < COUNT; i++) {
            if (random_below(&random, 3) == 0) {
                hak_free(blocks[i]);
                blocks[i] = hak_malloc(random_size(&random, i % 40 == 0 ? 22 : 13));
            }
        }
        struct map *map = map_read(false);
        check_stats(map);
        map_free(map);
        if (round == 3) {
            hak_trim(0);
        }
    }
    FREE_ALL(blocks, COUNT);
    munmap(blocks, COUNT * sizeof *blocks);
}

TEST(a_sink_that_allocates)
{
    for (size_t i = 0; i < 3; i++) {
        struct map *map = map_read(true);
        map_free(map);
    }
}

enum { THREADS = 4, SLOTS = 500 };
static bool stopped;

static void *run(void *argument)
{
    uint64_t random = (uintptr_t)argument;
    void *slots[SLOTS] = {NULL};
    while (!__atomic_load_n(&stopped, __ATOMIC_RELAXED)) {
        void **slot = &slots[random_below(&random, SLOTS)];
        hak_free(*slot);
        *slot = hak_malloc(random_size(&random, random_below(&random, 50) == 0 ? 23 : 12));
        REQUIRE(*slot != NULL);
    }
    FREE_ALL(slots, SLOTS);
    return NULL;
}

static void run_child(void)
{
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        void *block = hak_malloc(100);
        struct map *map = map_read(true);
        REQUIRE(map->walked.superslabs > 0);
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
        threads[i] = thread_start(run, (void *)(i + 1));
    }
    for (size_t i = 0; i < (SUPPORT_SLOW ? 10 : 40); i++) {
        struct map *map = map_read(i % 2 == 0);
        map_free(map);
        if (!SUPPORT_SANITIZED) {
            run_child();
        }
    }
    __atomic_store_n(&stopped, true, __ATOMIC_RELAXED);
    JOIN_ALL(threads, THREADS);
    struct map *map = map_read(false);
    check_stats(map);
    map_free(map);
}

TESTS(NULL)
