/* SPDX-License-Identifier: MIT */
/* stacks.c: see stacks.h. */
#include "observe/stacks.h"

#include "arena/arena.h"
#include "base/atomics.h"
#include "base/bits.h"
#include "control/life.h"
#include "observe/unwind.h"

#include <link.h>
#include <string.h>

/* Buckets of the hash table, for some 10,000 stacks. Half: longer searches. */
#define STACKS_BUCKETS (METADATA_CHUNK_SIZE / 2 / sizeof(void *))

enum stacks_state { STACKS_NONE, STACKS_COME, STACKS_FOUND };
static uint32_t shared_stacks_state; /* enum stacks_state */

static bool stacks_given_up;  /* written in fork's child alone, before it has a second thread */
bool hak__stacks_lock_loader; /* written before stacks are found */

/* Under SAMPLES. */
static struct stack **stacks_buckets; /* [STACKS_BUCKETS]; NULL: not mapped yet */
static struct stack *stacks_newest;
static struct stack *stacks_rest; /* of those that found no room: all frames are cut */
static size_t stacks_bytes;       /* taken for stacks */
static uint64_t history_ms[HISTORY_MAX] HAK_SELDOM;
static uint32_t history_count;
static uint64_t history_next_ms;
/* Milliseconds between the first two moments. Half: a program that ends at once has more of
 * them. */
static uint64_t history_period_ms = 16;

bool hak__stacks_start(void)
{
    uint32_t none = STACKS_NONE;
    if (stacks_given_up) {
        return false;
    }
    if (!atomic_cas_acquire(&shared_stacks_state, &none, (uint32_t)STACKS_COME)) {
        return true;
    }
    bool found = hak__unwind_start(&hak__stacks_lock_loader);
    /* release: pairs with the acquire in hak__stack_capture */
    atomic_store_release(&shared_stacks_state, (uint32_t)(found ? STACKS_FOUND : STACKS_NONE));
    return found;
}

void hak__stacks_fork_child(bool had_threads)
{
    if (had_threads && hak__stacks_lock_loader) {
        stacks_given_up = true;
        atomic_store_relaxed(&shared_stacks_state, (uint32_t)STACKS_NONE);
    }
}

uint32_t hak__stack_capture(uintptr_t *frames, uint32_t depth_max)
{
    bool more;
    /* acquire: pairs with the release in hak__stacks_start */
    if (atomic_load_acquire(&shared_stacks_state) != STACKS_FOUND) {
        return 0;
    }
    uint32_t depth = hak__unwind(frames, depth_max, &more);
    if (more) {
        frames[depth - 1] = STACK_CUT;
    }
    return depth;
}

/* Where the linker has put hakmem's code: in an archive's program into a section of its own
 * (cmake/hakmem_library.cmake), in the shared library into the segment with the code. */
HAK_HIDDEN extern const unsigned char __start_hakmem_text[] __attribute__((weak));
HAK_HIDDEN extern const unsigned char __stop_hakmem_text[] __attribute__((weak));
HAK_HIDDEN extern const ElfW(Ehdr) __ehdr_start;

static bool stack_is_own(uintptr_t address)
{
    if (__start_hakmem_text != NULL) {
        return address - (uintptr_t)__start_hakmem_text <=
               (uintptr_t)(__stop_hakmem_text - __start_hakmem_text);
    }
    uintptr_t base = (uintptr_t)&__ehdr_start;
    const ElfW(Phdr) *segment = (const ElfW(Phdr) *)(base + __ehdr_start.e_phoff);
    for (uint32_t i = 0; i < __ehdr_start.e_phnum; i++, segment++) {
        if (segment->p_type == PT_LOAD && (segment->p_flags & PF_X) != 0 &&
            address - base - segment->p_vaddr <= segment->p_memsz) {
            return true;
        }
    }
    return false;
}

uint32_t hak__stack_own(const uintptr_t *frames, uint32_t depth)
{
    uint32_t own = 0;
    while (own < depth && stack_is_own(frames[own])) {
        own++;
    }
    return own;
}

/* Under SAMPLES. NULL: the table is full, or there is no memory. */
static void *stacks_take(size_t size)
{
    size = bits_align_up(size, HAK_CACHE_LINE);
    void *memory = stacks_bytes + size <= STACKS_BYTES_MAX ? hak__metadata_allocate(size) : NULL;
    stacks_bytes += memory != NULL ? size : 0;
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
static uint64_t stack_hash(const struct site *site, uint32_t thread, const uintptr_t *frames,
                           uint32_t depth)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ (uintptr_t)site ^ (uint64_t)thread << 48;
    for (uint32_t i = 0; i < depth; i++) {
        hash = (hash ^ frames[i]) * UINT64_C(0x100000001b3);
        hash ^= hash >> 29;
    }
    return hash ^ hash >> 32;
}

static struct stack *stack_add(struct stack **bucket, const struct site *site, uint32_t thread,
                               const uintptr_t *frames, uint32_t depth, uint64_t hash)
{
    struct stack *stack = stacks_take(sizeof *stack + depth * sizeof *frames);
    if (stack == NULL) {
        return stacks_rest;
    }
    *stack = (struct stack){.next = *bucket,
                            .older = stacks_newest,
                            .hash = hash,
                            .site = site,
                            .depth = depth,
                            .thread = thread};
    memcpy(stack->frames, frames, depth * sizeof *frames);
    *bucket = stack;
    stacks_newest = stack;
    return stack;
}

static struct stack *stack_find(const struct site *site, uint32_t thread, const uintptr_t *frames,
                                uint32_t depth)
{
    uint64_t hash = stack_hash(site, thread, frames, depth);
    struct stack **bucket = &stacks_buckets[hash % STACKS_BUCKETS];
    for (struct stack *stack = *bucket; stack != NULL; stack = stack->next) {
        if (stack->hash == hash && stack->site == site && stack->thread == thread &&
            stack->depth == depth && memcmp(stack->frames, frames, depth * sizeof *frames) == 0) {
            return stack;
        }
    }
    return stack_add(bucket, site, thread, frames, depth, hash);
}

/* The entry for stacks without room. It comes first, so that it always has room. */
static bool stacks_have_rest(void)
{
    uintptr_t cut = STACK_CUT;
    if (stacks_rest == NULL && stacks_have_buckets()) {
        stacks_rest = stack_find(NULL, 0, &cut, 1);
    }
    return stacks_rest != NULL;
}

/* Frames that a new stack may have: the fuller the table, the fewer. */
static uint32_t stacks_depth_max(void)
{
    return stacks_bytes < STACKS_BYTES_MAX / 2       ? STACK_DEPTH_MAX
           : stacks_bytes < STACKS_BYTES_MAX / 4 * 3 ? STACK_DEPTH_MAX / 8
                                                     : STACK_DEPTH_MAX / 32;
}

struct stack *hak__stack_of(const struct site *site, uint32_t thread, uintptr_t *frames,
                            uint32_t depth)
{
    if (!stacks_have_rest()) {
        return NULL;
    }
    uint32_t depth_max = stacks_depth_max();
    if (depth > depth_max) {
        frames[depth_max - 1] = STACK_CUT;
        depth = depth_max;
    }
    return stack_find(site, stacks_bytes < STACKS_BYTES_MAX / 2 ? thread : 0, frames, depth);
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
