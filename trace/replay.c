/* SPDX-License-Identifier: MIT */
/* replay.c: runs the operations of an image under the allocator of this process.
 *
 * Touching, since a program uses what it asks for: each block below TRACE_LARGE_MIN is written once
 * in each of its 64-byte lines, whatever gave it; a larger one in each page, from its start on, as
 * far as the program's block was resident when it ended. Nothing is read, and nothing is written
 * later.
 *
 * What the replay itself needs is in memory that is not anonymous, so that the anonymous memory is
 * the allocator's. */
#define _GNU_SOURCE
#include "commands.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
#include <linux/futex.h>

#include "remarks.h"
#include "replay_image.h"

#define SPINS 200u /* looks at a slot before it yields */
#define YIELDS 50u /* twice that: a taker that waits long keeps its processor twice as long */
#define SLEEPER_WORD 1u
#define SLEEPER                                                                                    \
    ((void *)(uintptr_t)SLEEPER_WORD) /* in a slot whose taker sleeps; no block is there */
#define LINE 64u
#define PAGE 4096u
#define THREAD_STACK (256u << 10)

struct slot {
    void *_Atomic shared_pointer;
    uint64_t size;
};

struct runner {
    pthread_t thread;
    struct slot *slots;
    uint64_t live; /* may wrap: blocks that others allocated are freed here */
    uint64_t calls;
    _Atomic uint32_t shared_started; /* 1: `thread` is valid */
    _Atomic uint32_t shared_joining; /* 1: somebody joins it */
    _Atomic uint32_t shared_ended;   /* 1: it was joined */
};

/* The operators new and delete, where the process has them. */
struct operators {
    void *(*new)(size_t size);
    void *(*new_aligned)(size_t size, size_t alignment);
    void (*delete)(void *pointer);
    void (*delete_sized)(void *pointer, size_t size);
};

static const struct replay_image *image;
static struct runner *runners;
static struct slot *shared_slots;
static struct operators operators;
static _Atomic uint64_t shared_arrived;
static _Atomic uint32_t shared_peak_over;
static uint64_t resident_start;
static struct replay_result result;

static _Noreturn void fail(const char *what)
{
    remarks_say("replay: %s", what);
    _exit(125);
}

/* --- waiting --- */

static void wait_word(_Atomic uint32_t *word)
{
    for (unsigned i = 0; atomic_load_explicit(word, memory_order_acquire) == 0; i++) {
        if (i >= SPINS) {
            syscall(SYS_futex, word, FUTEX_WAIT, 0, NULL, NULL, 0);
        }
    }
}

static void set_word(_Atomic uint32_t *word)
{
    atomic_store_explicit(word, 1, memory_order_release);
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* The futex of a hand-over: the low half of the pointer, on little-endian machines. */
static void slot_futex(struct slot *slot, int operation, uint32_t value)
{
    syscall(SYS_futex, &slot->shared_pointer, operation, value, NULL, NULL, 0);
}

/* A hand-over. The taker sleeps in the end: thousands of threads that only yield would keep the one
 * that makes the block from running. */
static void *wait_shared(struct slot *slot)
{
    void *pointer, *nobody = NULL;
    for (unsigned i = 0; i < SPINS + YIELDS; i++) {
        pointer = atomic_load_explicit(&slot->shared_pointer, memory_order_acquire);
        if (pointer != NULL) {
            return pointer;
        }
        if (i >= SPINS) {
            sched_yield();
        }
    }
    atomic_compare_exchange_strong(&slot->shared_pointer, &nobody, SLEEPER);
    while ((pointer = atomic_load_explicit(&slot->shared_pointer, memory_order_acquire)) ==
           SLEEPER) {
        slot_futex(slot, FUTEX_WAIT_PRIVATE, SLEEPER_WORD);
    }
    return pointer;
}

/* Puts a block into its slot. Only a taker that sleeps costs a system call. */
static void put_block(struct slot *slot, void *pointer, bool shared)
{
    if (!shared) {
        atomic_store_explicit(&slot->shared_pointer, pointer, memory_order_relaxed);
    } else if (atomic_exchange_explicit(&slot->shared_pointer, pointer, memory_order_acq_rel) ==
               SLEEPER) {
        slot_futex(slot, FUTEX_WAKE_PRIVATE, 1);
    }
}

/* --- memory of the process --- */

/* A number of /proc/self/status, KiB, as bytes. */
static uint64_t status_bytes(const char *key)
{
    char text[4096], *at;
    int descriptor = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t length = descriptor >= 0 ? read(descriptor, text, sizeof text - 1) : 0;
    if (descriptor >= 0) {
        close(descriptor);
    }
    text[length > 0 ? length : 0] = 0;
    at = strstr(text, key);
    return at != NULL ? strtoull(at + strlen(key), NULL, 10) * 1024 : 0;
}

static bool reset_peak(void)
{
    int descriptor = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    bool fine = descriptor >= 0 && write(descriptor, "5", 1) == 1;
    if (descriptor >= 0) {
        close(descriptor);
    }
    return fine;
}

/* Memory that does not count as anonymous. */
static void *shared_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes + PAGE, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) {
        fail("not enough memory for the operations");
    }
    return memory;
}

/* --- the peak --- */

static void measure_peak(void)
{
    uint64_t live = 0, now = status_bytes("RssAnon:");
    for (uint64_t i = 0; i < image->threads; i++) {
        live += runners[i].live;
    }
    result.live_bytes = live;
    result.resident_then = now > resident_start ? now - resident_start : 0;
    set_word(&shared_peak_over);
}

/* At the recorded peak. A thread that ends before it only says so. */
static void arrive(bool waits)
{
    if (atomic_fetch_add(&shared_arrived, 1) + 1 == image->peak_threads) {
        measure_peak();
    } else if (waits) {
        wait_word(&shared_peak_over);
    }
}

/* --- operations --- */

static void touch(unsigned char *pointer, uint64_t bytes, uint64_t stride)
{
    for (uint64_t i = 0; i < bytes; i += stride) {
        __atomic_store_n(pointer + i, 1, __ATOMIC_RELAXED);
    }
}

static void *call_birth(unsigned kind, uint64_t size, unsigned align_log2, void *old)
{
    size_t alignment = (size_t)1 << align_log2;
    void *pointer = NULL;
    switch (kind) {
    case KIND_CALLOC:
        return calloc(1, size);
    case KIND_REALLOC_NULL:
    case KIND_REALLOC: /* glibc frees for size 0, where the program's allocator gave a block */
        return realloc(old, size != 0 ? size : 1);
    case KIND_ALIGNED_ALLOC:
        return aligned_alloc(alignment, size);
    case KIND_POSIX_MEMALIGN:
        return posix_memalign(&pointer, alignment, size) == 0 ? pointer : NULL;
    case KIND_MEMALIGN:
        return memalign(alignment, size);
    case KIND_NEW_ALIGNED:
        return operators.new_aligned != NULL ? operators.new_aligned(size, alignment)
                                             : memalign(alignment, size);
    case KIND_NEW:
    case KIND_NEW_ARRAY: /* a trace has no delete[], and allocators tell the pairs apart */
        return operators.new(size);
    default:
        return malloc(size);
    }
}

static void call_end(unsigned kind, void *pointer, uint64_t size)
{
    if (kind == KIND_DELETE_SIZED) {
        operators.delete_sized(pointer, size);
    } else if (kind == KIND_DELETE) {
        operators.delete(pointer);
    } else {
        free(pointer);
    }
}

static struct slot *slot_of(struct runner *runner, uint32_t slot)
{
    return (slot & OP_SHARED) != 0 ? &shared_slots[slot & ~OP_SHARED] : &runner->slots[slot];
}

/* Takes the block that an operation ends or resizes. */
static void *take_block(struct runner *runner, const struct op *op, uint64_t *size)
{
    struct slot *slot;
    void *pointer;
    if (op->in == OP_NO_SLOT) {
        return NULL;
    }
    slot = slot_of(runner, op->in);
    pointer = (op->in & OP_SHARED) != 0
                  ? wait_shared(slot)
                  : atomic_load_explicit(&slot->shared_pointer, memory_order_relaxed);
    *size = slot->size;
    return pointer;
}

/* Births and resizes. Returns the number of operations done: one that says what to touch may
 * follow. */
static unsigned do_birth(struct runner *runner, const struct op *op)
{
    unsigned kind = trace_kind(op->shape), done = 1;
    uint64_t size = trace_site(op->shape), old_size = 0;
    void *old = take_block(runner, op, &old_size), *pointer;
    struct slot *slot = slot_of(runner, op->out);
    pointer = call_birth(kind, size, trace_align_log2(op->shape), old);
    if (pointer == NULL) {
        fail("the allocator has no memory for a call that succeeded in the program");
    }
    if (size >= TRACE_LARGE_MIN) {
        touch(pointer, trace_site(op[1].shape), PAGE);
        done = 2;
    } else {
        touch(pointer, size, LINE);
    }
    runner->live += size - old_size;
    slot->size = size;
    put_block(slot, pointer, (op->out & OP_SHARED) != 0);
    return done;
}

static void *run_thread(void *argument);

static void spawn(uint32_t number)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, THREAD_STACK);
    if (pthread_create(&runners[number].thread, &attributes, run_thread, &runners[number]) != 0) {
        fail("cannot start as many threads as the program did");
    }
    pthread_attr_destroy(&attributes);
    set_word(&runners[number].shared_started);
}

/* An operation may join the thread, and the main thread does so at the end, maybe before. Only one
 * call of pthread_join is allowed. */
static void join(struct runner *runner)
{
    wait_word(&runner->shared_started);
    if (atomic_exchange(&runner->shared_joining, 1) == 0) {
        pthread_join(runner->thread, NULL);
        set_word(&runner->shared_ended);
    } else {
        wait_word(&runner->shared_ended);
    }
}

static void run_ops(struct runner *runner)
{
    const struct op_list *list = &image->lists[runner - runners];
    const struct op *op = (const void *)((const char *)image + list->offset);
    const struct op *end = op + list->count;
    while (op < end) {
        unsigned kind = trace_kind(op->shape), done = 1;
        if (trace_is_birth(kind)) {
            done = do_birth(runner, op);
        } else if (kind < KIND_COUNT) {
            uint64_t size = 0;
            void *pointer = take_block(runner, op, &size);
            runner->live -= size;
            call_end(kind, pointer, size);
        } else if (kind == OP_SPAWN) {
            spawn(op->in);
        } else if (kind == OP_JOIN) {
            join(&runners[op->in]);
        } else {
            arrive(true);
        }
        runner->calls += kind < KIND_COUNT;
        op += done;
    }
    if (atomic_load(&shared_peak_over) == 0) {
        arrive(false);
    }
}

static void *run_thread(void *argument)
{
    run_ops(argument);
    return NULL;
}

/* --- which allocator --- */

static void prove_owner(const char *name, const char *library)
{
    void *function = dlsym(RTLD_DEFAULT, name);
    char wanted[PATH_MAX], real[PATH_MAX];
    Dl_info info;
    bool fine = false;
    if (function != NULL && dladdr(function, &info) != 0 &&
        realpath(info.dli_fname, real) != NULL) {
        const char *base = strrchr(real, '/');
        fine = *library == 0 ? base != NULL && strncmp(base, "/libc.so", 8) == 0
                             : realpath(library, wanted) != NULL && strcmp(wanted, real) == 0;
    }
    if (!fine) {
        remarks_say("replay: %s is served by %s, not by %s", name,
                    function != NULL ? real : "nobody", *library != 0 ? library : "the C library");
        _exit(125);
    }
}

static void find_operator(void *slot, const char *symbol, const char *otherwise)
{
    void *found = dlsym(RTLD_DEFAULT, symbol);
    found = found != NULL ? found : dlsym(RTLD_DEFAULT, otherwise);
    memcpy(slot, &found, sizeof found);
}

static void find_operators(void)
{
    find_operator(&operators.new, "_Znwm", "malloc");
    find_operator(&operators.new_aligned, "_ZnwmSt11align_val_t", "");
    find_operator(&operators.delete, "_ZdlPv", "free");
    find_operator(&operators.delete_sized, "_ZdlPvm", "free"); /* free ignores the size */
}

/* --- one run --- */

static uint64_t now_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void map_image(int descriptor)
{
    struct stat status;
    void *memory;
    uint64_t slots = 0;
    struct slot *at;
    if (fstat(descriptor, &status) != 0) {
        fail("there is no image to replay");
    }
    memory =
        mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED | MAP_POPULATE, descriptor, 0);
    if (memory == MAP_FAILED) {
        fail("cannot map the image");
    }
    image = memory;
    for (uint64_t i = 0; i < image->threads; i++) {
        slots += image->lists[i].slots;
    }
    runners = shared_memory(image->threads * sizeof *runners);
    shared_slots = shared_memory(image->shared_slots * sizeof *shared_slots);
    at = shared_memory(slots * sizeof *at);
    for (uint64_t i = 0; i < image->threads; i++) {
        runners[i].slots = at;
        at += image->lists[i].slots;
    }
}

/* Fills `result`. */
static void run_image(int descriptor, const char *library)
{
    static const char *const names[] = {"malloc",   "calloc",        "realloc",       "free",
                                        "memalign", "aligned_alloc", "posix_memalign"};
    uint64_t start, start_cpu, peak, end, total_start;
    bool has_peak;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        prove_owner(names[i], library);
    }
    find_operators();
    map_image(descriptor);
    atomic_store(&shared_peak_over, image->peak_threads == 0);
    has_peak = reset_peak();
    resident_start = status_bytes("RssAnon:");
    total_start = status_bytes("VmRSS:");
    start = now_ns(CLOCK_MONOTONIC);
    start_cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    run_ops(&runners[0]);
    for (uint64_t i = 1; i < image->threads; i++) {
        join(&runners[i]);
    }
    result.wall_ns = now_ns(CLOCK_MONOTONIC) - start;
    result.cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID) - start_cpu;
    peak = status_bytes("VmHWM:");
    end = status_bytes("RssAnon:");
    result.resident_end = end > resident_start ? end - resident_start : 0;
    result.peak_resident = peak > total_start ? peak - total_start : 0;
    if (!has_peak || result.peak_resident < result.resident_then) {
        result.peak_resident = result.resident_then;
    }
    for (uint64_t i = 0; i < image->threads; i++) {
        result.calls += runners[i].calls;
    }
}

int replay_run(int descriptor, const char *library, int output)
{
    run_image(descriptor, library);
    return write(output, &result, sizeof result) == sizeof result ? 0 : 125;
}

static uint64_t time_ns(const struct timeval *time)
{
    return (uint64_t)time->tv_sec * 1000000000u + (uint64_t)time->tv_usec * 1000;
}

int replay_bench(const char *name, const char *expected)
{
    int descriptor = open(name, O_RDONLY | O_CLOEXEC);
    struct rusage usage, before;
    Dl_info info = {0};
    bool same;
    if (descriptor < 0) {
        fail("there is no such image");
    }
    getrusage(RUSAGE_SELF, &before);
    run_image(descriptor, strchr(expected, '/') != NULL ? expected : "");
    same = result.calls == image->calls && result.live_bytes == image->peak_bytes;
    getrusage(RUSAGE_SELF, &usage);
    dladdr(dlsym(RTLD_DEFAULT, "malloc"), &info);
    printf("{\"workload\":\"trace\",\"arguments\":{},\"threads\":%" PRIu64
           ",\"operations\":%" PRIu64 ",\"nanoseconds\":%" PRIu64
           ",\"operations_per_second\":%" PRIu64,
           image->threads, result.calls, result.wall_ns,
           (uint64_t)((double)result.calls * 1e9 / (double)(result.wall_ns + 1)));
    printf(",\"minor_faults\":%ld,\"major_faults\":%ld,\"user_ns\":%" PRIu64
           ",\"system_ns\":%" PRIu64,
           usage.ru_minflt - before.ru_minflt, usage.ru_majflt - before.ru_majflt,
           time_ns(&usage.ru_utime) - time_ns(&before.ru_utime),
           time_ns(&usage.ru_stime) - time_ns(&before.ru_stime));
    printf(
        ",\"rss_peak_kib\":%" PRIu64 ",\"rss_end_kib\":%" PRIu64
        ",\"lazyfree_end_kib\":0,\"harness_kib\":0,\"rest\":[],\"serving\":{\"malloc\":\"%s\"}}\n",
        result.peak_resident / 1024, result.resident_end / 1024,
        info.dli_fname != NULL ? info.dli_fname : "");
    return same ? 0 : 1;
}
