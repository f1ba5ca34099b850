/* SPDX-License-Identifier: MIT */
/* count_fast_path.c: counts the instructions of hits of malloc, free and their relatives, by single
 * steps.
 *
 * Usage: count_fast_path LIBRARY
 * Runs itself under LD_PRELOAD=LIBRARY, warms each size, then steps through a few hits of each
 * function from its first instruction to its return: now and then malloc looks at the clock, so
 * the shortest counts. Prints "FUNCTION(SIZE) COUNT" for each, and behind it "call", "push" or
 * "locked" when such an instruction was executed. Status 77: no x86-64, or no permission to trace.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define SKIPPED 77

#if defined(__x86_64__)

#define WARM_ROUNDS 100
#define HITS 16
#define STEPS_MAX 5000 /* a miss that calls into the kernel still ends */

static const size_t sizes[] = {16, 100, 1000, 2000, 30000};
#define SIZES (sizeof sizes / sizeof sizes[0])

enum function {
    MALLOC,
    USABLE_SIZE,
    REALLOC,
    FREE,
    FREE_NULL,
    ALIGNED_ALLOC,
    NEW,
    NEW_ALIGNED,
    DELETE,
    DELETE_SIZED,
    HEAP_CREATE,
    HEAP_MALLOC,
    HEAP_FREE,
    HEAP_FREE_SIZED,
    FUNCTION_COUNT
};
static const struct {
    const char *name;
    const char *symbol;
} functions[FUNCTION_COUNT] = {
    [MALLOC] = {"malloc", "malloc"},
    [USABLE_SIZE] = {"usable_size", "malloc_usable_size"},
    [REALLOC] = {"realloc", "realloc"}, /* within the object's class */
    [FREE] = {"free", "free"},
    [FREE_NULL] = {"free_null", "free"},
    [ALIGNED_ALLOC] = {"aligned_alloc", "aligned_alloc"},
    [NEW] = {"new", "_Znwm"},
    [NEW_ALIGNED] = {"new_aligned", "_ZnwmSt11align_val_t"},
    [DELETE] = {"delete", "_ZdlPv"},
    [DELETE_SIZED] = {"delete_sized", "_ZdlPvm"},
    [HEAP_CREATE] = {"heap_create", "hak_heap_create"},
    [HEAP_MALLOC] = {"heap_malloc", "hak_heap_malloc"},
    [HEAP_FREE] = {"heap_free", "hak_heap_free"},
    [HEAP_FREE_SIZED] = {"heap_free_sized", "hak_heap_free_sized"},
};

#define ALIGNMENT 128u

typedef void *any_function(uintptr_t first, uintptr_t second, uintptr_t third, uintptr_t fourth);
static any_function *bound[FUNCTION_COUNT];

static void *call(enum function function, uintptr_t first, uintptr_t second)
{
    return bound[function](first, second, 0, 0);
}

/* Stops for the tracer, which finds in registers what is called, then calls it. */
static void *call_counted(enum function function, uintptr_t first, uintptr_t second, size_t size)
{
    __asm__ volatile("int3" : : "D"(bound[function]), "S"((size_t)function), "d"(size) : "memory");
    return bound[function](first, second, 1, size); /* alignment and size, for a sized free */
}

/* Leaves an object in the bin that the counted calls take and put back. The result is another. */
static uintptr_t warm(enum function allocate, uintptr_t first, uintptr_t second)
{
    uintptr_t held = (uintptr_t)call(allocate, first, second);
    for (int i = 0; i < WARM_ROUNDS; i++) {
        call(FREE, (uintptr_t)call(allocate, first, second), 0);
    }
    return held;
}

static void count_size(size_t size)
{
    uintptr_t held = warm(MALLOC, size, 0);
    uintptr_t object = (uintptr_t)call_counted(MALLOC, size, 0, size);
    if (size != 0) {
        call_counted(USABLE_SIZE, object, 0, size);
        call_counted(REALLOC, object, size, size);
    }
    call_counted(FREE, object, 0, size);
    if (size != 0) {
        object = (uintptr_t)call_counted(NEW, size, 0, size);
        call_counted(DELETE, object, 0, size);
        object = (uintptr_t)call(NEW, size, 0);
        call_counted(DELETE_SIZED, object, size, size);
        uintptr_t held_aligned = warm(ALIGNED_ALLOC, ALIGNMENT, size);
        object = (uintptr_t)call_counted(ALIGNED_ALLOC, ALIGNMENT, size, size);
        call(FREE, object, 0);
        object = (uintptr_t)call_counted(NEW_ALIGNED, size, ALIGNMENT, size);
        call(FREE, object, 0);
        call(FREE, held_aligned, 0);
    }
    call(FREE, held, 0);
}

/* Objects of a heap. Its first object stays, so that the bin holds a second one. */
static void count_heap(uintptr_t heap, size_t size)
{
    uintptr_t held = (uintptr_t)call(HEAP_MALLOC, heap, size);
    for (int i = 0; i < WARM_ROUNDS; i++) {
        call(HEAP_FREE, heap, (uintptr_t)call(HEAP_MALLOC, heap, size));
    }
    uintptr_t object = (uintptr_t)call_counted(HEAP_MALLOC, heap, size, size);
    call_counted(HEAP_FREE, heap, object, size);
    object = (uintptr_t)call(HEAP_MALLOC, heap, size);
    call_counted(HEAP_FREE_SIZED, heap, object, size);
    call(HEAP_FREE, heap, held);
}

static int run_child(void)
{
    for (int i = 0; i < FUNCTION_COUNT; i++) {
        bound[i] = (any_function *)dlsym(RTLD_DEFAULT, functions[i].symbol);
        if (bound[i] == NULL) {
            fprintf(stderr, "%s is not there\n", functions[i].symbol);
            return 1;
        }
    }
    uintptr_t heap = (uintptr_t)call(HEAP_CREATE, 0, 0);
    for (size_t i = 0; i < HITS * SIZES; i++) {
        count_heap(heap, sizes[i % SIZES]);
        count_size(sizes[i % SIZES]);
        count_size(0);
    }
    call_counted(FREE_NULL, 0, 0, 0);
    return 0;
}

struct count {
    unsigned instructions;
    const char *forbidden; /* "", or the first kind that was seen */
};

/* What a fast path may not execute, told by its bytes; xchg with memory locks by itself. */
static const char *forbidden_in(const uint8_t *code)
{
    const uint8_t *at = code;
    while (*at != '\0' && strchr("\x66\xf2\xf3\x64\x65\x2e\x3e", *at) != NULL) {
        at++; /* size, repeat and segment prefixes */
    }
    if (*at == 0xf0) {
        return "locked";
    }
    if ((*at & 0xf0) == 0x40) {
        at++; /* REX */
    }
    unsigned extension = (at[1] >> 3) & 7u;
    if (*at == 0xe8 || (*at == 0xff && (extension == 2 || extension == 3))) {
        return "call";
    }
    if ((*at >= 0x50 && *at <= 0x57) || *at == 0x68 || *at == 0x6a ||
        (*at == 0xff && extension == 6)) {
        return "push";
    }
    if ((*at == 0x86 || *at == 0x87) && (at[1] >> 6) != 3) {
        return "locked";
    }
    return "";
}

static bool step(pid_t child)
{
    int status;
    return ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) == 0 &&
           waitpid(child, &status, 0) == child && WIFSTOPPED(status);
}

/* From where the child has just executed int3 to the return of `entry`. */
static bool count_call(pid_t child, uint64_t entry, struct count *count)
{
    struct user_regs_struct registers;
    unsigned long long entry_stack = 0;
    *count = (struct count){0, ""};
    for (unsigned steps = 0; steps < STEPS_MAX; steps++) {
        if (!step(child) || ptrace(PTRACE_GETREGS, child, NULL, &registers) != 0) {
            return false;
        }
        if (entry_stack == 0 && registers.rip == entry) {
            entry_stack = registers.rsp;
        }
        if (entry_stack == 0) {
            continue;
        }
        if (registers.rsp > entry_stack) {
            return true; /* returned */
        }
        uint64_t code = (uint64_t)ptrace(PTRACE_PEEKTEXT, child, (void *)registers.rip, NULL);
        if ((code & 0xffffffff) == 0xfa1e0ff3) {
            continue; /* endbr64: the compiler's default on some systems, executed as nothing */
        }
        count->instructions++;
        if (count->forbidden[0] == '\0') {
            count->forbidden = forbidden_in((const uint8_t *)&code);
        }
    }
    return entry_stack != 0;
}

static int trace(pid_t child)
{
    bool traced = false;
    for (;;) {
        int status;
        struct user_regs_struct registers;
        struct count count;
        if (waitpid(child, &status, 0) != child) {
            break;
        }
        if (WIFEXITED(status)) {
            return traced || WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : SKIPPED;
        }
        if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP) {
            break;
        }
        if (traced) { /* the first stop is the start of the program */
            if (ptrace(PTRACE_GETREGS, child, NULL, &registers) != 0 ||
                registers.rsi >= FUNCTION_COUNT || !count_call(child, registers.rdi, &count)) {
                break;
            }
            printf("%s(%llu) %u %s\n", functions[registers.rsi].name, registers.rdx,
                   count.instructions, count.forbidden);
        }
        traced = true;
        if (ptrace(PTRACE_CONT, child, NULL, NULL) != 0) {
            break;
        }
    }
    fprintf(stderr, "count_fast_path: lost the traced process\n");
    return 1;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--child") == 0) {
        return run_child();
    }
    if (argc != 2) {
        fprintf(stderr, "usage: count_fast_path LIBRARY\n");
        return 2;
    }
    pid_t child = fork();
    if (child == 0) {
        setenv("LD_PRELOAD", argv[1], 1);
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
            _exit(SKIPPED);
        }
        execl("/proc/self/exe", "count_fast_path", "--child", (char *)NULL);
        _exit(1);
    }
    return trace(child);
}

#else

int main(void)
{
    return SKIPPED;
}

#endif
