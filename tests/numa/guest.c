/* SPDX-License-Identifier: MIT */
/* guest.c: the only program of the machine that numa.sh starts: a thread on each memory node, whose
 * processors have the same numbers. It asks the kernel on which nodes the pages of blocks are, and
 * prints for each phase how many blocks lie wholly on the node of the thread that allocated them.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/reboot.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { NODES = 4, BLOCKS = 6000, PAGE = 4096, PAGES_MAX = 2048, BATCH = 200, BATCHES = 4000 };

static char *blocks[NODES][BLOCKS];
static size_t sizes[NODES][BLOCKS];
static size_t near[NODES], far[NODES];
static pthread_barrier_t barrier;

static void run_on(int node)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(node, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) {
        perror("sched_setaffinity");
    }
}

/* Small blocks, spans, and some above 2 MiB; about 90 MiB for each node. */
static size_t block_size(unsigned i)
{
    return i % 1500 == 0  ? (3 << 20) + i
           : i % 100 == 0 ? (100 << 10) + (i * 977u) % (1 << 20)
           : i % 10 == 0  ? 2000 + (i * 31u) % 60000
                          : 16 + (i * 7u) % 1000;
}

static int is_near(const char *block, size_t size, int node)
{
    static __thread void *pages[PAGES_MAX];
    static __thread int status[PAGES_MAX];
    uintptr_t first = (uintptr_t)block & ~(uintptr_t)(PAGE - 1);
    unsigned long count = ((uintptr_t)block + size - first + PAGE - 1) / PAGE;
    for (unsigned long i = 0; i < count; i++) {
        pages[i] = (void *)(first + i * PAGE);
    }
    if (count > PAGES_MAX || syscall(SYS_move_pages, 0, count, pages, NULL, status, 0) != 0) {
        perror("move_pages");
        return 0;
    }
    for (unsigned long i = 0; i < count; i++) {
        if (status[i] != node) {
            return 0;
        }
    }
    return 1;
}

static void allocate(int node, unsigned step)
{
    for (unsigned i = 0; i < BLOCKS; i += step) {
        if (blocks[node][i] == NULL) {
            sizes[node][i] = block_size(i);
            blocks[node][i] = malloc(sizes[node][i]);
            memset(blocks[node][i], 1, sizes[node][i]);
            *(is_near(blocks[node][i], sizes[node][i], node) ? &near[node] : &far[node]) += 1;
        }
    }
}

static void release(int node, unsigned step)
{
    for (unsigned i = 0; i < BLOCKS; i += step) {
        free(blocks[node][i]);
        blocks[node][i] = NULL;
    }
}

static void report(int node, const char *phase)
{
    pthread_barrier_wait(&barrier);
    if (node == 0) {
        size_t sum[2] = {0, 0};
        for (int i = 0; i < NODES; i++) {
            sum[0] += near[i];
            sum[1] += near[i] + far[i];
            near[i] = far[i] = 0;
        }
        printf("numa: %s: %zu of %zu\n", phase, sum[0], sum[1]);
    }
    pthread_barrier_wait(&barrier);
}

static void *work(void *argument)
{
    int node = (int)(intptr_t)argument, next = (node + 1) % NODES;
    run_on(node);
    pthread_barrier_wait(&barrier);
    allocate(node, 1);
    report(node, "new");
    release(node, 2);
    allocate(node, 2);
    report(node, "again");
    release(next, 1);
    report(node, "freed");
    allocate(node, 1);
    report(node, "freed by others");
    release(node, 1);
    report(node, "freed");
    for (int turn = 0; turn < NODES; turn++) { /* the others have free memory */
        if (turn == node) {
            allocate(node, 1);
            release(node, 1);
        }
        pthread_barrier_wait(&barrier);
    }
    report(node, "beside free memory of others");
    return NULL;
}

static long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* One batch of new blocks, of which up to BATCH live at a time; how many are near. */
static int batch(int node)
{
    static char *ring[BATCH];
    int count = 0;
    for (unsigned i = 0; i < BATCH; i++) {
        size_t size = block_size(1 + i % 99);
        free(ring[i]);
        ring[i] = malloc(size);
        memset(ring[i], 1, size);
        count += is_near(ring[i], size, node);
    }
    return count;
}

/* A thread is moved: how long until 99 % of its new blocks lie on the other node, and stay so. */
static void *move(void *argument)
{
    (void)argument;
    for (int node = 0; node < NODES; node++) {
        run_on(node);
        long from = now_ms(), since = 0;
        int good = 0;
        for (int i = 0; i < BATCHES && good < 20; i++) {
            good = batch(node) * 100 >= BATCH * 99 ? good + 1 : 0;
            since = good == 0 ? 0 : good == 1 ? now_ms() - from : since;
        }
        printf("numa: moved to node %d: %ld ms\n", node, good < 20 ? -1 : since);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[NODES];
    pthread_barrier_init(&barrier, NULL, NODES);
    for (intptr_t i = 0; i < NODES; i++) {
        pthread_create(&threads[i], NULL, work, (void *)i);
    }
    for (int i = 0; i < NODES; i++) {
        pthread_join(threads[i], NULL);
    }
    pthread_create(&threads[0], NULL, move, NULL);
    pthread_join(threads[0], NULL);
    printf("numa: end\n");
    fflush(NULL);
    reboot(RB_AUTOBOOT); /* ends the machine: it was started with -no-reboot */
    return 1;
}
