/* SPDX-License-Identifier: MIT */
/* recorder.h: the lane, into which one thread writes its events, and how a wrapper uses it.
 *
 * A wrapper calls lane_enter, passes the call on to `next`, writes the event by lane_record, and
 * calls lane_leave. lane_enter returns NULL where nothing is to be recorded: inside another
 * wrapper of the thread, in a signal handler that interrupted one, or when recording has stopped.
 *
 * State  lanes are mapped, never allocated. A thread keeps its lane until the kernel knows it no
 *        more, since libraries free memory in the very last steps of a thread. The next thread
 *        that starts then goes on in the lane, behind an event that tells its number.
 * Locks  lane->writing: who packs the lane's events. The owner, when the lane is full; any thread,
 *        when the process ends or becomes another program. */
#ifndef TRACE_RECORDER_H
#define TRACE_RECORDER_H

#include <stdatomic.h>

#include "encode.h"

#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)
/* The library is loaded at start, so a few bytes of static TLS are always there. */
#define RECORDER_TLS _Thread_local __attribute__((tls_model("initial-exec")))
#define CALLER ((uint64_t)(uintptr_t)__builtin_return_address(0))

#define LANE_PAGES_MAX 1024
#define LANE_CALLERS 1024u /* callers that are known to be sites */

struct lane {
    struct lane *older;             /* all lanes; written before the lane is published */
    _Atomic uint32_t shared_owner;  /* the kernel's number of a thread; 0: nobody */
    _Atomic uint32_t shared_ending; /* 1: free as soon as the owner is gone */
    _Atomic uint32_t shared_writing;
    _Atomic uint32_t shared_count; /* events in the buffer; the owner publishes each */
    uint32_t number;               /* from 1 on */
    uint32_t thread;               /* owner: its number in the trace */
    uint32_t depth;                /* owner: inside a wrapper */
    uint32_t written;              /* events in the file already; under `writing`, as the next */
    uint32_t written_thread;       /* thread of the first event that is not in the file */
    uint32_t frames;
    uint64_t resident;              /* bytes of the lane, as far as they count for the recorder */
    _Atomic uint32_t shared_missed; /* calls that were passed on unrecorded */
    struct trace_event events[TRACE_EVENTS_MAX];
    struct encoder encoder;
    unsigned char pages[LANE_PAGES_MAX]; /* for mincore */
    uint64_t callers[LANE_CALLERS];      /* owner: callers.h */
};
_Static_assert(sizeof(struct lane) <= LANE_PAGES_MAX * 4096u, "a byte for each page");

/* The allocator that serves the program: the next library that has these names. */
struct next_functions {
    void *(*malloc)(size_t size);
    void *(*calloc)(size_t count, size_t size);
    void *(*realloc)(void *pointer, size_t size);
    void (*free)(void *pointer);
    void *(*memalign)(size_t alignment, size_t size);
    void *(*aligned_alloc)(size_t alignment, size_t size);
    int (*posix_memalign)(void **result, size_t alignment, size_t size);
};
extern struct next_functions next;

extern RECORDER_TLS struct lane *own_lane;
extern _Atomic bool shared_many; /* the process has had a second thread */

/* Finds `next`; safe while dlsym itself allocates. */
void next_find(void);
/* Memory for calls that come while next_find is at work. */
void *early_alloc(size_t alignment, size_t size);
bool is_early(const void *pointer);
/* At most as much as was asked for. */
size_t early_size(const void *pointer);

/* A lane for this thread; NULL: recording is off or stopped. */
struct lane *lane_begin(void);
/* Packs what is in the lane, and empties it if `owner`. */
void lane_write(struct lane *lane, bool owner);
/* Writes all lanes: the process ends or becomes another program. */
void recorder_write_all(bool ending);

static inline struct lane *lane_enter(void)
{
    struct lane *lane = own_lane;
    if (UNLIKELY(lane == NULL)) {
        lane = lane_begin();
        if (lane == NULL) {
            return NULL;
        }
    }
    if (UNLIKELY(lane->depth != 0)) {
        atomic_fetch_add_explicit(&lane->shared_missed, 1, memory_order_relaxed);
        return NULL;
    }
    lane->depth = 1;
    return lane;
}

static inline void lane_leave(struct lane *lane)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    lane->depth = 0;
}

/* The clock is read after all earlier loads of the thread: those by which the allocator learned of
 * the block, before a birth, and the one by which the program did, before an end. No later store is
 * visible before the clock was read, because a processor shows stores in program order after the
 * instructions before them. */
#if defined(__x86_64__)
static inline uint64_t clock_read(void)
{
    unsigned processor;
    return __builtin_ia32_rdtscp(&processor); /* RDTSC would not wait for a load that is late */
}
#else
static inline uint64_t clock_read(void)
{
    uint64_t count;
    __asm__ volatile("dsb ishld\n\tisb\n\tmrs %0, cntvct_el0" : "=r"(count)::"memory");
    return count;
}
#endif

static inline uint64_t stamp_now(void)
{
    return atomic_load_explicit(&shared_many, memory_order_acquire) ? clock_read() : 0;
}

static inline void lane_record(struct lane *lane, unsigned kind, unsigned align_log2, uint64_t site,
                               const void *pointer, uint64_t size, uint64_t stamp)
{
    uint32_t count = atomic_load_explicit(&lane->shared_count, memory_order_relaxed);
    lane->events[count] = (struct trace_event){
        .stamp = stamp,
        .address = (uint64_t)(uintptr_t)pointer,
        .size = size,
        .shape = trace_shape(site, kind, align_log2),
    };
    atomic_store_explicit(&lane->shared_count, count + 1, memory_order_release);
    if (UNLIKELY(count + 1 == TRACE_EVENTS_MAX)) {
        lane_write(lane, true);
    }
}

#endif
