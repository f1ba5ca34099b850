/* SPDX-License-Identifier: MIT */
/* samples.h: the live samples. Each sampled block has a record with its stack, until it is freed.
 *
 *   malloc   the bytes to the thread's next sample run out (arena/sampling.c)
 *              object of a slab class -> hak__sample_object: of a slab from which no thread
 *                                        draws, so that free knows it by its owner word
 *              span, huge block       -> hak__sample_block: the block stays where it is
 *   free     any of them              -> hak__sample_forget, then as if it were none
 *
 * A block's record is found by its address. A record that could not be removed because a fork was
 * under way (core/gate.h) is removed when another sample gets the address.
 *
 * A sample also belongs to a site (sites.h): the calling thread's, or the address of the caller.
 *
 * Lock: SAMPLES, taken inside the gate. The stack is captured before, without a lock. */
#ifndef HAK_OBSERVE_SAMPLES_H
#define HAK_OBSERVE_SAMPLES_H

#include "base/atomics.h"
#include "core/lock.h"
#include "hakmem/stats.h"
#include "observe/stacks.h"

/* Makes a free object of the arena of samples the sample of a request of `size` bytes, drawn with
 * `period`. The caller hands it out. NULL: no memory, or refused: the request is not sampled. */
HAK_HIDDEN void *hak__sample_object(uint32_t class_index, size_t size, uint64_t period);
/* Notes that a span or huge block is a sample. */
HAK_HIDDEN void hak__sample_block(void *pointer, size_t size, size_t usable, uint64_t period);
/* Notes that a block is about to be freed or moved, if it is a sample. False: it is none; true also
 * if refused. Any thread, also in a signal handler. Keeps errno. */
HAK_HIDDEN bool hak__sample_forget(const void *pointer);

/* Blocks that have a record. */
HAK_HIDDEN extern size_t hak__samples_count;
/* Guards live samples and their stacks. */
HAK_HIDDEN extern struct lock hak__samples_lock;
/* Before the free of a span or a huge block, which may be a sample. */
HAK_INLINE void sample_forget_block(const void *pointer)
{
    if (HAK_UNLIKELY(atomic_load_relaxed(&hak__samples_count) != 0)) {
        (void)hak__sample_forget(pointer);
    }
}

/* Milliseconds of a monotonic clock that does not wrap. Any thread. */
HAK_HIDDEN uint64_t hak__samples_clock_ms(void);
/* Enters the gate and takes SAMPLES; the reverse. `patiently`: waits for the end of a fork, so the
 * caller holds no lock of the C library. False: refused (core/gate.h), which is not noted. */
HAK_HIDDEN bool hak__samples_enter(bool patiently);
HAK_HIDDEN void hak__samples_leave(void);

/* Moments at which the live bytes of all stacks were noted, and now, on a clock in milliseconds. */
struct samples_history {
    uint64_t times_ms[HISTORY_MAX];
    uint64_t now_ms;
    uint32_t count;
    double peak_bytes; /* the most live bytes of all stacks together */
    uint64_t peak_ms;  /* since when; the clock of now_ms */
};
/* The newest of all stacks; follow `older`, which is constant. NULL: there is none. This and the
 * next two functions enter the gate and wait for the end of a fork. Any thread, no lock held. */
HAK_HIDDEN const struct stack *hak__samples_first_stack(struct samples_history *history);
/* Sets `since` of all stacks; the observer's thread alone calls it. */
HAK_HIDDEN void hak__samples_look_since(uint64_t since_ms);
/* Copies the sums of the stack, and its live bytes at the moments of the history. False: refused
 * (core/gate.h). */
HAK_HIDDEN bool hak__samples_copy(const struct stack *stack, struct stack_sums *sums,
                                  float live_bytes[HISTORY_MAX]);

/* Before the first sample: looks for the unwinder, and notes the moment. False: there is none.
 * Defined in profile.c. */
HAK_HIDDEN bool hak__profile_begin(void);
/* As hak_profile_write. With `since_ms`, a moment on the clock of hak__samples_clock_ms, blocks in
 * use are those that were allocated since; the observer's thread alone does so. */
HAK_HIDDEN void hak__profile_write(hak_report_sink *sink, void *argument, uint64_t since_ms);

/* The names of the threads that take samples, for profiles by thread (HAKMEM_PROFILE_THREADS). The
 * stacks of samples are then kept apart by thread. The caller holds SAMPLES. */

/* Threads with stacks of their own; later ones share the number 0. Twice as many: a server with a
 * thread for each connection fills the table of stacks sooner. Half: a large pool is cut. */
#define SAMPLE_THREADS_MAX 512u

struct sample_thread {
    uint32_t id;   /* the kernel's; 0: took no sample */
    char name[16]; /* the kernel's, with the zero */
};

/* NULL: no thread with this number has taken a sample. */
HAK_HIDDEN const struct sample_thread *hak__sample_thread_of(uint32_t number);

#endif
