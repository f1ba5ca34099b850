/* stacks.c: see stacks.h. */
#include "observe/stacks.h"

#include "base/atomics.h"
#include "base/bits.h"
#include "control/life.h"
#include "heap/heap.h"

#include <dlfcn.h>
#include <string.h>
#include <unwind.h>

/* The table grows by pieces of this size. */
#define STACKS_CHUNK_SIZE ((size_t)16 << 10)
/* Buckets of the hash table, for some 10,000 stacks. Half: longer searches. */
#define STACKS_BUCKETS (METADATA_CHUNK_SIZE / 2 / sizeof(void *))

#pragma weak dlopen
#pragma weak dlsym
#pragma weak _Unwind_Backtrace
#pragma weak _Unwind_GetIP

typedef _Unwind_Reason_Code stack_backtrace(_Unwind_Trace_Fn, void *);
typedef _Unwind_Ptr stack_address(struct _Unwind_Context *);

static stack_backtrace *shared_backtrace; /* both written by hak__stacks_start alone */
static stack_address *shared_address;

static bool stacks_given_up;  /* written in fork's child alone, before it has a second thread */
bool hak__stacks_lock_loader; /* written before shared_backtrace */

/* Under SAMPLES. */
static struct stack **stacks_buckets; /* [STACKS_BUCKETS]; NULL: not mapped yet */
static struct stack *stacks_newest;
static struct stack *stacks_rest; /* the stack without frames: also for those that found no room */
static unsigned char *stacks_chunk;
static size_t stacks_left;
static size_t stacks_bytes; /* taken for stacks */
static uint64_t history_ms[HISTORY_MAX];
static uint32_t history_count;
static uint64_t history_next_ms;
static uint64_t history_period_ms = HISTORY_START_MS;

bool hak__stacks_start(bool load)
{
    if (atomic_load_acquire(&shared_backtrace) != NULL) {
        return true;
    }
    if (stacks_given_up) {
        return false;
    }
    stack_backtrace *backtrace = _Unwind_Backtrace;
    stack_address *address = _Unwind_GetIP;
    if (backtrace == NULL || address == NULL) {
        if (dlopen == NULL || dlsym == NULL) { /* a static program without the unwinder */
            return false;
        }
        void *library = load ? dlopen("libgcc_s.so.1", RTLD_NOW | RTLD_LOCAL) : RTLD_DEFAULT;
        if (load && library == NULL) {
            return false;
        }
        backtrace = (stack_backtrace *)(uintptr_t)dlsym(library, "_Unwind_Backtrace");
        address = (stack_address *)(uintptr_t)dlsym(library, "_Unwind_GetIP");
    }
    if (backtrace == NULL || address == NULL) {
        return false;
    }
    hak__stacks_lock_loader = dlsym == NULL || dlsym(RTLD_DEFAULT, "_dl_find_object") == NULL;
    shared_address = address;
    /* release: pairs with the acquire in hak__stack_capture */
    atomic_store_release(&shared_backtrace, backtrace);
    return true;
}

void hak__stacks_fork_child(bool had_threads)
{
    if (had_threads && hak__stacks_lock_loader) {
        stacks_given_up = true;
        atomic_store_relaxed(&shared_backtrace, NULL);
    }
}

struct stack_walk {
    uintptr_t *frames;
    uint32_t depth;
};

static _Unwind_Reason_Code stack_step(struct _Unwind_Context *context, void *argument)
{
    struct stack_walk *walk = argument;
    uintptr_t address = shared_address(context);
    if (address == 0 || walk->depth == STACK_DEPTH_MAX) {
        return _URC_END_OF_STACK;
    }
    walk->frames[walk->depth++] = address;
    return _URC_NO_REASON;
}

uint32_t hak__stack_capture(uintptr_t *frames)
{
    struct stack_walk walk = {frames, 0};
    stack_backtrace *backtrace = atomic_load_acquire(&shared_backtrace);
    if (backtrace != NULL) {
        backtrace(stack_step, &walk);
    }
    return walk.depth;
}

/* Under SAMPLES. NULL: the table is full, or there is no memory. */
static void *stacks_take(size_t size)
{
    size = bits_align_up(size, sizeof(uint64_t) * 2);
    if (stacks_left < size) {
        void *chunk = stacks_bytes + STACKS_CHUNK_SIZE <= STACKS_BYTES_MAX
                          ? hak__metadata_allocate(STACKS_CHUNK_SIZE)
                          : NULL;
        if (chunk == NULL) {
            return NULL;
        }
        stacks_chunk = chunk;
        stacks_left = STACKS_CHUNK_SIZE;
        stacks_bytes += STACKS_CHUNK_SIZE;
    }
    void *memory = stacks_chunk;
    stacks_chunk += size;
    stacks_left -= size;
    return memory;
}

static bool stacks_have_buckets(void)
{
    if (stacks_buckets == NULL) {
        stacks_buckets = hak__metadata_allocate(STACKS_BUCKETS * sizeof(struct stack *));
    }
    return stacks_buckets != NULL;
}

/* FNV-1a over words (G. Fowler, L. C. Noll, K.-P. Vo), with a final mix of the high bits. */
static uint64_t stack_hash(const uintptr_t *frames, uint32_t depth)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (uint32_t i = 0; i < depth; i++) {
        hash = (hash ^ frames[i]) * UINT64_C(0x100000001b3);
        hash ^= hash >> 29;
    }
    return hash ^ hash >> 32;
}

static struct stack *stack_add(struct stack **bucket, const uintptr_t *frames, uint32_t depth,
                               uint64_t hash)
{
    struct stack *stack = stacks_take(sizeof *stack + depth * sizeof *frames);
    if (stack == NULL) {
        return stacks_rest;
    }
    *stack = (struct stack){.next = *bucket, .older = stacks_newest, .hash = hash, .depth = depth};
    memcpy(stack->frames, frames, depth * sizeof *frames);
    *bucket = stack;
    stacks_newest = stack;
    if (depth == 0) {
        stacks_rest = stack;
    }
    return stack;
}

static struct stack *stack_find(const uintptr_t *frames, uint32_t depth)
{
    uint64_t hash = stack_hash(frames, depth);
    struct stack **bucket = &stacks_buckets[hash % STACKS_BUCKETS];
    for (struct stack *stack = *bucket; stack != NULL; stack = stack->next) {
        if (stack->hash == hash && stack->depth == depth &&
            memcmp(stack->frames, frames, depth * sizeof *frames) == 0) {
            return stack;
        }
    }
    return stack_add(bucket, frames, depth, hash);
}

struct stack *hak__stack_of(const uintptr_t *frames, uint32_t depth)
{
    /* The entry for stacks without room comes first, so that it always has room. */
    if (!stacks_have_buckets() || (stacks_rest == NULL && stack_find(frames, 0) == NULL)) {
        return NULL;
    }
    return stack_find(frames, depth);
}

/* Keeps every second moment. */
static void history_thin_out(void)
{
    for (uint32_t i = 0; i < HISTORY_MAX / 2; i++) {
        history_ms[i] = history_ms[2 * i + 1];
        for (struct stack *stack = stacks_newest; stack != NULL; stack = stack->older) {
            stack->history[i] = stack->history[2 * i + 1];
        }
    }
    history_count = HISTORY_MAX / 2;
    history_period_ms *= 2;
}

void hak__stacks_note_history(uint64_t now_ms)
{
    if (HAK_LIKELY(now_ms < history_next_ms)) {
        return;
    }
    if (history_count == HISTORY_MAX) {
        history_thin_out();
    }
    history_ms[history_count] = now_ms;
    for (struct stack *stack = stacks_newest; stack != NULL; stack = stack->older) {
        const struct stack_sums *sums = &stack->sums;
        stack->history[history_count] = (float)(sums->allocated_bytes - sums->freed_bytes);
    }
    history_count++;
    history_next_ms = now_ms + history_period_ms;
}

uint32_t hak__stacks_history(uint64_t times_ms[HISTORY_MAX])
{
    for (uint32_t i = 0; i < history_count; i++) {
        times_ms[i] = history_ms[i];
    }
    return history_count;
}

struct stack *hak__stack_first(void)
{
    return stacks_newest;
}
