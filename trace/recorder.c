/* recorder.c: lanes, their ends, fork, and the end of the process. See recorder.h.
 *
 * A lane is written when it is full, when its thread ends, and when the process ends in order
 * (exit, _exit) or becomes another program (exec). A process that a signal kills loses what its
 * lanes hold: at most TRACE_EVENTS_MAX events a thread. */
#define _GNU_SOURCE
#include "recorder.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "large.h"
#include "output.h"

#define EARLY_BYTES (64u << 10)
#define EARLY_ALIGNMENT 16u

struct next_functions next;
RECORDER_TLS struct lane *own_lane;
_Atomic bool shared_many;
#if !defined(__x86_64__) && !defined(__aarch64__)
_Atomic uint64_t shared_clock;
#endif

/* A thread keeps its number when destructors that run late give it a second lane. */
static RECORDER_TLS uint32_t own_number;
static RECORDER_TLS uint32_t own_state; /* of lane_begin */
enum { STATE_BUSY = 1, STATE_ENDED = 2 };

static _Atomic(struct lane *) shared_lanes;
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
    if ((own_state & STATE_BUSY) != 0) {
        return; /* dlsym allocates: from early memory */
    }
    own_state |= STATE_BUSY;
    find_name(&found.malloc, "malloc");
    find_name(&found.calloc, "calloc");
    find_name(&found.realloc, "realloc");
    find_name(&found.free, "free");
    find_name(&found.memalign, "memalign");
    find_name(&found.aligned_alloc, "aligned_alloc");
    find_name(&found.posix_memalign, "posix_memalign");
    find_name(&found.valloc, "valloc");
    find_name(&found.pvalloc, "pvalloc");
    next = found; /* two threads at once store the same */
    own_state &= ~(uint32_t)STATE_BUSY;
}

/* --- lanes --- */

static struct lane *lane_take(void)
{
    struct lane *lane;
    for (lane = atomic_load(&shared_lanes); lane != NULL; lane = lane->older) {
        uint32_t unowned = 0;
        if (atomic_load_explicit(&lane->shared_owned, memory_order_relaxed) == 0 &&
            atomic_compare_exchange_strong(&lane->shared_owned, &unowned, 1)) {
            return lane;
        }
    }
    lane = mmap(NULL, sizeof *lane, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (lane == MAP_FAILED) {
        return NULL;
    }
    madvise(lane, sizeof *lane, MADV_NOHUGEPAGE);
    atomic_store(&lane->shared_owned, 1);
    lane->older = atomic_load(&shared_lanes);
    while (!atomic_compare_exchange_weak(&shared_lanes, &lane->older, lane)) {
    }
    return lane;
}

struct lane *lane_begin(void)
{
    struct lane *lane;
    int error = errno;
    if ((own_state & STATE_BUSY) != 0 ||
        atomic_load_explicit(&shared_stopped, memory_order_relaxed)) {
        return NULL;
    }
    if (next.malloc == NULL) {
        next_find();
    }
    if (!output_is_wanted()) {
        atomic_store(&shared_stopped, true);
        return NULL;
    }
    own_state |= STATE_BUSY;
    lane = lane_take();
    if (lane != NULL) {
        if (own_number == 0) {
            own_number = atomic_fetch_add(&shared_threads, 1) + 1;
        }
        lane->thread = own_number;
        lane->depth = 0;
        if (own_number > 1) {
            atomic_store(&shared_many, true);
        }
        if (has_end_key && (own_state & STATE_ENDED) == 0) {
            pthread_setspecific(end_key, (void *)1);
        }
        own_lane = lane;
    }
    own_state &= ~(uint32_t)STATE_BUSY;
    errno = error;
    return lane;
}

/* Bounded: who holds the lock may be what a signal handler of this thread interrupted. */
static bool lane_lock(struct lane *lane)
{
    for (unsigned i = 0; i < 10000; i++) {
        if (atomic_exchange_explicit(&lane->shared_writing, 1, memory_order_acquire) == 0) {
            return true;
        }
        syscall(SYS_sched_yield);
    }
    return false;
}

static void lane_unlock(struct lane *lane)
{
    atomic_store_explicit(&lane->shared_writing, 0, memory_order_release);
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
    struct trace_frame frame = {.thread = lane->thread, .resident = resident_now()};
    const struct trace_event *events = lane->events + from;
    size_t bytes;
    frame.missed = atomic_exchange(&lane->shared_missed, 0);
    bytes = encode_events(encoder, events, to - from, &frame);
    if (output_modules(encoder)) {
        bytes = encode_events(encoder, events, to - from, &frame); /* its place was needed */
    }
    return output_append(encoder->output, bytes);
}

void lane_write(struct lane *lane, bool owner)
{
    int error = errno;
    uint32_t count;
    bool locked = lane_lock(lane);
    if (!locked && !owner) {
        return;
    }
    if (output_is_foreign()) { /* the events and the file are another process's */
        atomic_store(&shared_stopped, true);
    }
    count = atomic_load_explicit(&lane->shared_count, memory_order_acquire);
    if (locked && count > lane->written && !atomic_load(&shared_stopped)) {
        count_lane(lane);
        if (!write_events(lane, lane->written, count)) {
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
        lane_unlock(lane);
    }
    errno = error;
}

/* --- ends --- */

/* The key's destructor. The first ones arm it again, so that the last one runs when the
 * destructors of the program have freed what they free. */
static void thread_ended(void *argument)
{
    uintptr_t round = (uintptr_t)argument;
    struct lane *lane = own_lane;
    if (round < PTHREAD_DESTRUCTOR_ITERATIONS) {
        pthread_setspecific(end_key, (void *)(round + 1));
        return;
    }
    own_state |= STATE_ENDED;
    own_lane = NULL;
    if (lane != NULL) {
        lane->depth = 1;
        lane_write(lane, true);
        atomic_store(&lane->shared_owned, 0);
    }
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
    if (ending && own != NULL && output_has_file() && lane_lock(own)) {
        end.threads = atomic_load(&shared_threads);
        end.peak_resident = atomic_load(&shared_peak);
        output_append(own->encoder.output,
                      encode_frame(&own->encoder, FRAME_END, &end, sizeof end));
        lane_unlock(own);
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

int __cxa_atexit(void (*function)(void *), void *argument, void *library);

/* The C library calls what is registered here after the functions that end libraries. */
__attribute__((destructor)) static void library_ended(void)
{
    recorder_write_all(false);
    __cxa_atexit(process_ended, NULL, NULL);
}

static void lane_reset(struct lane *lane)
{
    atomic_store(&lane->shared_count, 0);
    atomic_store(&lane->shared_writing, 0);
    atomic_store(&lane->shared_missed, 0);
    atomic_store(&lane->shared_owned, lane == own_lane);
    lane->written = 0;
}

/* The child begins a trace of its own; of the blocks it inherited it will see the ends only. */
static void process_forked(void)
{
    for (struct lane *lane = atomic_load(&shared_lanes); lane != NULL; lane = lane->older) {
        lane_reset(lane);
    }
    own_pid = getpid();
    own_number = own_lane != NULL ? 1 : 0;
    if (own_lane != NULL) {
        own_lane->thread = 1;
    }
    atomic_store(&shared_threads, own_number);
    atomic_store(&shared_many, false);
    atomic_store(&shared_peak, 0);
    large_forget_all();
    output_forked();
}

__attribute__((constructor)) static void library_began(void)
{
    own_pid = getpid();
    has_end_key = pthread_key_create(&end_key, thread_ended) == 0;
    if (own_lane != NULL && has_end_key) {
        pthread_setspecific(end_key, (void *)1); /* it began before the key was there */
    }
    pthread_atfork(NULL, NULL, process_forked);
}
