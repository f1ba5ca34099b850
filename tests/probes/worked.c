/* SPDX-License-Identifier: MIT */
/* worked.c: the program of the probe tests. It does a little of all that has a probe, except for
 * work that is refused, which needs a fork at the right moment. Then it writes a report to standard
 * output. The report at exit would map a buffer for itself. */
#include <hakmem/hakmem.h>
#include <hakmem/stats.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL = 5000, SPANS = 20, SPAN_SIZE = 1 << 20, HUGE_SIZE = 8 << 20 };
static void *blocks[SMALL];

static void *allocate(void *unused)
{
    for (size_t i = 0; i < SMALL; i++) {
        blocks[i] = malloc(16 + i % 500);
        memset(blocks[i], 1, 16);
    }
    return unused;
}

static void on_limit(size_t mapped, void *argument)
{
    (void)mapped;
    (void)argument;
}

static void take(void *argument, const char *text, size_t size)
{
    fwrite(text, 1, size, argument);
}

int main(void)
{
    static char buffer[1 << 16]; /* so that stdio allocates none while the report is written */
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    pthread_t thread;
    if (pthread_create(&thread, NULL, allocate, NULL) != 0 || pthread_join(thread, NULL) != 0) {
        return 1;
    }
    for (size_t i = 0; i < SMALL; i += 2) { /* remote frees */
        free(blocks[i]);
    }
    allocate(NULL);
    for (size_t i = 0; i < SMALL; i++) {
        free(blocks[i]);
    }
    for (size_t i = 0; i < SPANS; i++) {
        blocks[i] = malloc(SPAN_SIZE);
        memset(blocks[i], 1, SPAN_SIZE);
    }
    for (size_t i = 0; i < SPANS; i += 2) {
        free(blocks[i]);
    }
    malloc_trim(0); /* purges */
    void *block = malloc(HUGE_SIZE);
    for (size_t size = 2 * HUGE_SIZE; size <= 8 * HUGE_SIZE; size += HUGE_SIZE) {
        block = realloc(block, size);
    }
    free(block);
    hak_limit_set(1, SIZE_MAX, on_limit, NULL); /* everything is too much */
    free(malloc(HUGE_SIZE));
    void *impossible = malloc((size_t)1 << 47); /* as many addresses as there are */
    hak_report(HAK_REPORT_JSON, take, stdout);
    return impossible != NULL;
}
