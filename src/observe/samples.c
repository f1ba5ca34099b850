/* SPDX-License-Identifier: MIT */
/* samples.c: see samples.h. */
#include "observe/samples.h"

#include "arena/arena.h"
#include "base/exponential.h"
#include "base/probe.h"
#include "core/lock.h"
#include "core/options.h"
#include "core/own_stack.h"
#include "observe/loaded.h"
#include "observe/stacks.h"
#include "os/os.h"
#include "region/window.h"

#include <errno.h>
#include <string.h>

struct sample_record {
    struct sample_record *next; /* in its bucket, or in the list of free records */
    uintptr_t address;
    size_t size; /* as requested, bytes */
    size_t usable;
    uint64_t period; /* bytes between samples on average when it was drawn */
    struct stack *stack;
    struct site *site;
    uint64_t allocated_ms;
    uint32_t thread; /* number of the thread that allocated it */
};

/* Records come in pieces of this size. */
#define SAMPLES_CHUNK_SIZE ((size_t)16 << 10)

struct lock HAK_LOCK_LINE hak__samples_lock = LOCK_INITIAL(LOCK_RANK_SAMPLES);
/* Under SAMPLES. */
static struct sample_record **samples_buckets;
static size_t samples_buckets_count; /* a power of two, or 0 */
static struct sample_record *samples_unused;
/* The live bytes of all stacks, their peak, and how often there was a higher one. */
static double samples_live_bytes, samples_peak_bytes;
static uint64_t samples_peak_number, samples_peak_ms;
size_t hak__samples_count; /* read relaxed */

static uint32_t shared_samples_threads;

/* From 1, as threads first allocate or free a sample. */
static uint32_t samples_thread(void)
{
    if (hak__own.number == 0) {
        hak__own.number = 1 + atomic_add_relaxed(&shared_samples_threads, 1u);
    }
    return hak__own.number;
}

/* Milliseconds that do not wrap: a profile may run for months. */
uint64_t hak__samples_clock_ms(void)
{
    return hak__os_clock_us() / 1000;
}

/* [SAMPLE_THREADS_MAX], by number - 1; NULL: not mapped yet. */
static struct sample_thread *sample_threads;

/* The calling thread, whose number in layer observe is `number`, takes a sample: notes its id and
 * its present name. Returns the number that its stacks get; 0: none of its own. */
static uint32_t sample_thread_note(uint32_t number)
{
    if (number > SAMPLE_THREADS_MAX) {
        return 0;
    }
    if (sample_threads == NULL) {
        sample_threads = hak__metadata_allocate(SAMPLE_THREADS_MAX * sizeof *sample_threads);
        if (sample_threads == NULL) {
            return 0;
        }
    }
    /* A thread may get its name late, and another id in the child of a fork. */
    struct sample_thread *thread = &sample_threads[number - 1];
    thread->id = hak__os_thread_id();
    hak__os_thread_name(thread->name);
    return number;
}

const struct sample_thread *hak__sample_thread_of(uint32_t number)
{
    bool known = sample_threads != NULL && number != 0 && number <= SAMPLE_THREADS_MAX &&
                 sample_threads[number - 1].id != 0;
    return known ? &sample_threads[number - 1] : NULL;
}

static struct sample_record **samples_bucket(uintptr_t address)
{
    uint64_t hash = (uint64_t)address * UINT64_C(0x9e3779b97f4a7c15); /* Fibonacci hashing */
    return &samples_buckets[(hash >> 32) & (samples_buckets_count - 1)];
}

/* Doubles the table. False: no memory; the old table stays. */
static bool samples_grow(void)
{
    /* Buckets at first: enough for a heap of 4 GiB at one sample in 512 KiB. The table doubles when
     * there are more records than buckets. */
    size_t count =
        samples_buckets_count == 0 ? OS_PAGE_SIZE_MAX / sizeof(void *) : 2 * samples_buckets_count;
    struct sample_record **old = samples_buckets;
    size_t old_count = samples_buckets_count;
    void *grown;
    if (hak__os_map(count * sizeof(struct sample_record *), OS_PAGE_SIZE_MAX, &grown) != 0) {
        return false;
    }
    samples_buckets = grown;
    samples_buckets_count = count;
    for (size_t i = 0; i < old_count; i++) {
        for (struct sample_record *sample = old[i], *next; sample != NULL; sample = next) {
            struct sample_record **bucket = samples_bucket(sample->address);
            next = sample->next;
            sample->next = *bucket;
            *bucket = sample;
        }
    }
    if (old_count != 0) {
        hak__os_discard(old, old_count * sizeof(struct sample_record *));
    }
    return true;
}

static struct sample_record *samples_pop_unused(void)
{
    if (samples_unused == NULL) {
        struct sample_record *records = hak__metadata_allocate(SAMPLES_CHUNK_SIZE);
        if (records == NULL) {
            return NULL;
        }
        for (size_t i = 0; i < SAMPLES_CHUNK_SIZE / sizeof *records; i++) {
            records[i].next = samples_unused;
            samples_unused = &records[i];
        }
    }
    struct sample_record *sample = samples_unused;
    samples_unused = sample->next;
    return sample;
}

/* Takes the record of the address off the table. NULL: it has none. */
static struct sample_record *samples_remove(uintptr_t address)
{
    if (samples_buckets_count == 0) {
        return NULL;
    }
    struct sample_record **link = samples_bucket(address);
    while (*link != NULL && (*link)->address != address) {
        link = &(*link)->next;
    }
    struct sample_record *sample = *link;
    if (sample != NULL) {
        *link = sample->next;
        atomic_store_relaxed(&hak__samples_count, hak__samples_count - 1);
    }
    return sample;
}

/* Called before the live sums change. If they have not changed since the last peak, they are those
 * of the peak. So a peak costs nothing for the stacks that it does not change, and is exact. */
static void sample_keep_peak(struct stack_sums *sums)
{
    if (sums->peak_number != samples_peak_number) {
        sums->peak_number = samples_peak_number;
        sums->peak_samples = sums->samples_live;
        sums->peak_count = sums->allocated_count - sums->freed_count;
        sums->peak_bytes = sums->allocated_bytes - sums->freed_bytes;
    }
}

static void sample_end(struct sample_record *sample)
{
    struct stack_sums *sums = &sample->stack->sums;
    sample_keep_peak(sums);
    double weight = hak__exponential_weight(sample->size, sample->period);
    uint64_t lifetime_ms = hak__samples_clock_ms() - sample->allocated_ms;
    bool remote = sample->thread != samples_thread();
    hak__site_end(sample->site, weight, sample->size, sample->usable, lifetime_ms, remote);
    probe_otel_memory_free(sample->address);
    sums->freed_count += weight;
    sums->freed_bytes += weight * (double)sample->size;
    sums->lifetime_ms += weight * (double)lifetime_ms;
    sums->live_age_ms += weight * (double)sample->allocated_ms;
    sums->freed_remote += remote ? weight : 0;
    sums->samples_live--;
    samples_live_bytes -= weight * (double)sample->size;
    sample->next = samples_unused;
    samples_unused = sample;
}

static void sample_begin(struct sample_record *sample)
{
    struct stack_sums *sums = &sample->stack->sums;
    double weight = hak__exponential_weight(sample->size, sample->period);
    sample_keep_peak(sums);
    hak__site_begin(sample->site, weight, sample->size, sample->usable, sample->allocated_ms);
    probe_otel_memory_alloc(sample->address, sample->size,
                            (uint64_t)(weight * (double)sample->size));
    sums->allocated_count += weight;
    sums->allocated_bytes += weight * (double)sample->size;
    sums->usable_bytes += weight * (double)sample->usable;
    sums->live_age_ms -= weight * (double)sample->allocated_ms;
    sums->samples_count++;
    sums->samples_live++;
    samples_live_bytes += weight * (double)sample->size;
    if (samples_live_bytes > samples_peak_bytes) {
        samples_peak_bytes = samples_live_bytes;
        samples_peak_ms = sample->allocated_ms;
        samples_peak_number++;
    }
    struct sample_record **bucket = samples_bucket(sample->address);
    sample->next = *bucket;
    *bucket = sample;
    atomic_store_relaxed(&hak__samples_count, hak__samples_count + 1);
    hak__stacks_note_history(sample->allocated_ms);
}

/* Adds a record for the block; if it has no address, for a new object of `class_index`. The frames
 * are those outside hakmem. Returns the block; NULL: no memory. Under SAMPLES. */
static void *samples_add(struct sample_record like, uint32_t class_index, uintptr_t *frames,
                         uint32_t depth)
{
    uintptr_t id = hak__site_current;
    uint32_t own = hak__loaded_mark(frames, depth);
    if (hak__samples_count >= samples_buckets_count && !samples_grow() &&
        samples_buckets_count == 0) {
        return NULL;
    }
    struct sample_record *sample = samples_pop_unused();
    uintptr_t address = depth != 0 ? frames[own] : 0;
    like.site = hak__site_of(id != 0 ? id : address, id == 0);
    uint32_t thread =
        atomic_load_relaxed(&hak__settings.profile_threads) ? sample_thread_note(like.thread) : 0;
    like.stack = hak__stack_of(id != 0 ? like.site : NULL, thread, frames, depth);
    bool stored = sample != NULL && like.stack != NULL && like.site != NULL;
    if (stored && like.address == 0) {
        like.address = (uintptr_t)hak__arena_take_sample(class_index);
    }
    if (!stored || like.address == 0) {
        if (sample != NULL) {
            sample->next = samples_unused;
            samples_unused = sample;
        }
        return NULL;
    }
    struct sample_record *stale = samples_remove(like.address);
    if (stale != NULL) {
        sample_end(stale);
    }
    *sample = like;
    sample_begin(sample);
    return (void *)like.address;
}

/* The lock is held often and long, so nobody waits for it who may hold up a fork. */
bool hak__samples_enter(bool patiently)
{
    bool inside = hak__gate_enter(patiently ? GATE_PATIENTLY : GATE_BRIEFLY);
    if (inside && patiently) {
        lock_acquire(&hak__samples_lock);
    } else if (inside && !hak__gate_acquire(&hak__samples_lock)) {
        hak__gate_leave();
        inside = false;
    }
    if (!inside && !patiently) {
        hak__own.refused = false; /* the operation goes on without a sample */
    }
    return inside;
}

void hak__samples_leave(void)
{
    lock_release(&hak__samples_lock);
    hak__gate_leave();
}

struct sample_request {
    struct sample_record like;
    uint32_t class_index;
    void *pointer; /* the result */
};

/* On a stack of its own, since the program's may be small. */
static void sample_serve(void *argument)
{
    struct sample_request *request = argument;
    uintptr_t frames[STACK_DEPTH_MAX];
    uint32_t depth = hak__stack_capture(frames, STACK_DEPTH_MAX),
             own = hak__stack_own(frames, depth);
    request->like.thread = samples_thread();
    request->like.allocated_ms = hak__samples_clock_ms();
    if (hak__samples_enter(false)) { /* else the request goes on without a sample */
        request->pointer =
            samples_add(request->like, request->class_index, frames + own, depth - own);
        hak__samples_leave();
    }
}

static void *sample_take(struct sample_record like, uint32_t class_index)
{
    struct sample_request request = {like, class_index, NULL};
    HAK_KEEP_ERRNO;
    (void)hak__own_stack_call(sample_serve, &request); /* without memory there is no sample */
    return request.pointer;
}

void *hak__sample_object(uint32_t class_index, size_t size, uint64_t period)
{
    struct sample_record like = {
        .size = size, .usable = size_class_bytes(class_index), .period = period};
    return sample_take(like, class_index);
}

void hak__sample_block(void *pointer, size_t size, size_t usable, uint64_t period)
{
    struct sample_record like = {
        .address = (uintptr_t)pointer, .size = size, .usable = usable, .period = period};
    (void)sample_take(like, 0);
}

bool hak__sample_forget(const void *pointer)
{
    HAK_KEEP_ERRNO;
    if (!hak__samples_enter(false)) {
        return true;
    }
    struct sample_record *sample = samples_remove((uintptr_t)pointer);
    if (sample != NULL) {
        sample_end(sample);
    }
    hak__samples_leave();
    return sample != NULL;
}

const struct stack *hak__samples_first_stack(struct samples_history *history)
{
    *history = (struct samples_history){.count = 0};
    if (!hak__samples_enter(true)) {
        return NULL;
    }
    const struct stack *stack = hak__stack_first();
    history->count = hak__stacks_history(history->times_ms);
    history->peak_bytes = samples_peak_bytes;
    history->peak_ms = samples_peak_ms;
    hak__samples_leave();
    history->now_ms = hak__samples_clock_ms();
    return stack;
}

void hak__samples_look_since(uint64_t since_ms)
{
    if (!hak__samples_enter(true)) {
        return;
    }
    for (struct stack *stack = hak__stack_first(); stack != NULL; stack = stack->older) {
        memset(&stack->sums.since, 0, sizeof stack->sums.since);
    }
    for (size_t i = 0; i < samples_buckets_count; i++) {
        const struct sample_record *sample = samples_buckets[i];
        for (; sample != NULL; sample = sample->next) {
            if (sample->allocated_ms >= since_ms) {
                struct stack_sums *sums = &sample->stack->sums;
                double weight = hak__exponential_weight(sample->size, sample->period);
                sums->since.count += weight;
                sums->since.bytes += weight * (double)sample->size;
                sums->since.age_ms -= weight * (double)sample->allocated_ms;
                sums->since.samples++;
            }
        }
    }
    hak__samples_leave();
}

bool hak__samples_copy(const struct stack *stack, struct stack_sums *sums,
                       float live_bytes[HISTORY_MAX])
{
    if (!hak__samples_enter(true)) {
        return false;
    }
    uint64_t now_ms = hak__samples_clock_ms();
    *sums = stack->sums;
    sample_keep_peak(sums);
    memcpy(live_bytes, stack->history, sizeof stack->history);
    hak__samples_leave();
    sums->live_age_ms += (sums->allocated_count - sums->freed_count) * (double)now_ms;
    sums->since.age_ms += sums->since.count * (double)now_ms;
    return true;
}
