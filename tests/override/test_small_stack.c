/* test_small_stack.c: threads with the smallest stack the system allows use every tier and every
 * slow path: hakmem needs little stack (large ones are how many a coroutine library dies). */
#include "override.h"

#include <malloc.h>
#include <pthread.h>

enum { ROUNDS_COUNT = 30, THREADS_COUNT = 4, BLOCKS_COUNT = 200 };

static void *run_thread(void *argument)
{
    uint64_t state = (uintptr_t)argument + 1;
    void *blocks[BLOCKS_COUNT] = {0};
    const size_t bounds[] = {64, 1024, 65536, 2 << 20, 16 << 20};
    for (size_t i = 0; i < 5000; i++) {
        uint64_t number = random_next(&state);
        size_t slot = number % BLOCKS_COUNT;
        size_t bound = bounds[i % 100 == 0 ? (i / 100) % 5 : (i % 10 == 0 ? 2 : 1)];
        size_t size = (number >> 8) % bound;
        void *block = blocks[slot];
        switch (number >> 60) {
        case 0:
            give_back(block);
            block = calloc(opaque_size(size), 1);
            break;
        case 1:
            give_back(block);
            block = memalign((size_t)1 << (number >> 40) % 16, size);
            break;
        case 2:
        case 3:
        case 4:
            block = realloc(opaque_pointer(block), opaque_size(size + 1));
            break;
        case 5:
            give_back(block);
            block = get_memory(1);
            break;
        default:
            give_back(block);
            block = get_memory(size);
            break;
        }
        CHECK(block != NULL);
        blocks[slot] = block;
    }
    CHECK(malloc_trim(0) >= 0);
    CHECK(mallinfo2().uordblks > 0);
    CHECK(malloc(opaque_size(SIZE_MAX)) == NULL);
    for (size_t i = 0; i < BLOCKS_COUNT; i++) {
        give_back(blocks[i]);
    }
    return NULL;
}

int main(void)
{
    prove_served();
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    long smallest = sysconf(_SC_THREAD_STACK_MIN);
    CHECK(smallest > 0);
    CHECK(pthread_attr_setstacksize(&attributes, (size_t)smallest) == 0);
    for (uintptr_t round = 0; round < ROUNDS_COUNT; round++) {
        pthread_t threads[THREADS_COUNT];
        for (uintptr_t i = 0; i < THREADS_COUNT; i++) {
            void *argument = (void *)(round * THREADS_COUNT + i);
            CHECK(pthread_create(&threads[i], &attributes, run_thread, argument) == 0);
        }
        for (size_t i = 0; i < THREADS_COUNT; i++) {
            CHECK(pthread_join(threads[i], NULL) == 0);
        }
    }
    CHECK(pthread_attr_destroy(&attributes) == 0);
    return 0;
}
