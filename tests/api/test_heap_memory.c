/* SPDX-License-Identifier: MIT */
/* test_heap_memory.c: heaps (hakmem/heap.h) in memory of the program, of odd sizes and
 * alignments, and with page providers, each call of which fails once. */
#include "../support.h"

#include <hakmem/heap.h>

static hak_heap *create_in(void *memory, size_t size)
{
    struct hak_heap_options options = {
        .size = sizeof options, .memory = memory, .memory_size = size};
    hak_heap *heap = hak_heap_create(&options);
    REQUIRE(heap != NULL);
    return heap;
}

enum { MOST = 1 << 17 };

/* Fills the heap with objects of random sizes, frees them all, and returns the bytes there were. */
static size_t fill(hak_heap *heap, unsigned bits, uint64_t seed, const char *low, const char *high)
{
    unsigned char **objects = support_map(MOST * sizeof *objects);
    uint64_t random = seed;
    size_t count = 0, bytes = 0;
    while (count < MOST) {
        size_t size = 1 + random_size(&random, bits);
        unsigned char *object = hak_heap_malloc(heap, size);
        if (object == NULL) {
            REQUIRE(errno == ENOMEM);
            break;
        }
        REQUIRE((char *)object >= low && (char *)object + size <= high);
        memset(object, (int)count, size);
        objects[count++] = object;
        bytes += size;
    }
    REQUIRE(count != MOST);
    for (size_t i = 0; i < count; i++) {
        size_t at = (i * 7919) % count; /* a prime: each index once, unless it divides count */
        if (objects[at] != NULL) {
            REQUIRE(objects[at][0] == (unsigned char)at);
            hak_heap_free(heap, objects[at]);
            objects[at] = NULL;
        }
    }
    for (size_t i = 0; i < count; i++) {
        hak_heap_free(heap, objects[i]);
    }
    munmap(objects, MOST * sizeof *objects);
    return bytes;
}

/* Bytes around the memory keep their value, and a heap can be filled again and again. */
TEST(memory_of_odd_size)
{
    static const size_t sizes[] = {16 * KIB, 16 * KIB + 1,  40 * KIB + 17,
                                   100000,   300 * KIB - 3, MIB + 4097};
    static const size_t offsets[] = {0, 1, 4095, 5000};
    char *memory = support_map(4 * MIB);
    for (size_t i = 0; i < COUNT_OF(sizes) - (SUPPORT_SLOW ? 2 : 0); i++) {
        for (size_t j = 0; j < COUNT_OF(offsets); j++) {
            char *start = memory + 64 + offsets[j], *end = start + sizes[i];
            memset(start - 64, 0xAA, sizes[i] + 128);
            hak_heap *heap = create_in(start, sizes[i]);
            size_t first = fill(heap, 8, i, start, end);
            hak_heap_trim(heap);
            struct hak_heap_stats stats;
            hak_heap_stats_read(heap, &stats, sizeof stats);
            REQUIRE_SIZE(stats.objects_in_use_count, ==, 0);
            REQUIRE_SIZE(stats.bytes_mapped, ==, stats.bytes_tables + stats.bytes_free_pages);
            REQUIRE_SIZE(stats.bytes_mapped + 8 * KIB, >, sizes[i]);
            for (size_t again = 0; again < 2; again++) {
                size_t bytes = fill(heap, 10 + 4 * (unsigned)again, again, start, end);
                REQUIRE(bytes != 0 || sizes[i] < 64 * KIB);
                hak_heap_trim(heap);
            }
            REQUIRE(fill(heap, 8, i, start, end) == first);
            if (stats.bytes_free_pages > 64 * KIB + 128) { /* the pages are one run again */
                REQUIRE(hak_heap_malloc(heap, stats.bytes_free_pages) != NULL);
                REQUIRE(hak_heap_malloc(heap, 1) == NULL);
            }
            memset(start, 0, sizes[i]); /* the program may: the end does not look at it */
            hak_heap_destroy(heap);
            for (size_t k = 1; k <= 64; k++) {
                REQUIRE(start[-(ptrdiff_t)k] == (char)0xAA && end[k - 1] == (char)0xAA);
            }
        }
    }
    munmap(memory, 4 * MIB);
}

static bool visit(void *object, size_t bytes, void *argument)
{
    *(size_t *)argument += object != NULL && bytes != 0;
    return true;
}

/* A program may write over all its memory: what the heap knows of it is elsewhere. */
TEST(writes_reach_no_table)
{
    enum { SIZE = 2 << 20, OBJECTS = 200 };
    void *objects[OBJECTS];
    char *memory = support_map(SIZE);
    hak_heap *heap = create_in(memory, SIZE);
    for (size_t round = 0; round < 2; round++) {
        size_t count = 0;
        for (size_t i = 0; i < OBJECTS; i++) { /* one of a class: no other object of it is free */
            objects[i] = hak_heap_malloc(heap, i % 20 == 0 ? 70000 : 4096 + 128 * i);
            count += objects[i] != NULL;
        }
        REQUIRE(count > OBJECTS / 2);
        hak_heap_trim(heap);
        void *first = hak_heap_malloc(heap, 16);
        for (size_t i = 0; i < OBJECTS; i++) {
            if (objects[i] != NULL) {
                memset(objects[i], 0xff, hak_heap_usable_size(heap, objects[i]));
            }
        }
        if (round == 1) {
            memset(memory, 0xff, SIZE);
        }
        for (size_t i = 0; i < OBJECTS; i++) {
            REQUIRE(objects[i] == NULL || hak_heap_usable_size(heap, objects[i]) >= 4096);
        }
        if (round == 0) {
            size_t seen = 0;
            REQUIRE(hak_heap_walk(heap, visit, &seen));
            REQUIRE_SIZE(seen, ==, count + (first != NULL));
            for (size_t i = 0; i < OBJECTS; i++) {
                hak_heap_free(heap, objects[i]);
            }
            hak_heap_free(heap, first);
        }
    }
    for (size_t i = 0; i < OBJECTS; i += 20) { /* blocks have nothing in the memory */
        hak_heap_free(heap, objects[i]);
    }
    void *block = hak_heap_malloc(heap, 70000);
    REQUIRE((char *)block >= memory && (char *)block + 70000 <= memory + SIZE);
    hak_heap_destroy(heap);
    munmap(memory, SIZE);
}

/* --- page providers --- */

enum { CHUNKS = 256 };
struct provider {
    size_t calls;
    size_t fails_at; /* the number of the call that fails */
    bool fails_on;   /* and all later ones */
    size_t bytes;
    size_t purged;
    void *chunks[CHUNKS];
    size_t sizes[CHUNKS];
};

static void *provider_map(void *argument, size_t alignment, size_t size)
{
    struct provider *provider = argument;
    size_t number = ++provider->calls;
    REQUIRE(size % 4096 == 0 && alignment == HAK_HEAP_CHUNK_SIZE);
    if (number == provider->fails_at || (provider->fails_on && number > provider->fails_at)) {
        return NULL;
    }
    /* No lock is held: hakmem serves the provider, too. */
    hak_free(hak_malloc(100));
    char *memory = support_map(size + alignment);
    char *start = (char *)(((uintptr_t)memory + alignment - 1) & ~(uintptr_t)(alignment - 1));
    if (start != memory) {
        munmap(memory, (size_t)(start - memory));
    }
    munmap(start + size, (size_t)(memory + alignment - start));
    for (size_t i = 0; i < CHUNKS; i++) {
        if (provider->chunks[i] == NULL) {
            provider->chunks[i] = start;
            provider->sizes[i] = size;
            provider->bytes += size;
            return start;
        }
    }
    support_fail("too many chunks\n");
}

static void provider_unmap(void *argument, void *address, size_t size)
{
    struct provider *provider = argument;
    hak_free(hak_malloc(100));
    for (size_t i = 0; i < CHUNKS; i++) {
        if (provider->chunks[i] == address) {
            REQUIRE_SIZE(provider->sizes[i], ==, size);
            provider->chunks[i] = NULL;
            provider->bytes -= size;
            munmap(address, size);
            return;
        }
    }
    support_fail("no such chunk\n");
}

static void provider_purge(void *argument, void *address, size_t size)
{
    struct provider *provider = argument;
    REQUIRE(is_aligned(address, 4096) && size % 4096 == 0);
    provider->purged += size;
    memset(address, 0xEE, size); /* the heap may not rely on it */
}

static hak_heap *create_with(struct provider *provider)
{
    struct hak_heap_pages pages = {provider_map, provider_unmap, provider_purge, provider};
    struct hak_heap_options options = {.size = sizeof options, .pages = &pages};
    hak_heap *heap = hak_heap_create(&options);
    REQUIRE(heap != NULL);
    memset(&pages, 0, sizeof pages); /* it was copied */
    return heap;
}

/* The same work each time. Returns the allocations that failed. */
static size_t work(hak_heap *heap)
{
    enum { OBJECTS = 300 };
    unsigned char *objects[OBJECTS];
    uint64_t random = 7;
    size_t failed = 0;
    for (size_t turn = 0; turn < 3; turn++) {
        for (size_t i = 0; i < OBJECTS; i++) {
            size_t size = 1 + (i % 60 == 9 ? 600 * KIB : random_size(&random, 16));
            objects[i] = hak_heap_malloc(heap, size);
            failed += objects[i] == NULL;
            if (objects[i] != NULL) {
                memset(objects[i], (int)i, size);
            }
        }
        for (size_t i = 0; i < OBJECTS; i++) {
            REQUIRE(objects[i] == NULL || objects[i][0] == (unsigned char)i);
            hak_heap_free(heap, objects[i]);
        }
        hak_heap_trim(heap);
    }
    return failed;
}

TEST(each_call_of_the_provider_fails)
{
    static struct provider provider;
    hak_heap *heap = create_with(&provider);
    assert_int_equal(work(heap), 0);
    hak_heap_destroy(heap);
    assert_int_equal(provider.bytes, 0);
    size_t calls = provider.calls;
    assert_true(calls >= 10);
    for (size_t number = 1; number <= calls; number += SUPPORT_SLOW ? 7 : 1) {
        for (int on = 0; on < 2; on++) {
            memset(&provider, 0, sizeof provider);
            provider.fails_at = number;
            provider.fails_on = on != 0;
            heap = create_with(&provider);
            size_t failed = work(heap);
            REQUIRE(on != 0 || failed == 0); /* one refusal is no failure: the heap asks again */
            struct hak_heap_stats stats;
            hak_heap_stats_read(heap, &stats, sizeof stats);
            REQUIRE_SIZE(stats.failures_count, ==, failed);
            REQUIRE_SIZE(stats.bytes_mapped, ==, provider.bytes);
            REQUIRE_SIZE(stats.objects_in_use_count, ==, 0);
            provider.fails_at = 0;
            provider.fails_on = false;
            REQUIRE_SIZE(work(heap), ==, 0);
            hak_heap_destroy(heap);
            REQUIRE_SIZE(provider.bytes, ==, 0);
        }
    }
}

TEST(purge_is_told_of_free_pages)
{
    static struct provider provider;
    memset(&provider, 0, sizeof provider);
    hak_heap *heap = create_with(&provider);
    void *blocks[8];
    for (size_t i = 0; i < COUNT_OF(blocks); i++) {
        blocks[i] = hak_heap_malloc(heap, 100 * KIB);
        memset(blocks[i], 1, 100 * KIB);
    }
    for (size_t i = 0; i < COUNT_OF(blocks); i += 2) {
        hak_heap_free(heap, blocks[i]);
    }
    hak_heap_trim(heap);
    struct hak_heap_stats stats;
    hak_heap_stats_read(heap, &stats, sizeof stats);
    assert_int_equal(provider.purged, stats.bytes_free_pages);
    assert_true(provider.purged >= 400 * KIB);
    for (size_t i = 1; i < COUNT_OF(blocks); i += 2) {
        assert_int_equal(*((char *)blocks[i] + 100 * KIB - 1), 1);
    }
    hak_heap_destroy(heap);
    assert_int_equal(provider.bytes, 0);
}

/* The end of a thread gives what it has cached back to its heaps. In a fork's child that would be
 * the parent's heap. */
TEST(shared_mapping_and_a_child)
{
    enum { SIZE = 1 << 20, OBJECTS = 1000 };
    static void *objects[OBJECTS];
    int status;
    SKIP_IF(SUPPORT_SANITIZED ||
            SUPPORT_EMULATED); /* their own threads would outlive the child's */
    void *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    hak_heap *heap = create_in(memory, SIZE);
    for (size_t i = 0; i < OBJECTS; i++) {
        objects[i] = hak_heap_malloc(heap, 50);
        assert_non_null(objects[i]);
    }
    for (size_t i = 0; i < OBJECTS; i += 2) {
        hak_heap_free(heap, objects[i]);
    }
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        pthread_exit(NULL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    for (size_t i = 0; i < OBJECTS; i += 2) { /* the free ones are still this thread's alone */
        objects[i] = hak_heap_malloc(heap, 50);
        assert_non_null(objects[i]);
        memset(objects[i], (int)i, 50);
    }
    for (size_t i = 0; i < OBJECTS; i++) {
        hak_heap_free(heap, objects[i]);
    }
    hak_heap_destroy(heap);
    assert_int_equal(munmap(memory, SIZE), 0);
}

TESTS(NULL)
