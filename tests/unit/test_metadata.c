/* SPDX-License-Identifier: MIT */
/* test_metadata.c: heap/metadata: zeroed memory at cache lines, handed out once, by any thread.
 *
 * ctest: no-qemu
 */
#include "../child.h"
#include "../threads/threads.h"
#include "unit.h"

enum { CHUNK = 256 * 1024, CHUNK_MOST = CHUNK - 64, PIECES = 100, THREADS = 8 };

struct piece {
    unsigned char *memory;
    size_t size;
};

static struct piece shared_pieces[THREADS][PIECES];
static pthread_barrier_t barrier;

/* Zeroed, aligned, and from now on full of `mark`. */
static struct piece take(size_t size, unsigned char mark)
{
    struct piece piece = {hak__metadata_allocate(size), size};
    REQUIRE(piece.memory != NULL && is_aligned(piece.memory, HAK_CACHE_LINE));
    REQUIRE(nonzero_offset(piece.memory, size) == SIZE_MAX);
    memset(piece.memory, mark, size);
    return piece;
}

static bool is_full_of(struct piece piece, unsigned char mark)
{
    for (size_t i = 0; i < piece.size; i++) {
        if (piece.memory[i] != mark) {
            return false;
        }
    }
    return true;
}

/* No two share a cache line: what one thread writes slows no other. */
static int compare_pieces(const void *a, const void *b)
{
    const struct piece *left = a, *right = b;
    return left->memory < right->memory ? -1 : left->memory > right->memory;
}

static void require_disjoint(struct piece *pieces, size_t count)
{
    qsort(pieces, count, sizeof *pieces, compare_pieces);
    for (size_t i = 1; i < count; i++) {
        const unsigned char *end = pieces[i - 1].memory + pieces[i - 1].size;
        REQUIRE(bits_align_up((uintptr_t)end, HAK_CACHE_LINE) <= (uintptr_t)pieces[i].memory);
    }
}

TEST(one_thread)
{
    static const size_t sizes[] = {1, 63, 64, 65, 1000, 4096, 10624, 100000, CHUNK_MOST};
    static struct piece pieces[4 * COUNT_OF(sizes)];
    size_t before = hak__metadata_bytes(), sum = 0;
    for (size_t i = 0; i < COUNT_OF(pieces); i++) {
        pieces[i] = take(sizes[i % COUNT_OF(sizes)], (unsigned char)(i + 1));
        sum += pieces[i].size;
    }
    for (size_t i = 0; i < COUNT_OF(pieces); i++) {
        assert_true(is_full_of(pieces[i], (unsigned char)(i + 1)));
    }
    require_disjoint(pieces, COUNT_OF(pieces));
    size_t grown = hak__metadata_bytes() - before;
    assert_true(grown + CHUNK >= sum && grown % CHUNK == 0);
}

/* Pieces of one size fill a chunk to the last one before there is another, and all are counted. */
TEST(nothing_is_lost)
{
    enum { SIZE = 10624, EACH_CHUNK = CHUNK / SIZE, CHUNKS = 10 };
    take(CHUNK_MOST, 1); /* nothing is left of the last one */
    size_t before = hak__metadata_bytes();
    for (size_t i = 0; i < (size_t)EACH_CHUNK * CHUNKS; i++) {
        assert_int_equal(hak__metadata_bytes(), before + (i + EACH_CHUNK - 1) / EACH_CHUNK * CHUNK);
        take(SIZE, 1);
    }
    assert_int_equal(hak__metadata_bytes(), before + CHUNKS * (size_t)CHUNK);
}

/* Under a limit that no whole chunk fits below, what fits can be had. */
TEST(near_a_limit)
{
    enum { SIZE = 10624, ROOM = CHUNK / 2, EACH = 3 * 4096 };
    take(CHUNK_MOST, 1);
    uint64_t before = hak__os_mapped_bytes(), metadata = hak__metadata_bytes();
    hak__os_set_limit(before + ROOM);
    size_t count = 0;
    for (; hak__os_mapped_bytes() + EACH <= before + ROOM; count++) {
        take(SIZE, 1);
    }
    assert_null(hak__metadata_allocate(SIZE));
    assert_int_equal(hak__metadata_bytes() - metadata, hak__os_mapped_bytes() - before);
    hak__os_set_limit(UINT64_MAX);
    assert_true(hak__os_page_size() != 4096 || count == ROOM / EACH);
    take(SIZE, 1);
    assert_true(hak__metadata_bytes() - metadata > CHUNK);
}

static void *take_many(void *argument)
{
    size_t self = (uintptr_t)argument;
    uint64_t random = self;
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < PIECES; i++) {
        size_t size = 1 + random_below(&random, i % 16 == 0 ? 60000 : 12000);
        shared_pieces[self][i] = take(size, (unsigned char)(self + 1));
    }
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < PIECES; i++) {
        REQUIRE(is_full_of(shared_pieces[self][i], (unsigned char)(self + 1)));
    }
    return NULL;
}

TEST(many_threads)
{
    pthread_t threads[THREADS];
    assert_int_equal(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    for (size_t round = 0; round < (SUPPORT_SLOW ? 2 : 5); round++) {
        for (size_t i = 0; i < THREADS; i++) {
            threads[i] = thread_start(take_many, (void *)(uintptr_t)i);
        }
        JOIN_ALL(threads, THREADS);
        require_disjoint(shared_pieces[0], (size_t)THREADS * PIECES);
    }
}

static size_t mapped_count(void)
{
    return hak__os_calls[OS_CALL_MAP] - hak__os_calls[OS_CALL_UNMAP];
}

/* Nothing of it is touched, so that it costs addresses only. */
enum { ROUNDS = 500 };

/* Threads that found no room at the same moment add one chunk, and the others' go back: as many as
 * one thread would have added. */
static void *take_at_once(void *argument)
{
    for (size_t i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&barrier);
        REQUIRE(hak__metadata_allocate(CHUNK_MOST / 2 / 64 * 64) != NULL);
    }
    return argument;
}

TEST(many_threads_add_no_more_than_one)
{
    pthread_t threads[THREADS];
    take(CHUNK_MOST, 1);
    size_t before = hak__metadata_bytes(), mapped = mapped_count();
    assert_int_equal(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    for (size_t i = 0; i < THREADS; i++) {
        threads[i] = thread_start(take_at_once, NULL);
    }
    JOIN_ALL(threads, THREADS);
    size_t added = (size_t)THREADS * ROUNDS / 2;
    assert_int_equal(hak__metadata_bytes(), before + added * CHUNK);
    assert_int_equal(mapped_count(), mapped + added);
}

static void take_all(void *argument)
{
    rlim_t before = unit_limit_address_space(address_space_bytes());
    size_t metadata = hak__metadata_bytes();
    for (size_t i = 0; hak__metadata_allocate(4096) != NULL; i++) { /* the rest of a chunk */
        REQUIRE_SIZE(i, <, CHUNK / 4096);
    }
    REQUIRE(hak__metadata_allocate(4096) == NULL);
    REQUIRE_SIZE(hak__metadata_bytes(), ==, metadata);
    unit_limit_address_space(before);
    take(4096, 1);
    REQUIRE_SIZE(hak__metadata_bytes(), ==, metadata + CHUNK);
}

TEST(no_memory)
{
    SKIP_IF(SUPPORT_SANITIZED);
    take(64, 1); /* there is a rest */
    REQUIRE_LIFE(take_all, NULL, NULL);
}

TESTS(unit_start)
