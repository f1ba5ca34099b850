/* SPDX-License-Identifier: MIT */
/* stacks.h: the call stacks of samples, each stored once, with what was allocated and freed there.
 *
 * The stack of the calling thread comes from the unwinder of the compiler's runtime
 * (_Unwind_Backtrace in libgcc_s), which reads the tables that every C++ program has and needs no
 * frame pointers. With glibc 2.35 or later it takes no lock and allocates nothing: it finds tables
 * by _dl_find_object. So it may run inside malloc. In a static program it takes a mutex and
 * allocates at its first run, which hak__stacks_start does; an allocation in it gets no stack.
 * Where the unwinder comes to code without tables, the rest of the stack is read by frame pointers
 * (observe/frame_pointers.c).
 *
 * Bounds: STACK_DEPTH_MAX frames a stack; further frames, those of main, are cut, and STACK_CUT
 * stands at their place. The table takes
 * STACKS_BYTES_MAX; when it is full, new stacks share one entry without frames. Stacks are never
 * removed: a profile wants the sums of all time.
 *
 * Lock: the caller holds SAMPLES, except for hak__stacks_start and hak__stack_capture. */
#ifndef HAK_OBSERVE_STACKS_H
#define HAK_OBSERVE_STACKS_H

#include "observe/sites.h"

/* Return addresses of one stack. Twice as many: twice the time to unwind deep stacks. Half: the
 * roots of deep stacks are cut, and flame graphs of recursive programs fall apart. */
#define STACK_DEPTH_MAX 64u
/* The last frame of a stack whose outer frames are cut. */
#define STACK_CUT ((uintptr_t)0)
/* Memory of all stacks, bytes. A stack of 20 frames takes 384 bytes, so 64 MiB hold 170,000; a
 * large program has some 10,000. Half: programs with many more share one entry sooner. */
#define STACKS_BYTES_MAX ((size_t)64 << 20)

/* Moments at which the live bytes of each stack are noted, so that a profile shows which stacks
 * only grow. When all are used, every second one is dropped, and the time between two moments
 * doubles. Twice as many: 64 bytes more a stack. Half: less than 4 moments may be left. */
#define HISTORY_MAX 16u
/* Milliseconds between the first two moments. Half: a program that ends at once has more of
 * them. */
#define HISTORY_START_MS 16u

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

/* What layer observe keeps for each thread, in one word: a library that is loaded late has little
 * room for such variables. */
struct observe_own {
    uint32_t is_walking : 1; /* the unwinder of the compiler's runtime runs */
    uint32_t number : 31;    /* from 1, as threads first allocate or free a sample; 0: none yet */
};
HAK_HIDDEN extern HAK_TLS struct observe_own hak__observe_own;

/* Looks for the unwinder. False: the program has none, or a static program has not announced its
 * code to it yet (its own constructors do), and all stacks are empty. With `load` it opens libgcc_s
 * if the program has not, so it must run where dlopen may: not inside malloc, and not in a
 * constructor. (hakmem's run first. A library that is opened then makes the loader initialise the C
 * library before its time, without the environment.) */
HAK_HIDDEN bool hak__stacks_start(bool load);

/* Stores the calling thread's return addresses, at most STACK_DEPTH_MAX, innermost first. Of a
 * frame that a signal interrupted it stores the address of the next instruction plus 1: so the byte
 * before each stored address belongs to what the frame runs. Returns their number; 0: there is no
 * unwinder, or it runs in this thread already. No lock. */
HAK_HIDDEN uint32_t hak__stack_capture(uintptr_t *frames);
/* True: with an older C library the unwinder takes the loader's lock (dl_iterate_phdr). In fork's
 * child nobody releases it if another thread held it, so the child of a process with threads takes
 * no stacks then: hak__stacks_fork_child (control/life.h). */
HAK_HIDDEN extern bool hak__stacks_lock_loader;

/* Number of innermost frames that are hakmem's own. The next one is the site of the allocation. No
 * lock. */
HAK_HIDDEN uint32_t hak__stack_own(const uintptr_t *frames, uint32_t depth);

/* The stored stack with these frames, that site, which may be NULL, and that thread, which may be
 * 0; makes it if there is none. When half of the table is full, new stacks are no longer kept apart
 * by thread. NULL: no memory at all. */
HAK_HIDDEN struct stack *hak__stack_of(const struct site *site, uint32_t thread,
                                       const uintptr_t *frames, uint32_t depth);

/* Notes the live bytes of all stacks if the next moment has come. `now_ms` is a clock that does not
 * wrap. Takes some nanoseconds for each stack, and then twice as long nothing. */
HAK_HIDDEN void hak__stacks_note_history(uint64_t now_ms);
/* The clock at the moments so far, in milliseconds. Returns their number. */
HAK_HIDDEN uint32_t hak__stacks_history(uint64_t times_ms[HISTORY_MAX]);

/* The first of all stacks, newest first; follow `older`. */
HAK_HIDDEN struct stack *hak__stack_first(void);

/* True: the code at the address has unwind tables. */
typedef bool frame_table(uintptr_t address);

/* Appends to the `depth` return addresses, innermost first, of which the last one is in code
 * without tables, the callers of that code, until there are `depth_max`. The two pointers are the
 * registers of that code. Returns the number of addresses. */
HAK_HIDDEN uint32_t hak__frame_pointers_follow(uintptr_t *frames, uint32_t depth,
                                               uint32_t depth_max, uintptr_t stack_pointer,
                                               uintptr_t frame_pointer, frame_table *has_table);

#endif
