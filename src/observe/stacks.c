/* SPDX-License-Identifier: MIT */
/* stacks.c: see stacks.h. */
#include "observe/stacks.h"

#include "base/atomics.h"
#include "base/bits.h"
#include "control/life.h"
#include "heap/heap.h"
#include "observe/loaded.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <unwind.h>

/* Buckets of the hash table, for some 10,000 stacks. Half: longer searches. */
#define STACKS_BUCKETS (METADATA_CHUNK_SIZE / 2 / sizeof(void *))

#pragma weak dlopen
#pragma weak dlsym
#pragma weak _Unwind_Backtrace
#pragma weak _Unwind_GetIPInfo
#pragma weak _Unwind_GetCFA
#pragma weak _Unwind_GetGR
#pragma weak _Unwind_Find_FDE

/* What _Unwind_Find_FDE tells besides: libgcc's struct dwarf_eh_bases. */
struct unwind_bases {
    void *text, *data, *function;
};
const void *_Unwind_Find_FDE(void *address, struct unwind_bases *bases);

/* The functions of the unwinder. */
struct unwinder {
    _Unwind_Reason_Code (*backtrace)(_Unwind_Trace_Fn, void *);
    _Unwind_Ptr (*address)(struct _Unwind_Context *, int *before);
    _Unwind_Word (*stack_pointer)(struct _Unwind_Context *);
    _Unwind_Word (*register_of)(struct _Unwind_Context *, int);
    const void *(*table)(void *, struct unwind_bases *);
};
static struct unwinder unwinder;
enum unwinder_state { UNWINDER_NONE, UNWINDER_COMES, UNWINDER_FOUND };
static uint32_t shared_unwinder_state; /* enum unwinder_state */

static bool stacks_given_up;  /* written in fork's child alone, before it has a second thread */
bool hak__stacks_lock_loader; /* written before the unwinder is found */

/* Under SAMPLES. */
static struct stack **stacks_buckets; /* [STACKS_BUCKETS]; NULL: not mapped yet */
static struct stack *stacks_newest;
static struct stack *stacks_rest; /* the stack without frames: also for those that found no room */
static size_t stacks_bytes;       /* taken for stacks */
static uint64_t history_ms[HISTORY_MAX];
static uint32_t history_count;
static uint64_t history_next_ms;
static uint64_t history_period_ms = HISTORY_START_MS;

/* False: a function is missing. */
static bool unwinder_is_whole(const struct unwinder *found)
{
    return found->backtrace != NULL && found->address != NULL && found->stack_pointer != NULL &&
           found->register_of != NULL && found->table != NULL;
}

/* Looks in `library`, which dlopen has opened. */
static struct unwinder unwinder_of(void *library)
{
    struct unwinder found;
    *(void **)&found.backtrace = dlsym(library, "_Unwind_Backtrace");
    *(void **)&found.address = dlsym(library, "_Unwind_GetIPInfo");
    *(void **)&found.stack_pointer = dlsym(library, "_Unwind_GetCFA");
    *(void **)&found.register_of = dlsym(library, "_Unwind_GetGR");
    *(void **)&found.table = dlsym(library, "_Unwind_Find_FDE");
    return found;
}

HAK_TLS struct observe_own hak__observe_own;

/* Looks up a function of hakmem. False: the unwinder does not know it. A static program's unwinder
 * allocates at its first look, and holds a mutex meanwhile: better here than below a throw of the
 * program, where a sample would wait for that mutex. */
static bool unwinder_is_ready(const struct unwinder *found)
{
    struct unwind_bases bases;
    hak__observe_own.is_walking = 1;
    atomic_fence_signal();
    bool ready = found->table((char *)(uintptr_t)hak__stacks_start + 1, &bases) != NULL;
    atomic_fence_signal();
    hak__observe_own.is_walking = 0;
    return ready;
}

bool hak__stacks_start(bool load)
{
    if (atomic_load_acquire(&shared_unwinder_state) == UNWINDER_FOUND) {
        return true;
    }
    if (stacks_given_up) {
        return false;
    }
    struct unwinder found = {_Unwind_Backtrace, _Unwind_GetIPInfo, _Unwind_GetCFA, _Unwind_GetGR,
                             _Unwind_Find_FDE};
    if (!unwinder_is_whole(&found)) {
        if (dlopen == NULL || dlsym == NULL) { /* a static program without the unwinder */
            return false;
        }
        void *library = load ? dlopen("libgcc_s.so.1", RTLD_NOW | RTLD_LOCAL) : RTLD_DEFAULT;
        if (load && library == NULL) {
            return false;
        }
        found = unwinder_of(library);
    }
    if (!unwinder_is_whole(&found) || !unwinder_is_ready(&found)) {
        return false;
    }
    hak__stacks_lock_loader = !hak__loaded_start();
    uint32_t none = UNWINDER_NONE;
    if (atomic_cas_acquire(&shared_unwinder_state, &none, UNWINDER_COMES)) {
        unwinder = found;
        /* release: pairs with the acquire in hak__stack_capture */
        atomic_store_release(&shared_unwinder_state, UNWINDER_FOUND);
    }
    return true;
}

void hak__stacks_fork_child(bool had_threads)
{
    if (had_threads && hak__stacks_lock_loader) {
        stacks_given_up = true;
        atomic_store_relaxed(&shared_unwinder_state, (uint32_t)UNWINDER_NONE);
    }
}

struct stack_walk {
    uintptr_t *frames;
    uint32_t depth;
    bool ended; /* at the first function of the thread, or at the bound */
};

/* The next frame is one that a signal interrupted. No call is behind its address, which is the next
 * instruction, nor behind that of the frame before, which is the start of code that the handler
 * returns to. Tools look one byte before each address, so these two are stored with 1 more. */
static HAK_COLD void stack_note_signal(struct stack_walk *walk)
{
    if (walk->depth != 0) {
        walk->frames[walk->depth - 1]++;
    }
}

static _Unwind_Reason_Code stack_step(struct _Unwind_Context *context, void *argument)
{
    struct stack_walk *walk = argument;
    int before = 0;
    uintptr_t address = unwinder.address(context, &before);
    if (address == 0 || walk->depth == STACK_DEPTH_MAX) {
        walk->ended = true;
        if (address != 0) {
            walk->frames[STACK_DEPTH_MAX - 1] = STACK_CUT;
        }
        return _URC_END_OF_STACK;
    }
    if (HAK_UNLIKELY(before != 0)) {
        stack_note_signal(walk);
        address++;
    }
    walk->frames[walk->depth++] = address;
    return _URC_NO_REASON;
}

static bool stack_has_table(uintptr_t address)
{
    struct unwind_bases bases;
    return unwinder.table((void *)address, &bases) != NULL;
}

/* The registers of the frame whose return address is `address`. */
struct stack_registers {
    uintptr_t address;
    uintptr_t stack_pointer; /* 0: not found */
    uintptr_t frame_pointer;
};

static _Unwind_Reason_Code stack_find_registers(struct _Unwind_Context *context, void *argument)
{
    struct stack_registers *registers = argument;
    int before = 0;
    uintptr_t address = unwinder.address(context, &before);
    if (address + (before != 0) != registers->address) {
        return _URC_NO_REASON;
    }
    registers->stack_pointer = unwinder.stack_pointer(context);
    registers->frame_pointer = unwinder.register_of(context, ARCH_FRAME_POINTER);
    return _URC_END_OF_STACK;
}

/* The unwinder has stopped at code without tables. A second walk reads the registers, so that other
 * stacks do not pay for them. */
static HAK_COLD uint32_t stack_capture_rest(uintptr_t *frames, uint32_t depth)
{
    struct stack_registers registers = {.address = frames[depth - 1]};
    unwinder.backtrace(stack_find_registers, &registers);
    if (registers.stack_pointer == 0) {
        return depth;
    }
    return hak__frame_pointers_follow(frames, depth, STACK_DEPTH_MAX, registers.stack_pointer,
                                      registers.frame_pointer, stack_has_table);
}

/* All frames of this thread. */
static uint32_t stack_walk(uintptr_t *frames)
{
    struct stack_walk walk = {frames, 0, false};
    unwinder.backtrace(stack_step, &walk);
    if (HAK_UNLIKELY(!walk.ended) && walk.depth != 0 &&
        !stack_has_table(frames[walk.depth - 1] - 1)) {
        walk.depth = stack_capture_rest(frames, walk.depth);
        if (walk.depth == STACK_DEPTH_MAX) {
            frames[STACK_DEPTH_MAX - 1] = STACK_CUT;
        }
    }
    return walk.depth;
}

uint32_t hak__stack_capture(uintptr_t *frames)
{
    /* acquire: pairs with the release in hak__stacks_start */
    if (hak__observe_own.is_walking != 0 ||
        atomic_load_acquire(&shared_unwinder_state) != UNWINDER_FOUND) {
        return 0;
    }
    hak__observe_own.is_walking = 1;
    atomic_fence_signal();
    uint32_t depth = stack_walk(frames);
    atomic_fence_signal();
    hak__observe_own.is_walking = 0;
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
    if (depth == 0 && site == NULL && thread == 0) {
        stacks_rest = stack;
    }
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

struct stack *hak__stack_of(const struct site *site, uint32_t thread, const uintptr_t *frames,
                            uint32_t depth)
{
    /* The entry for stacks without room comes first, so that it always has room. */
    if (!stacks_have_buckets() || (stacks_rest == NULL && stack_find(NULL, 0, frames, 0) == NULL)) {
        return NULL;
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
