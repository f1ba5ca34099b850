/* count_fast_path.c: counts the instructions of malloc's and free's hits, by single steps.
 *
 * Usage: count_fast_path LIBRARY
 * Runs itself under LD_PRELOAD=LIBRARY, warms each size, then steps through a few hits of each
 * function from its first instruction to its return. Prints "FUNCTION(SIZE) COUNT" for the
 * shortest, since now and then malloc looks at the clock, and behind it "call", "push" or "locked"
 * when such an instruction was executed. Status 77: no x86-64, or no permission to trace.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <limits.h>
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
#define HITS 3
#define STEPS_MAX 5000 /* a miss that calls into the kernel still ends */

static const size_t sizes[] = {16, 100, 1000, 2000, 30000};
#define SIZES (sizeof sizes / sizeof sizes[0])

struct pair {
    const char *allocate;
    const char *release;
    const char *allocate_name;
    const char *release_name;
};
static const struct pair pairs[] = {{"malloc", "free", "malloc", "free"},
                                    {"_Znwm", "_ZdlPv", "new", "delete"}};
#define PAIRS (sizeof pairs / sizeof pairs[0])

/* Stops for the tracer, which finds the function in rdi, then calls it. */
static void *stop_and_call(void *(*function)(void *), void *argument)
{
    __asm__ volatile("int3" : : "D"(function) : "memory");
    return function(argument);
}

static int run_child(void)
{
    for (size_t p = 0; p < PAIRS; p++) {
        void *(*allocate)(void *) = (void *(*)(void *))dlsym(RTLD_DEFAULT, pairs[p].allocate);
        void *(*release)(void *) = (void *(*)(void *))dlsym(RTLD_DEFAULT, pairs[p].release);
        if (allocate == NULL || release == NULL) {
            fprintf(stderr, "%s or %s is not there\n", pairs[p].allocate, pairs[p].release);
            return 1;
        }
        for (size_t s = 0; s < SIZES; s++) {
            void *size = (void *)sizes[s];
            void *held = allocate(size);
            /* Leaves an object in the bin that the counted calls take and put back. */
            for (int i = 0; i < WARM_ROUNDS; i++) {
                release(allocate(size));
            }
            for (int i = 0; i < HITS; i++) {
                void *object = stop_and_call(allocate, size);
                stop_and_call(release, object);
            }
            release(held);
        }
    }
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

/* The child has just executed int3 with the function's address in rdi. */
static bool count_call(pid_t child, struct count *count)
{
    struct user_regs_struct registers;
    *count = (struct count){0, ""};
    if (ptrace(PTRACE_GETREGS, child, NULL, &registers) != 0) {
        return false;
    }
    unsigned long long function = registers.rdi, entry_stack = 0;
    for (unsigned steps = 0; steps < STEPS_MAX; steps++) {
        if (!step(child) || ptrace(PTRACE_GETREGS, child, NULL, &registers) != 0) {
            return false;
        }
        if (entry_stack == 0 && registers.rip == function) {
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

static bool wait_for_stop(pid_t child)
{
    int status;
    return waitpid(child, &status, 0) == child && WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP;
}

static int trace(pid_t child)
{
    if (!wait_for_stop(child)) {
        return SKIPPED; /* the child was not allowed to be traced */
    }
    for (size_t i = 0; i < PAIRS * SIZES; i++) {
        const struct pair *pair = &pairs[i / SIZES];
        struct count least[2] = {{UINT_MAX, ""}, {UINT_MAX, ""}};
        for (size_t call = 0; call < 2 * (size_t)HITS; call++) {
            struct count count;
            if (ptrace(PTRACE_CONT, child, NULL, NULL) != 0 || !wait_for_stop(child) ||
                !count_call(child, &count)) {
                fprintf(stderr, "count_fast_path: lost the traced process\n");
                return 1;
            }
            if (count.instructions < least[call % 2].instructions) {
                least[call % 2] = count;
            }
        }
        printf("%s(%zu) %u %s\n", pair->allocate_name, sizes[i % SIZES], least[0].instructions,
               least[0].forbidden);
        printf("%s(%zu) %u %s\n", pair->release_name, sizes[i % SIZES], least[1].instructions,
               least[1].forbidden);
    }
    return 0;
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
