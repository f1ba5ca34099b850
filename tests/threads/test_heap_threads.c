/* SPDX-License-Identifier: MIT */
/* test_heap_threads.c: heaps (hakmem/heap.h) that more threads than processors use at
 * once: objects go from thread to thread, threads end, heaps are destroyed while living threads
 * have objects of them in their caches, and the process forks. */
#include "threads.h"

#include <hakmem/heap.h>

enum { WORKERS = 8, SLOTS = 512, LIVES = 4 };

struct shared {
    hak_heap *heap;
    void *slots[SLOTS];
    bool plain; /* frees go through hak_free, too */
};

static void *exchange(struct shared *shared, size_t slot, void *object)
{
    return __atomic_exchange_n(&shared->slots[slot], object, __ATOMIC_ACQ_REL);
}

static void object_free(struct shared *shared, uint64_t *object, uint64_t *random)
{
    if (object == NULL) {
        return;
    }
    size_t size = object[0];
    REQUIRE_SIZE(hak_heap_usable_size(shared->heap, object), >=, size);
    REQUIRE(((unsigned char *)object)[size - 1] == (unsigned char)size);
    switch (random_below(random, 3)) {
    case 0:
        hak_heap_free_sized(shared->heap, object, 1, size);
        break;
    case 1:
        if (shared->plain) {
            hak_free(object);
            break;
        }
        /* fall through */
    default:
        hak_heap_free(shared->heap, object);
    }
}

static void use(struct shared *shared, uint64_t seed, size_t rounds)
{
    uint64_t random = seed;
    for (size_t i = 0; i < rounds; i++) {
        size_t size = 16 + random_size(&random, i % 64 == 0 ? 19 : 11);
        uint64_t *object = hak_heap_malloc(shared->heap, size);
        REQUIRE(object != NULL);
        object[0] = size;
        ((unsigned char *)object)[size - 1] = (unsigned char)size;
        object_free(shared, exchange(shared, random_below(&random, SLOTS), object), &random);
    }
}

static void *live(void *argument)
{
    struct shared *shared = argument;
    use(shared, (uintptr_t)&shared, SUPPORT_SLOW ? 1000 : 3000);
    return NULL;
}

static void *work(void *argument)
{
    for (size_t i = 0; i < LIVES; i++) {
        thread_join(thread_start(live, argument));
    }
    return NULL;
}

static void check_empty(struct shared *shared)
{
    uint64_t random = 1;
    struct hak_heap_stats stats;
    for (size_t i = 0; i < SLOTS; i++) {
        object_free(shared, exchange(shared, i, NULL), &random);
    }
    hak_heap_trim(shared->heap);
    hak_heap_stats_read(shared->heap, &stats, sizeof stats);
    REQUIRE_SIZE(stats.objects_in_use_count, ==, 0);
    REQUIRE_SIZE(stats.bytes_cached, ==, 0); /* all other threads have ended */
    REQUIRE_SIZE(stats.threads_count, ==, 1);
    REQUIRE_SIZE(stats.bytes_free_in_slabs, ==, 0);
}

static void share(struct shared *shared)
{
    pthread_t workers[WORKERS];
    for (size_t i = 0; i < WORKERS; i++) {
        workers[i] = thread_start(work, shared);
    }
    use(shared, 1, SUPPORT_SLOW ? 2000 : 6000);
    JOIN_ALL(workers, WORKERS);
    check_empty(shared);
}

/* In memory of hakmem's, then in the program's. */
TEST(objects_go_from_thread_to_thread)
{
    static struct shared shared;
    struct hak_heap_options options = {.size = sizeof options};
    for (int i = 0; i < 2; i++) {
        shared = (struct shared){.heap = hak_heap_create(&options), .plain = i == 0};
        share(&shared);
        hak_heap_destroy(shared.heap);
        options.memory_size = 256 * MIB;
        options.memory = support_map(options.memory_size);
    }
}

/* --- heaps come and go; threads that used them live on, with objects of them in their caches ---
 */

enum { HEAPS = 60 };
static pthread_barrier_t barrier;
static hak_heap *current;

static void *keep_using(void *argument)
{
    uint64_t random = (uintptr_t)argument + 1;
    for (size_t i = 0; i < HEAPS; i++) {
        pthread_barrier_wait(&barrier); /* the heap is there */
        for (size_t round = 0; round < 300; round++) {
            size_t size = 16 + random_size(&random, 12);
            void *object = hak_heap_malloc(current, size);
            REQUIRE(object != NULL);
            memset(object, 1, size);
            if (round % 3 != 0) {
                hak_heap_free(current, object); /* the others are in use when the heap goes */
            }
        }
        pthread_barrier_wait(&barrier); /* the heap goes */
    }
    return NULL;
}

TEST(destroyed_under_living_threads)
{
    pthread_t workers[WORKERS];
    struct hak_stats before = stats_now();
    assert_int_equal(pthread_barrier_init(&barrier, NULL, WORKERS + 1), 0);
    threads_start(workers, WORKERS, keep_using, 0);
    for (size_t i = 0; i < HEAPS; i++) {
        current = hak_heap_create(NULL);
        REQUIRE(current != NULL);
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
        struct hak_heap_stats stats;
        hak_heap_stats_read(current, &stats, sizeof stats);
        REQUIRE_SIZE(stats.objects_in_use_count, ==, WORKERS * 100);
        hak_heap_destroy(current);
    }
    JOIN_ALL(workers, WORKERS);
    assert_true(stats_now().bytes_in_use <= before.bytes_in_use + 64 * KIB);
    pthread_barrier_destroy(&barrier);
}

/* A thread that ends while its heap is destroyed: nobody has ordered the two. */
static void *use_and_end(void *argument)
{
    hak_heap *heap = *(hak_heap **)argument;
    for (size_t i = 0; i < 50; i++) {
        hak_heap_free(heap, hak_heap_malloc(heap, 16 * i));
    }
    pthread_barrier_wait(&barrier);
    return NULL;
}

TEST(destroyed_beside_a_threads_end)
{
    assert_int_equal(pthread_barrier_init(&barrier, NULL, 2), 0);
    for (size_t i = 0; i < (SUPPORT_SLOW ? 200 : 1000); i++) {
        hak_heap *heap = hak_heap_create(NULL);
        pthread_t thread = thread_start(use_and_end, &heap);
        pthread_barrier_wait(&barrier);
        hak_heap_destroy(heap);
        thread_join(thread);
    }
    pthread_barrier_destroy(&barrier);
}

/* --- more heaps than a thread has slots: the older ones are in its table --- */

enum { MANY = 500, USERS = 3, ROUNDS = 6 };
static hak_heap *many[MANY];

static void use_at_random(uint64_t random)
{
    for (size_t i = 0; i < 4 * (size_t)MANY; i++) {
        hak_heap *heap = many[random_below(&random, MANY)];
        void *object = hak_heap_malloc(heap, 100);
        REQUIRE(object != NULL);
        memset(object, 1, 100);
        if (i % 8 != 0) {
            hak_heap_free(heap, object);
        }
    }
}

static void *use_many(void *argument)
{
    for (size_t round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&barrier); /* the heaps are there */
        use_at_random((uintptr_t)argument + round);
        pthread_barrier_wait(&barrier); /* some go */
    }
    return NULL;
}

TEST(many_heaps)
{
    pthread_t users[USERS];
    assert_int_equal(pthread_barrier_init(&barrier, NULL, USERS + 1), 0);
    for (size_t i = 0; i < USERS; i++) {
        users[i] = thread_start(use_many, (void *)(i << 8));
    }
    for (size_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < MANY; i += round == 0 ? 1 : 3) {
            struct hak_heap_stats stats = {0};
            if (many[i] != NULL) {
                hak_heap_stats_read(many[i], &stats, sizeof stats);
                hak_heap_destroy(many[i]);
            }
            REQUIRE_SIZE(stats.threads_count, <=, USERS + 1); /* no thread made a second cache */
            many[i] = hak_heap_create(NULL);
            REQUIRE(many[i] != NULL);
        }
        pthread_barrier_wait(&barrier);
        use_at_random(round);
        pthread_barrier_wait(&barrier);
    }
    JOIN_ALL(users, USERS);
    for (size_t i = 0; i < MANY; i++) {
        hak_heap_destroy(many[i]);
    }
    pthread_barrier_destroy(&barrier);
}

/* --- destructors of thread-specific data run after the caches of the thread have gone --- */

static pthread_key_t key;

static void use_late(void *value)
{
    hak_heap *heap = value;
    void *object = hak_heap_malloc(heap, 100), *block = hak_heap_malloc(heap, 100000);
    REQUIRE(object != NULL && block != NULL);
    memset(object, 1, 100);
    hak_heap_free_sized(heap, object, 1, 100);
    hak_heap_free(heap, block);
    (void)!hak_heap_malloc(heap, 50); /* stays */
}

static void *end_late(void *argument)
{
    use_late(argument);
    REQUIRE(pthread_setspecific(key, argument) == 0);
    return NULL;
}

TEST(used_after_a_threads_end)
{
    enum { THREADS = 50 };
    assert_int_equal(pthread_key_create(&key, use_late), 0); /* hakmem's key is older */
    hak_heap *heap = hak_heap_create(NULL);
    for (size_t i = 0; i < THREADS; i++) {
        thread_join(thread_start(end_late, heap));
    }
    struct hak_heap_stats stats;
    hak_heap_stats_read(heap, &stats, sizeof stats);
    assert_int_equal(stats.objects_in_use_count, 2 * THREADS);
    assert_int_equal(stats.threads_count, 0);
    assert_int_equal(stats.bytes_cached, 0);
    hak_heap_destroy(heap);
    pthread_key_delete(key);
}

/* --- fork --- */

static volatile bool stop;

static void *use_until_stopped(void *argument)
{
    for (uint64_t i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++) {
        use(argument, i, 500);
    }
    return NULL;
}

static bool count_objects(void *object, size_t bytes, void *argument)
{
    *(size_t *)argument += bytes != 0;
    return true;
}

static void in_child(struct shared *shared, hak_heap *own, uint64_t *kept)
{
    alarm(280);
    /* What the other threads wrote during the fork may be there in part, so their slots are not. */
    static struct shared mine;
    mine.heap = shared->heap;
    mine.plain = true;
    use(&mine, 5, 1000);
    REQUIRE(kept[0] == 77);
    hak_heap_free(own, kept);
    size_t count = 0;
    REQUIRE(hak_heap_walk(own, count_objects, &count));
    REQUIRE_SIZE(count, ==, 9);
    count = 0;
    REQUIRE(hak_heap_walk(shared->heap, count_objects, &count)); /* free ones of lost caches, too */
    hak_heap_destroy(shared->heap);
    hak_heap_destroy(own);
    hak_heap *heap = hak_heap_create(NULL);
    REQUIRE(hak_heap_malloc(heap, 100) != NULL);
    hak_heap_destroy(heap);
    _exit(0);
}

TEST(fork)
{
    static struct shared shared;
    pthread_t workers[WORKERS];
    shared = (struct shared){.heap = hak_heap_create(NULL), .plain = true};
    for (size_t i = 0; i < WORKERS; i++) {
        workers[i] = thread_start(use_until_stopped, &shared);
    }
    hak_heap *own = hak_heap_create(NULL);
    uint64_t *kept = hak_heap_malloc(own, 100);
    kept[0] = 77;
    for (size_t i = 0; i < 9; i++) {
        hak_heap_free(own, hak_heap_malloc(own, 5000));
        REQUIRE(hak_heap_malloc(own, 100 * (i + 1)) != NULL);
    }
    for (size_t i = 0; i < (SUPPORT_SLOW ? 10 : 30); i++) {
        pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            in_child(&shared, own, kept);
        }
        use(&shared, i, 200);
        int status;
        REQUIRE(waitpid(child, &status, 0) == child);
        REQUIRE(status == 0);
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    JOIN_ALL(workers, WORKERS);
    check_empty(&shared);
    hak_heap_destroy(shared.heap);
    hak_heap_destroy(own);
}

TESTS(NULL)
