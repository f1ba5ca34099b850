/* SPDX-License-Identifier: MIT */
/* moment.c: whether a stopped thread may start the observer, see attach.h.
 *
 * It would call hak_observe_enter, which calls pthread_create. A thread may do so when it holds no
 * lock that this call needs, and changes nothing that it needs:
 *
 * - hakmem's locks. The function does not touch the thread's cache, and does nothing if the thread
 *   is inside an operation with locks (EBUSY). A thread is not used if its next instruction is
 *   hakmem's, or if hakmem has just made a system call for it or called another library.
 * - The loader's locks. A thread is not used if its next instruction is the loader's.
 * - The C library's locks of the list of stacks, of the default attributes and of thread-local
 *   storage. The library holds them only while it runs itself, and in none of the system
 *   calls of target_call. So a thread is used if it is in such a call, or if its next instruction
 *   belongs to the program or to another library: there a program may call pthread_create itself.
 *   Of the library's waits for a futex, only those for events count. Its waits for its locks, and
 *   that of setuid, which holds the list of stacks, are made by another operation.
 *
 * A signal handler may have interrupted any of these: so if there is the frame of a handler on the
 * stack, what it has interrupted must be one of the good places, too.
 *
 * Stacks are full of old words: a function rarely fills all of its frame, and below it are the
 * return addresses of calls that ended long ago. A thread that sleeps for hours keeps them as long.
 * So a word counts only if it is where a living call has it, or if what it belongs to is whole. */
#include "attach.h"

#include <stdlib.h>
#include <string.h>

/* Words of the stack in which a caller's return address lies: a function has few. */
#define CALLER_WORDS 64u
/* Bytes of the stack that are searched for a signal handler's frame. Doubled: a longer stop.
 * Halved: a handler that has used more stack than this may be missed. */
#define STACK_BYTES ((size_t)256 << 10)
#define ENDS_MAX 64u
#define CODE_CHUNK ((size_t)1 << 20)
#define CODE_MAX ((size_t)256 << 20)

/* Addresses to which signal handlers return. */
static uintptr_t handler_ends[ENDS_MAX];
static size_t handler_ends_count;
static uintptr_t handler_ends_low = UINTPTR_MAX, handler_ends_high;

/* --- signal handlers --- */

static void note_ends(const unsigned char *code, size_t size, uintptr_t address)
{
    for (size_t i = 0; i < tracee_patterns_count; i++) {
        const struct pattern *pattern = &tracee_patterns[i];
        const unsigned char *at = code;
        while ((at = memmem(at, size - (size_t)(at - code), pattern->bytes, pattern->size)) !=
                   NULL &&
               handler_ends_count < ENDS_MAX) {
            uintptr_t end = address + (uintptr_t)(at - code);
            handler_ends[handler_ends_count++] = end;
            handler_ends_low = end < handler_ends_low ? end : handler_ends_low;
            handler_ends_high = end > handler_ends_high ? end : handler_ends_high;
            at++;
        }
    }
}

void moment_prepare(const struct target *target)
{
    unsigned char *code = malloc(CODE_CHUNK);
    size_t total = 0;
    if (code == NULL) {
        refuse(STATUS_FAILED, "there is no memory");
    }
    for (size_t i = 0; i < target->mappings_count; i++) {
        const struct mapping *mapping = &target->mappings[i];
        if (!mapping->executable || (mapping->inode == 0 && mapping->object != OBJECT_KERNEL)) {
            continue; /* code that is made at run time calls the C library for this */
        }
        /* Chunks overlap, so that no pattern lies between two. */
        for (uintptr_t at = mapping->start; at < mapping->end && total < CODE_MAX;
             at += CODE_CHUNK - 16) {
            size_t size = mapping->end - at < CODE_CHUNK ? mapping->end - at : CODE_CHUNK;
            size_t got = target_memory(target->living, at, code, size);
            total += got;
            note_ends(code, got, at);
            if (got < size) { /* the rest is not there: the program may claim terabytes */
                break;
            }
        }
    }
    free(code);
}

static bool is_handler_end(uintptr_t word)
{
    if (word < handler_ends_low || word > handler_ends_high) {
        return false;
    }
    for (size_t i = 0; i < handler_ends_count; i++) {
        if (handler_ends[i] == word) {
            return true;
        }
    }
    return false;
}

/* --- hakmem --- */

/* The C library's `syscall`, by which hakmem makes all its waiting calls, has no frame. So hakmem
 * has made a call just if its return address comes first. */
static bool is_call_of_hakmem(const struct target *target, uintptr_t caller)
{
    const struct mapping *code = target_mapping(target, caller);
    return code != NULL && code->executable && code->is_hakmem;
}

/* A thread is in another library's code. True: hakmem has called that library, if the word is a
 * return address of a living call. Calls inside hakmem do not count: behind them would be the call
 * by which the thread has left. Nor do calls of the C library, which does not call others. */
static bool is_behind_call(const struct target *target, uintptr_t word)
{
    const struct mapping *code = target_mapping(target, word);
    if (code == NULL || !code->executable || !code->is_hakmem) {
        return false;
    }
    uintptr_t callee;
    switch (tracee_callee(target->living, word, &callee)) {
    case CALLEE_NONE:
        return false;
    case CALLEE_UNKNOWN:
        return true;
    case CALLEE_KNOWN:
        break;
    }
    const struct mapping *called = target_mapping(target, callee);
    return called == NULL ||
           !(called->is_hakmem || called->object == OBJECT_LIBC || called->object == OBJECT_LOADER);
}

/* --- the moment --- */

/* The words of the stack from `sp` on, of which the first `count` could be read. */
struct words {
    const struct mapping *stack;
    size_t count;
    uintptr_t words[STACK_BYTES / sizeof(uintptr_t)];
};

static bool words_read(const struct target *target, uintptr_t sp, struct words *words)
{
    words->stack = target_mapping(target, sp);
    if (words->stack == NULL || sp % sizeof words->words[0] != 0) {
        return false;
    }
    size_t size = words->stack->end - sp;
    size = size < sizeof words->words ? size : sizeof words->words;
    words->count = target_memory(target->living, sp, words->words, size) / sizeof words->words[0];
    return words->count != 0;
}

/* `first`: the first of `count` words of the stack there. */
static const char *place_why_not(const struct target *target, const struct symbols *symbols,
                                 const struct place *place, uintptr_t caller,
                                 const uintptr_t *first, size_t count)
{
    const struct mapping *code = target_mapping(target, place->pc);
    if (code == NULL || !code->executable) {
        return "runs code that is not known";
    }
    if (code->object == OBJECT_LOADER || code->object == OBJECT_KERNEL ||
        place->sp - symbols->stack < symbols->stack_size) {
        return "is in the loader or the kernel's library";
    }
    if (place->call >= 0 && target_call(code, place->call, place->second) == DOING_NOTHING_GOOD) {
        return "is in another system call";
    }
    if (code->is_hakmem && (place->call < 0 || !symbols->is_program)) {
        return "is in hakmem";
    }
    if (place->call < 0 && code->object == OBJECT_LIBC) {
        return "is in the C library";
    }
    if (symbols->is_program) { /* all code is in one file, and a caller tells nothing */
        return NULL;
    }
    if (place->call >= 0) {
        return is_call_of_hakmem(target, caller) ? "is in hakmem" : NULL;
    }
    for (size_t i = 0; i < count && i < CALLER_WORDS; i++) {
        if (is_behind_call(target, first[i])) {
            return "is called by hakmem";
        }
    }
    return NULL;
}

/* A handler may never return: servers fork children in one, which live in it. So the place that it
 * has interrupted must be as good as that of a thread without a handler. */
static const char *handlers_why_not(const struct target *target, const struct symbols *symbols,
                                    uintptr_t sp, const struct words *words)
{
    struct place place;
    for (size_t i = 0; i < words->count; i++) {
        enum frame frame =
            is_handler_end(words->words[i])
                ? tracee_frame(target->living, words->words + i, words->count - i, &place)
                : FRAME_NONE;
        if (frame == FRAME_NONE) {
            continue;
        }
        size_t at = frame == FRAME_KNOWN ? (place.sp - sp) / sizeof words->words[0] : 0;
        if (at <= i || at >= words->count) { /* on another stack, or out of sight */
            return "runs a signal handler";
        }
        if (place_why_not(target, symbols, &place, words->words[at], words->words + at,
                          words->count - at) != NULL) {
            return "runs a signal handler";
        }
    }
    return NULL;
}

const char *moment_why_not(const struct target *target, const struct symbols *symbols, pid_t tid,
                           const struct state *state)
{
    static struct words words;
    struct place place = {state_pc(state), state_sp(state), state_call(tid, state),
                          state_second(state)};
    if (!words_read(target, place.sp, &words)) {
        return "has no stack";
    }
    const char *why_not = place_why_not(
        target, symbols, &place, state_caller(state, words.words[0]), words.words, words.count);
    if (why_not == NULL && place.call < 0 && tracee_is_in_sequence(tid)) {
        why_not = "is in a restartable sequence";
    }
    return why_not != NULL ? why_not : handlers_why_not(target, symbols, place.sp, &words);
}
