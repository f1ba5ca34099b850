/* SPDX-License-Identifier: MIT */
/* sample_threads.h: the names of the threads that take samples, for profiles by thread
 * (HAKMEM_PROFILE_THREADS). The stacks of samples are then kept apart by thread.
 *
 * Lock: the caller holds SAMPLES. */
#ifndef HAK_OBSERVE_SAMPLE_THREADS_H
#define HAK_OBSERVE_SAMPLE_THREADS_H

#include "base/compiler.h"

#include <stdint.h>

/* Threads with stacks of their own; later ones share the number 0. Twice as many: a server with a
 * thread for each connection fills the table of stacks sooner. Half: a large pool is cut. */
#define SAMPLE_THREADS_MAX 512u
#define SAMPLE_THREAD_NAME_SIZE 16u /* the kernel's, with the zero */

struct sample_thread {
    uint32_t id; /* the kernel's; 0: took no sample */
    char name[SAMPLE_THREAD_NAME_SIZE];
};

/* The calling thread, whose number in layer observe is `number`, takes a sample: notes its id and
 * its present name. Returns the number that its stacks get; 0: none of its own. */
HAK_HIDDEN uint32_t hak__sample_thread_note(uint32_t number);
/* NULL: no thread with this number has taken a sample. */
HAK_HIDDEN const struct sample_thread *hak__sample_thread_of(uint32_t number);

#endif
