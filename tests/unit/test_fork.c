/* test_fork.c: heap/fork: prepare takes every lock, parent and child leave none; the child's other
 * heaps are parked and can be adopted.
 *
 * The kernel's fork without the C library's handlers, which a program that links the archive may
 * have or not: the test calls the three functions itself. Children allocate nothing from the C
 * library.
 */
#include "../threads/threads.h"
#include "unit.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "large/whale.h"

static bool is_held(const struct lock *lock)
{
    return __atomic_load_n(&lock->shared_state, __ATOMIC_RELAXED) != 0;
}

/* How many of the locks that fork takes are held, and how many there are. */
static size_t held_count(size_t *all)
{
    const struct lock *const locks[] = {&hak__heaps_lock, &hak__purge_lock, &hak__whale_lock,
                                        &hak__growth_lock, &hak__region_lock};
    size_t count = 0;
    *all = COUNT_OF(locks);
    for (size_t i = 0; i < COUNT_OF(locks); i++) {
        count += is_held(locks[i]);
    }
    for (const struct heap *heap = hak__heap_first(); heap != NULL; heap = heap->next) {
        count += is_held(&heap->lock);
        ++*all;
    }
    return count;
}

static bool none_is_held(void)
{
    size_t all;
    return held_count(&all) == 0 && hak__lock_fork_owner == NULL && hak__lock_held == 0;
}

/* fork with our handlers: runs `body` in a child and waits for it. */
static void fork_and_run(void (*body)(void))
{
    int status;
    fflush(NULL);
    hak__fork_prepare();
    long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        hak__fork_child();
        alarm(60);
        body();
        _exit(0);
    }
    hak__fork_parent();
    REQUIRE(pid > 0);
    while (waitpid((pid_t)pid, &status, 0) < 0) {
        REQUIRE(errno == EINTR);
    }
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Threads that have a heap with something in its bins, and then wait. */
enum { WAITERS = 5, OBJECTS = 40 };

struct waiter {
    pthread_t thread;
    struct heap *heap;
    char *object; /* in use */
    void *remote; /* of the main thread's heap, in this one's buffer */
};

static struct waiter waiters[WAITERS];
static pthread_barrier_t barrier;

static void *wait_with_a_heap(void *argument)
{
    struct waiter *waiter = argument;
    void *objects[OBJECTS];
    for (size_t i = 0; i < OBJECTS; i++) {
        objects[i] = hak_malloc(200);
        REQUIRE(objects[i] != NULL);
    }
    waiter->object = objects[0];
    memset(waiter->object, 'w', 200);
    for (size_t i = 1; i < OBJECTS; i++) {
        hak_free(objects[i]);
    }
    hak_free(waiter->remote);
    waiter->heap = hak__thread_heap;
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    hak_free(waiter->object);
    return NULL;
}

static void start_waiters(void)
{
    REQUIRE(pthread_barrier_init(&barrier, NULL, WAITERS + 1) == 0);
    for (size_t i = 0; i < WAITERS; i++) {
        waiters[i].remote = hak_malloc(300);
        waiters[i].thread = thread_start(wait_with_a_heap, &waiters[i]);
    }
    pthread_barrier_wait(&barrier);
}

static void end_waiters(void)
{
    pthread_barrier_wait(&barrier);
    for (size_t i = 0; i < WAITERS; i++) {
        thread_join(waiters[i].thread);
    }
}

static void test_all_locks_are_taken_and_released(void **state)
{
    size_t all;
    (void)state;
    start_waiters();
    for (int round = 0; round < 3; round++) {
        assert_true(none_is_held());
        hak__fork_prepare();
        size_t held = held_count(&all);
        assert_int_equal(held, all);
        assert_true(all > WAITERS + 1);
        hak__fork_parent();
        assert_true(none_is_held());
    }
    end_waiters();
}

static void *allocate_something(void *argument)
{
    bool *shared_done = argument;
    hak_free(hak_malloc(100));
    hak_free(hak_malloc(100000));
    __atomic_store_n(shared_done, true, __ATOMIC_RELAXED);
    return NULL;
}

/* Other handlers of the program run between ours: they may allocate, other threads wait. */
static void test_the_forking_thread_may_allocate(void **state)
{
    static const size_t sizes[] = {1, 100, 5000, 60000, 100000, 3 * MIB};
    void *blocks[COUNT_OF(sizes)];
    bool shared_done = false;
    (void)state;
    hak_free(hak_malloc(1)); /* it has a heap */
    hak__fork_prepare();
    pthread_t other = thread_start(allocate_something, &shared_done);
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        blocks[i] = hak_malloc(sizes[i]);
        assert_non_null(blocks[i]);
        memset(blocks[i], (int)i, sizes[i]);
    }
    usleep(20000);
    assert_false(__atomic_load_n(&shared_done, __ATOMIC_RELAXED));
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        hak_free(blocks[i]);
    }
    size_t all, held = held_count(&all);
    assert_int_equal(held, all);
    hak__fork_parent();
    thread_join(other);
    assert_true(shared_done && none_is_held());
}

/* Heaps other than this thread's, in the child. */
static void check_child(void)
{
    size_t parked = 0;
    REQUIRE(none_is_held());
    for (struct heap *heap = hak__heap_first(); heap != NULL; heap = heap->next) {
        REQUIRE(heap->parked == (heap != hak__thread_heap));
        parked += heap->parked;
        if (heap->parked) {
            REQUIRE_SIZE(hak__cache_bytes(&heap->cache), ==, 0);
            REQUIRE(heap->cache.charged == 0);
            for (size_t i = 0; i < REMOTE_ENTRIES; i++) {
                REQUIRE(heap->cache.remote[i].link == 0 && heap->cache.remote[i].count == 0);
            }
        }
    }
    REQUIRE_SIZE(parked, >=, WAITERS);
    REQUIRE(hak__cache_charged == hak__thread_heap->cache.charged);
    for (size_t i = 0; i < WAITERS; i++) {
        char *object = waiters[i].object;
        REQUIRE(object[0] == 'w' && object[199] == 'w');
        hak_free(object); /* a remote free to a parked heap */
    }
    for (size_t i = 0; i < 1000; i++) {
        char *block = hak_malloc(i);
        REQUIRE(block != NULL);
        memset(block, 1, i);
        hak_free(block);
    }
    size_t adopted = 0, waiting = 0;
    struct heap *last = hak__heap_first();
    while (adopted < parked) { /* all can be had, each once */
        struct heap *heap = hak__heap_adopt();
        REQUIRE(heap != NULL && !heap->parked && heap != hak__thread_heap);
        heap->parked = true; /* only so that a second time shows */
        adopted++;
        for (size_t i = 0; i < WAITERS; i++) {
            waiting += heap == waiters[i].heap;
        }
    }
    REQUIRE_SIZE(waiting, ==, WAITERS);
    REQUIRE(hak__heap_first() == last); /* none was made */
    REQUIRE(hak__heap_adopt() == hak__heap_first() && hak__heap_first() != last);
}

static void test_the_child_parks_other_heaps(void **state)
{
    (void)state;
    hak_free(hak_malloc(1));
    start_waiters();
    fork_and_run(check_child);
    assert_true(none_is_held());
    for (size_t i = 0; i < WAITERS; i++) {
        assert_false(waiters[i].heap->parked);
    }
    end_waiters();
}

/* A thread of the parent had just taken this heap off the stack of parked ones. */
static struct heap *between;

static void find_the_heap_between(void)
{
    const struct heap *first = hak__heap_first();
    while (hak__heap_adopt() != between) {
        REQUIRE(hak__heap_first() == first); /* else it was made: ours is lost */
    }
}

static void test_a_heap_on_its_way_to_a_thread(void **state)
{
    (void)state;
    between = hak__heap_adopt();
    between->parked = true;
    fork_and_run(find_the_heap_between);
    between->parked = false;
    hak__heap_park(between);
}

/* A thread without a heap forks, and a handler of the program allocates: the new heap must end up
 * like all others. */
static void *fork_without_a_heap(void *argument)
{
    REQUIRE(hak__thread_heap == &hak__heap_none);
    while (hak__heap_first() != NULL) { /* so that one is made, not adopted */
        const struct heap *first = hak__heap_first();
        if (hak__heap_adopt() == hak__heap_first() && hak__heap_first() != first) {
            break;
        }
    }
    hak__fork_prepare();
    void *block = hak_malloc(100);
    REQUIRE(block != NULL && hak__thread_heap != &hak__heap_none);
    hak__fork_parent();
    REQUIRE(none_is_held());
    hak_free(block);
    return argument;
}

static void fork_without_a_heap_in_a_child(void)
{
    hak__thread_heap = &hak__heap_none;
    fork_without_a_heap(NULL);
}

static void test_a_thread_without_a_heap_forks(void **state)
{
    (void)state;
    hak_free(hak_malloc(1));
    fork_and_run(fork_without_a_heap_in_a_child);
}

static bool shared_stop;

static void *churn(void *argument)
{
    uint64_t random = (uintptr_t)argument;
    void *slots[64] = {NULL};
    while (!__atomic_load_n(&shared_stop, __ATOMIC_RELAXED)) {
        void **slot = &slots[random_below(&random, COUNT_OF(slots))];
        hak_free(*slot);
        *slot = hak_malloc(random_size(&random, 21));
        REQUIRE(*slot != NULL);
        if (random_below(&random, 64) == 0) {
            sched_yield();
        }
    }
    for (size_t i = 0; i < COUNT_OF(slots); i++) {
        hak_free(slots[i]);
    }
    return NULL;
}

static void churn_in_the_child(void)
{
    void *slots[64] = {NULL};
    uint64_t random = 5;
    REQUIRE(none_is_held());
    for (size_t i = 0; i < 3000; i++) {
        void **slot = &slots[random_below(&random, COUNT_OF(slots))];
        hak_free(*slot);
        size_t size = random_size(&random, 22);
        *slot = hak_malloc(size);
        REQUIRE(*slot != NULL);
        memset(*slot, 1, size < 5000 ? size : 5000);
    }
    hak_trim(0);
}

static void test_forks_beside_busy_threads(void **state)
{
    pthread_t threads[4];
    (void)state;
    hak_free(hak_malloc(1));
    __atomic_store_n(&shared_stop, false, __ATOMIC_RELAXED);
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        threads[i] = thread_start(churn, (void *)(uintptr_t)(i + 1));
    }
    for (int i = 0; i < (SUPPORT_SLOW ? 10 : 30); i++) {
        usleep(1000);
        fork_and_run(churn_in_the_child);
    }
    __atomic_store_n(&shared_stop, true, __ATOMIC_RELAXED);
    for (size_t i = 0; i < COUNT_OF(threads); i++) {
        thread_join(threads[i]);
    }
    assert_true(none_is_held());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_locks_are_taken_and_released),
        cmocka_unit_test(test_the_forking_thread_may_allocate),
        cmocka_unit_test(test_the_child_parks_other_heaps),
        cmocka_unit_test(test_a_heap_on_its_way_to_a_thread),
        cmocka_unit_test(test_a_thread_without_a_heap_forks),
        cmocka_unit_test(test_forks_beside_busy_threads),
    };
    return cmocka_run_group_tests(tests, unit_start, NULL);
}
