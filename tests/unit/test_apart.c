/* test_apart.c: a thread's second struct, for long-lived objects (heap/thread.c). */
#include "../threads/threads.h"
#include "unit.h"

#include "hakmem/hakmem.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 2000, SIZE = 100, THREADS = 4, ROUNDS = SUPPORT_SLOW ? 20 : 200 };

/* The id of the heap that the block's slab belongs to. */
static uint32_t heap_of(const void *block)
{
    return window_owner(window_slice_of(block)) >> OWNER_CODE_BITS;
}

static void fill(void *blocks[COUNT], unsigned char mark)
{
    for (size_t i = 0; i < COUNT; i++) {
        blocks[i] = hak_malloc(SIZE);
        REQUIRE(blocks[i] != NULL);
        memset(blocks[i], mark, SIZE);
    }
}

static void drain(void *blocks[COUNT], unsigned char mark)
{
    for (size_t i = 0; i < COUNT; i++) {
        REQUIRE(((unsigned char *)blocks[i])[0] == mark &&
                ((unsigned char *)blocks[i])[SIZE - 1] == mark);
        hak_free(blocks[i]);
    }
}

static void test_objects_lie_apart(void **state)
{
    static void *usual[COUNT], *apart[COUNT];
    (void)state;
    fill(usual, 1);
    hak__thread_turn(true);
    assert_true(hak__thread->apart);
    fill(apart, 2);
    for (size_t i = 1; i < COUNT; i++) {
        assert_int_equal(heap_of(apart[i]), heap_of(apart[0]));
        assert_int_not_equal(heap_of(usual[i]), heap_of(apart[i]));
    }
    drain(usual, 1); /* each kind is freed by the other */
    hak__thread_turn(false);
    assert_false(hak__thread->apart);
    drain(apart, 2);
    assert_true(hak_trim(0) || true);
    void *block = hak_malloc(SIZE);
    assert_int_not_equal(heap_of(block), hak__thread->twin->heap->id);
    hak_free(block);
}

static void *handed[THREADS][COUNT];

/* Frees what another thread left, leaves blocks of both kinds, and ends inside a scope. */
static void *work(void *argument)
{
    size_t own = (size_t)(uintptr_t)argument;
    void *blocks[COUNT];
    for (int round = 0; round < ROUNDS / 20; round++) {
        hak__thread_turn(round % 2 == 0);
        fill(blocks, (unsigned char)own);
        hak__thread_turn(round % 2 != 0);
        drain(blocks, (unsigned char)own);
    }
    hak__thread_turn(true);
    fill(handed[own], (unsigned char)own);
    return NULL;
}

static void test_threads_end_inside(void **state)
{
    (void)state;
    for (int round = 0; round < ROUNDS / 10; round++) {
        pthread_t threads[THREADS];
        for (size_t i = 0; i < THREADS; i++) {
            threads[i] = thread_start(work, (void *)(uintptr_t)i);
        }
        for (size_t i = 0; i < THREADS; i++) {
            thread_join(threads[i]);
            drain(handed[i], (unsigned char)i);
        }
    }
    uint32_t used = 0;
    for (struct thread *thread = hak__thread_first(); thread != NULL; thread = thread->next) {
        used += hak__thread_is_used(thread);
    }
    assert_int_equal(used, 2); /* this thread and its twin */
}

/* A forked child has both structs, whichever was in use. */
static void test_fork(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        static void *usual[COUNT], *apart[COUNT];
        fill(usual, 3);
        hak__thread_turn(true);
        fill(apart, 4);
        hak__thread_turn(kind == 1);
        hak__fork_prepare();
        pid_t child = fork();
        if (child == 0) {
            hak__fork_child();
            drain(apart, 4);
            drain(usual, 3);
            work((void *)(uintptr_t)1);
            bool right = hak__thread_is_used(hak__thread) && hak__thread_is_used(hak__thread->twin);
            _exit(right ? 0 : 1);
        }
        hak__fork_parent();
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        hak__thread_turn(false);
        drain(apart, 4);
        drain(usual, 3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_objects_lie_apart),
        cmocka_unit_test(test_threads_end_inside),
        cmocka_unit_test(test_fork),
    };
    return cmocka_run_group_tests(tests, unit_start, NULL);
}
