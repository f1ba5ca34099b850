/* SPDX-License-Identifier: MIT */
/* Both frees find the block alone in its slab, which is emptied and used anew between them. */
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
    unsigned char *block = make(3000);
    free(block);
    pthread_create(&thread, NULL, free_it, hide(block));
    pthread_join(thread, NULL);
    unsigned char *first = make(3000), *second = make(3000);
    if (first == second) {
        harmed();
    }
}
