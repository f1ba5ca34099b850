/* SPDX-License-Identifier: MIT */
/* recorder.c: lanes, their ends, fork, and the end of the process. See recorder.h.
 *
 * A lane is written when it is full, and when the process ends in order (exit, _exit) or becomes
 * another program (exec). A process that a signal kills loses what its lanes hold: at most
 * TRACE_EVENTS_MAX events each. */
#define _GNU_SOURCE
#include "recorder.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "callers.h"
#include "large.h"
#include "lock.h"
#include "output.h"

#define EARLY_BYTES (64u << 10)
#define EARLY_ALIGNMENT 16u

struct next_functions next;
RECORDER_TLS struct lane *own_lane;
_Atomic bool shared_many;

static RECORDER_TLS bool is_busy; /* lane_begin or next_find is at work in this thread */

static _Atomic(struct lane *) shared_lanes;
static _Atomic uint32_t shared_lane_count;
static _Atomic uint32_t shared_threads;
static _Atomic bool shared_stopped;
static _Atomic uint64_t shared_own_bytes; /* resident memory of all lanes */
static _Atomic uint64_t shared_peak;
static pthread_key_t end_key;
static bool has_end_key;
static pid_t own_pid;

/* --- the next library --- */

static _Alignas(EARLY_ALIGNMENT) unsigned char early_memory[EARLY_BYTES];
static _Atomic size_t shared_early_used;

void *early_alloc(size_t alignment, size_t size)
{
    uintptr_t start = (uintptr_t)early_memory, at;
    size_t used;
    alignment = alignment < EARLY_ALIGNMENT ? EARLY_ALIGNMENT : alignment;
    if (size > EARLY_BYTES || alignment > EARLY_BYTES) {
        return NULL;
    }
    used = atomic_fetch_add(&shared_early_used, size + alignment + EARLY_ALIGNMENT);
    at = (start + used + alignment - 1) & ~(uintptr_t)(alignment - 1);
    return at + size <= start + EARLY_BYTES ? (void *)(early_memory + (at - start)) : NULL;
}

bool is_early(const void *pointer)
{
    return (uintptr_t)pointer - (uintptr_t)early_memory < EARLY_BYTES;
}

size_t early_size(const void *pointer)
{
    return (size_t)((uintptr_t)early_memory + EARLY_BYTES - (uintptr_t)pointer);
}

/* dlsym gives an object pointer, and C has no cast from it to a function's. */
static void find_name(void *slot, const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    memcpy(slot, &found, sizeof found);
}

void next_find(void)
{
    struct next_functions found;
    if (is_busy) {
        return; /* dlsym allocates: from early memory */
    }
    is_busy = true;
    find_name(&found.malloc, "malloc");
    find_name(&found.calloc, "calloc");
    find_name(&found.realloc, "realloc");
    find_name(&found.free, "free");
    find_name(&found.memalign, "memalign");
    find_name(&found.aligned_alloc, "aligned_alloc");
    find_name(&found.posix_memalign, "posix_memalign");
    next = found; /* two threads at once store the same */
    is_busy = false;
}

/* --- lanes --- */

/* Whether the lane has no owner, or one that has said that it ends and has done so. */
static bool lane_is_free(struct lane *lane, uint32_t owner)
{
    return owner == 0 || (atomic_load_explicit(&lane->shared_ending, memory_order_acquire) != 0 &&
                          syscall(SYS_tgkill, own_pid, owner, 0) != 0 && errno == ESRCH);
}

/* Since the first call, which is that of the first lane. */
static uint32_t milliseconds(void)
{
    static _Atomic uint64_t shared_start;
    struct timespec now = {0};
    uint64_t start = 0, ms;
    clock_gettime(CLOCK_MONOTONIC, &now);
    ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    if (atomic_compare_exchange_strong(&shared_start, &start, ms)) {
        start = ms;
    }
    return (uint32_t)(ms - start);
}

static struct lane *lane_take(void)
{
    uint32_t self = (uint32_t)syscall(SYS_gettid);
    struct lane *lane;
    (void)milliseconds();
    for (lane = atomic_load(&shared_lanes); lane != NULL; lane = lane->older) {
        uint32_t owner = atomic_load(&lane->shared_owner);
        if (lane_is_free(lane, owner) &&
            atomic_compare_exchange_strong(&lane->shared_owner, &owner, self)) {
            atomic_store(&lane->shared_ending, 0);
            return lane;
        }
    }
    lane = mmap(NULL, sizeof *lane, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (lane == MAP_FAILED) {
        return NULL;
    }
    madvise(lane, sizeof *lane, MADV_NOHUGEPAGE);
    lane->number = atomic_fetch_add(&shared_lane_count, 1) + 1;
    atomic_store(&lane->shared_owner, self);
    lane->older = atomic_load(&shared_lanes);
    while (!atomic_compare_exchange_weak(&shared_lanes, &lane->older, lane)) {
    }
    return lane;
}

/* The lane goes on with the events of another thread. */
static void lane_change_thread(struct lane *lane, uint32_t thread)
{
    if (lane->thread == 0) {
        lane->written_thread = thread;
    } else {
        lane_record(lane, KIND_THREAD, 0, 0, NULL, thread, stamp_now());
    }
    lane->thread = thread;
}

struct lane *lane_begin(void)
{
    struct lane *lane;
    uint32_t thread;
    int error = errno;
    if (is_busy || atomic_load_explicit(&shared_stopped, memory_order_relaxed)) {
        return NULL;
    }
    if (next.malloc == NULL) {
        next_find();
    }
    if (!output_is_wanted()) {
        atomic_store(&shared_stopped, true);
        return NULL;
    }
    is_busy = true;
    if (own_pid == 0) {
        own_pid = getpid();
    }
    lane = lane_take();
    if (lane != NULL) {
        thread = atomic_fetch_add(&shared_threads, 1) + 1;
        if (thread > 1) {
            atomic_store(&shared_many, true);
        }
        lane->depth = 0;
        lane_change_thread(lane, thread);
        if (has_end_key) {
            pthread_setspecific(end_key, lane);
        }
        own_lane = lane;
    }
    is_busy = false;
    errno = error;
    return lane;
}

/* Adds what a lane touches to the recorder's own memory. After a few frames that is all of it. */
static void count_lane(struct lane *lane)
{
    uint64_t bytes = 0, page = (uint64_t)sysconf(_SC_PAGESIZE);
    if (lane->frames++ >= 4 || mincore(lane, sizeof *lane, lane->pages) != 0) {
        return;
    }
    for (size_t i = 0; i < (sizeof *lane + page - 1) / page; i++) {
        bytes += (lane->pages[i] & 1) != 0 ? page : 0;
    }
    atomic_fetch_add(&shared_own_bytes, bytes - lane->resident);
    lane->resident = bytes;
}

static uint64_t resident_now(void)
{
    uint64_t resident = output_resident(), own = atomic_load(&shared_own_bytes);
    uint64_t peak = atomic_load(&shared_peak);
    resident = resident > own ? resident - own : 0;
    while (resident > peak && !atomic_compare_exchange_weak(&shared_peak, &peak, resident)) {
    }
    return resident;
}

static bool write_events(struct lane *lane, uint32_t from, uint32_t to)
{
    struct encoder *encoder = &lane->encoder;
    struct trace_frame frame = {
        .lane = lane->number,
        .thread = lane->written_thread,
        .threads = atomic_load(&shared_threads),
        .ms = milliseconds(),
        .stamp = stamp_now(),
        .resident = resident_now(),
    };
    const struct trace_event *events = lane->events + from;
    size_t bytes;
    frame.missed = atomic_exchange(&lane->shared_missed, 0);
    bytes = encode_events(encoder, events, to - from, &frame);
    if (output_modules(encoder)) {
        bytes = encode_events(encoder, events, to - from, &frame); /* its place was needed */
    }
    lane->written_thread = encoder->last_thread;
    if (output_append(encoder->output, bytes)) {
        return true;
    }
    memcpy(&frame, encoder->output, sizeof frame); /* the encoder has counted its calls */
    atomic_fetch_add(&lane->shared_missed, frame.missed + frame.calls);
    return false;
}

void lane_write(struct lane *lane, bool owner)
{
    int error = errno;
    uint32_t count;
    bool locked = lock_take(&lane->shared_writing);
    if (!locked && !owner) {
        return;
    }
    if (output_is_foreign()) { /* the events and the file are another process's */
        atomic_store(&shared_stopped, true);
    }
    count = atomic_load_explicit(&lane->shared_count, memory_order_acquire);
    if (locked && count > lane->written && !atomic_load(&shared_stopped)) {
        count_lane(lane);
        if (!write_events(lane, lane->written, count) && output_has_failed()) {
            atomic_store(&shared_stopped, true);
        }
        count_lane(lane);
    }
    lane->written = count;
    if (owner) {
        lane->written = 0;
        atomic_store_explicit(&lane->shared_count, 0, memory_order_relaxed);
    }
    if (owner && atomic_load(&shared_stopped)) {
        own_lane = NULL;
    }
    if (locked) {
        lock_give(&lane->shared_writing);
    }
    errno = error;
}

/* --- ends --- */

/* The key's destructor. Other destructors follow, and the C library's own last steps. */
static void thread_ends(void *lane)
{
    atomic_store_explicit(&((struct lane *)lane)->shared_ending, 1, memory_order_release);
}

void recorder_write_all(bool ending)
{
    struct trace_end end;
    struct lane *own = own_lane;
    /* A child of vfork uses its parent's memory, one of a bare fork its parent's file. */
    if (atomic_load(&shared_stopped) || own_pid != getpid() || (own != NULL && own->depth != 0)) {
        return;
    }
    if (own != NULL) {
        own->depth = 1;
        if (ending) {
            large_record_all(own);
        }
    }
    for (struct lane *lane = atomic_load(&shared_lanes); lane != NULL; lane = lane->older) {
        lane_write(lane, false);
    }
    if (ending && own != NULL && output_has_file() && lock_take(&own->shared_writing)) {
        end.threads = atomic_load(&shared_threads);
        end.peak_resident = atomic_load(&shared_peak);
        output_append(own->encoder.output,
                      encode_frame(&own->encoder, FRAME_END, &end, sizeof end));
        lock_give(&own->shared_writing);
    }
    if (own != NULL) {
        own->depth = 0;
    }
}

/* After the last destructor of the last library. */
static void process_ended(void *argument)
{
    (void)argument;
    recorder_write_all(true);
}

static void process_ended_quickly(void)
{
    recorder_write_all(true);
}

int __cxa_atexit(void (*function)(void *), void *argument, void *library);

/* The C library calls what is registered here after the functions that end libraries. */
__attribute__((destructor)) static void library_ended(void)
{
    recorder_write_all(false);
    __cxa_atexit(process_ended, NULL, NULL);
}

/* In the child of a fork: only the lane of the thread that is left has an owner. */
static void lane_reset(struct lane *lane)
{
    bool own = lane == own_lane;
    atomic_store(&lane->shared_count, 0);
    atomic_store(&lane->shared_writing, 0);
    atomic_store(&lane->shared_missed, 0);
    atomic_store(&lane->shared_ending, 0);
    atomic_store(&lane->shared_owner, own ? (uint32_t)syscall(SYS_gettid) : 0);
    lane->written = 0;
    lane->thread = lane->written_thread = own ? 1 : 0;
}

/* The child begins a trace of its own; of the blocks it inherited it will see the ends only. */
static void process_forked(void)
{
    for (struct lane *lane = atomic_load(&shared_lanes); lane != NULL; lane = lane->older) {
        lane_reset(lane);
    }
    own_pid = getpid();
    atomic_store(&shared_threads, own_lane != NULL ? 1 : 0);
    atomic_store(&shared_many, false);
    atomic_store(&shared_peak, 0);
    large_forget_all();
    callers_forked();
    output_forked();
}

__attribute__((constructor)) static void library_began(void)
{
    if (!output_is_wanted()) {
        atomic_store(&shared_stopped, true);
        return;
    }
    own_pid = getpid();
    output_start();
    callers_start();
    has_end_key = pthread_key_create(&end_key, thread_ends) == 0;
    if (own_lane != NULL && has_end_key) {
        pthread_setspecific(end_key, own_lane); /* it began before the key was there */
    }
    pthread_atfork(NULL, NULL, process_forked);
    at_quick_exit(process_ended_quickly);
}
