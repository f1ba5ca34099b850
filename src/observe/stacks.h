/* SPDX-License-Identifier: MIT */
/* stacks.h: the call stacks of samples, each stored once, with what was allocated and freed there.
 *
 * The stack of the calling thread comes from unwind.h, which may run inside malloc.
 *
 * Bounds: STACK_DEPTH_MAX frames a stack; further frames, those of main, are cut, and STACK_CUT
 * stands at their place. The table takes STACKS_BYTES_MAX. When half of it is full, new stacks get
 * an eighth of the frames, and when three quarters are, a quarter of these. When it is full, new
 * stacks share one entry, of which all frames are cut. Stacks are never removed: a profile wants
 * the sums of all time.
 *
 * Lock: the caller holds SAMPLES, except for hak__stacks_start and hak__stack_capture. */
#ifndef HAK_OBSERVE_STACKS_H
#define HAK_OBSERVE_STACKS_H

#include "observe/sites.h"

/* Return addresses of one stack. Twice as many: twice the time to unwind deep stacks, 2 KiB more
 * for each. Half: the roots of interpreters' and compilers' stacks are cut. */
#define STACK_DEPTH_MAX 256u
/* The last frame of a stack whose outer frames are cut; the only one of the stacks without room. */
#define STACK_CUT ((uintptr_t)0)
/* Memory of all stacks, bytes. A stack of 20 frames takes 384 bytes, so 64 MiB hold 170,000; a
 * large program has some 10,000. Half: programs with many more share one entry sooner. */
#define STACKS_BYTES_MAX ((size_t)64 << 20)

/* Moments at which the live bytes of each stack are noted, so that a profile shows which stacks
 * only grow. When all are used, every second one is dropped, and the time between two moments
 * doubles. Twice as many: 64 bytes more a stack. Half: less than 4 moments may be left. */
#define HISTORY_MAX 16u

/* Sums of weighted samples. Counts are numbers of blocks, estimated. */
struct stack_sums {
    double allocated_count;
    double allocated_bytes; /* as requested */
    double freed_count;
    double freed_bytes;
    double usable_bytes; /* of all allocated blocks */
    double freed_remote; /* count of blocks that another thread freed */
    double live_age_ms;  /* of blocks in use: minus the sum of weight times clock at allocation */
    double lifetime_ms;  /* of freed blocks, each times its weight */
    uint64_t samples_count; /* not weighted */
    uint64_t samples_live;  /* not weighted: of blocks in use */
    /* Of the blocks in use when the live bytes of all stacks were highest; kept at the first change
     * after that moment, which has a number (samples.c). */
    uint64_t peak_number;
    uint64_t peak_samples; /* not weighted */
    double peak_count;
    double peak_bytes;
    /* Of the blocks in use that were allocated since a moment (hak__samples_look_since). */
    struct {
        double count, bytes, age_ms; /* as live_age_ms */
        uint64_t samples;
    } since;
};

struct stack {
    struct stack *next;  /* in its bucket; constant */
    struct stack *older; /* in the list of all */
    uint64_t hash;
    struct stack_sums sums;     /* under SAMPLES */
    float history[HISTORY_MAX]; /* live bytes at the moments; under SAMPLES */
    const struct site *site;    /* NULL: the program gave no id; then it follows from the frames */
    uint32_t depth;
    uint32_t thread;    /* that took the samples; 0: any (observe/samples.h) */
    uintptr_t frames[]; /* return addresses with numbers (loaded.h), innermost first */
};

/* Looks for unwind tables. False: there are none, and all stacks are empty. Not inside malloc. */
HAK_HIDDEN bool hak__stacks_start(void);

/* Stores the calling thread's return addresses, innermost first, at most `depth_max`; the last one
 * is STACK_CUT if there are more. Of a frame that a signal interrupted it stores the address of the
 * next instruction plus 1: so the byte before each stored address belongs to what the frame runs.
 * Returns their number. No lock. */
HAK_HIDDEN uint32_t hak__stack_capture(uintptr_t *frames, uint32_t depth_max);
/* True: with an older C library a walk takes the loader's lock (dl_iterate_phdr). In fork's child
 * nobody releases it if another thread held it, so the child of a process with threads takes no
 * stacks then: hak__stacks_fork_child (control/life.h). */
HAK_HIDDEN extern bool hak__stacks_lock_loader;

/* Number of innermost frames that are hakmem's own. The next one is the site of the allocation. No
 * lock. */
HAK_HIDDEN uint32_t hak__stack_own(const uintptr_t *frames, uint32_t depth);

/* The stored stack with these frames, that site, which may be NULL, and that thread, which may be
 * 0; makes it if there is none. `frames` may be cut. When half of the table is full, new stacks are
 * no longer kept apart by thread. NULL: no memory at all. */
HAK_HIDDEN struct stack *hak__stack_of(const struct site *site, uint32_t thread, uintptr_t *frames,
                                       uint32_t depth);

/* Notes the live bytes of all stacks if the next moment has come. `now_ms` is a clock that does not
 * wrap. Takes some nanoseconds for each stack, and then twice as long nothing. */
HAK_HIDDEN void hak__stacks_note_history(uint64_t now_ms);
/* The clock at the moments so far, in milliseconds. Returns their number. */
HAK_HIDDEN uint32_t hak__stacks_history(uint64_t times_ms[HISTORY_MAX]);

/* The first of all stacks, newest first; follow `older`. */
HAK_HIDDEN struct stack *hak__stack_first(void);

#endif
