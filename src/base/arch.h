/* arch.h: the size of a cache line, the frame pointer, and the few instructions that C has no name
 * for. */
#ifndef HAK_BASE_ARCH_H
#define HAK_BASE_ARCH_H

#include "base/compiler.h"

/* Bytes: the line size of x86-64 and of most aarch64 processors. Not a setting: start lines,
 * alignments and the sizes of structs follow from it. */
#define HAK_CACHE_LINE 64u

#if !defined(__x86_64__) && !defined(__aarch64__)
#error "hakmem supports x86-64 and aarch64"
#endif

/* Bytes: the largest page that a kernel for this processor may have. */
#if defined(__x86_64__)
#define ARCH_PAGE_SIZE_MAX 4096u
#else
#define ARCH_PAGE_SIZE_MAX 65536u
#endif

/* Number of the frame pointer's register in unwind tables: the DWARF numbers of both processors. */
#if defined(__x86_64__)
#define ARCH_FRAME_POINTER 6
#else
#define ARCH_FRAME_POINTER 29
#endif

/* A return address as it was before the processor signed it. aarch64 signs in the bits above the
 * 48 that addresses of programs have. */
HAK_INLINE uintptr_t arch_strip_signature(uintptr_t address)
{
#if defined(__aarch64__)
    return address & ((UINT64_C(1) << 48) - 1);
#else
    return address;
#endif
}

/* Tells the processor that this is a wait loop. */
HAK_INLINE void arch_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("yield" ::: "memory");
#endif
}

/* Goes on with function(argument) on the stack whose upper end is `top`, a multiple of 16. The
 * function must not return. */
HAK_INLINE __attribute__((noreturn)) void arch_go_on_at(void *top, void (*function)(uintptr_t),
                                                        uintptr_t argument)
{
#if defined(__x86_64__)
    __asm__ volatile("mov %0, %%rsp\n\t"
                     "xor %%ebp, %%ebp\n\t" /* the last frame, for those that walk the stack */
                     "call *%1\n\t"
                     "ud2"
                     :
                     : "a"(top), "d"(function), "D"(argument)
                     : "memory");
#else
    register uintptr_t first __asm__("x0") = argument;
    register void (*called)(uintptr_t) __asm__("x1") = function;
    register void *end __asm__("x2") = top;
    __asm__ volatile("mov sp, %0\n\t"
                     "mov x29, xzr\n\t"
                     "blr %1\n\t"
                     "brk #1"
                     :
                     : "r"(end), "r"(called), "r"(first)
                     : "memory");
#endif
    __builtin_unreachable();
}

#endif
