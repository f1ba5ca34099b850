/* SPDX-License-Identifier: MIT */
/* test_metadata.c: arena/metadata: zeroed memory at cache lines, handed out once, by any thread.
 *
 * ctest: no-qemu
 */
#include "../threads/threads.h"
#include "unit.h"

enum { CHUNK = 256 * 1024, CHUNK_MOST = CHUNK - 64, PIECES = 20000, THREADS = 8, ROUNDS = 500 };

static pthread_barrier_t barrier;

/* Zeroed, aligned, and from now on full of `mark`: no two share a cache line, so what one thread
 * writes slows no other. */
static unsigned char *take(size_t size, unsigned char mark)
{
    unsigned char *piece = hak__metadata_allocate(size);
    REQUIRE(piece != NULL && is_aligned(piece, HAK_CACHE_LINE));
    REQUIRE(nonzero_offset(piece, size) == SIZE_MAX);
    return memset(piece, mark, size);
}

/* Mostly as fast as it can: two threads that get one piece find the other's mark. */
static void *take_many(void *argument)
{
    static unsigned char *shared_pieces[THREADS][PIECES];
    unsigned char mark = (unsigned char)((uintptr_t)argument + 1);
    unsigned char **pieces = shared_pieces[(uintptr_t)argument];
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < PIECES; i++) {
        pieces[i] = take(i % 1000 == 0 ? 12000 : HAK_CACHE_LINE, mark);
    }
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < PIECES; i++) {
        REQUIRE(pieces[i][0] == mark && pieces[i][i % 1000 == 0 ? 11999 : 63] == mark);
    }
    return NULL;
}

static size_t mapped_count(void)
{
    return hak__os_calls[OS_CALL_MAP] - hak__os_calls[OS_CALL_UNMAP];
}

/* Nothing of it is touched, so that it costs addresses only. */
static void *take_at_once(void *argument)
{
    for (size_t i = 0; i < ROUNDS; i++) {
        pthread_barrier_wait(&barrier);
        REQUIRE(hak__metadata_allocate(CHUNK_MOST / 2 / 64 * 64) != NULL);
    }
    return argument;
}

static void run_threads(void *(*body)(void *))
{
    assert_int_equal(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    threads_run(THREADS, body, 0);
}

/* Threads that found no room at the same moment add one chunk, and the others' go back: as many as
 * one thread would have added. */
TEST(threads)
{
    for (size_t round = 0; round < (SUPPORT_SLOW ? 2 : 5); round++) {
        run_threads(take_many);
    }
    take(CHUNK_MOST, 1);
    size_t before = hak__metadata_bytes(), mapped = mapped_count();
    run_threads(take_at_once);
    size_t added = (size_t)THREADS * ROUNDS / 2;
    assert_int_equal(hak__metadata_bytes(), before + added * CHUNK);
    assert_int_equal(mapped_count(), mapped + added);
}

TESTS(unit_start)
