/* SPDX-License-Identifier: MIT */
/* A thread frees a block, and then another thread does. */
#include "bug.h"
#include <pthread.h>

static void *free_it(void *block)
{
    free(block);
    return NULL;
}

BUG("double free")
{
    pthread_t thread;
    unsigned char *block = make(200);
    pthread_create(&thread, NULL, free_it, block);
    pthread_join(thread, NULL);
    free(hide(block));
    work(200);
}
