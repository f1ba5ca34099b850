/* SPDX-License-Identifier: MIT */
/* arch.h: the size of a cache line, the frame pointer, and the few instructions that C has no name
 * for. */
#ifndef HAK_BASE_ARCH_H
#define HAK_BASE_ARCH_H

#include "base/compiler.h"

/* Bytes: the line size of x86-64 and of most aarch64 processors. Not a setting: start lines,
 * alignments and the sizes of structs follow from it. */
#define HAK_CACHE_LINE 64u

/* A word that many threads write, in a line of its own: all slow paths read variables that would
 * be its neighbours, and each write would take that line from all processors
 * (docs/design/scale.md). */
struct arch_own_line {
    uint64_t word;
} __attribute__((aligned(64)));

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

/* ARCH_CALL_ON(NAME): defines the function NAME(top, function, argument), which calls
 * function(argument) on the stack whose upper end is `top`, a multiple of 16. Its own frame hangs
 * on the frame pointer, so unwinders find the caller. */
#define ARCH_FUNCTION(name, body)                                                                  \
    __asm__(".pushsection .text\n\t.p2align 4\n\t.globl " name "\n\t.hidden " name                 \
            "\n\t.type " name ", %function\n" name ":\n\t.cfi_startproc\n\t" body                  \
            "\n\tret\n\t.cfi_endproc\n\t.size " name ", . - " name "\n\t.popsection")
#if defined(__x86_64__)
#define ARCH_CALL_ON(name)                                                                         \
    ARCH_FUNCTION(name, "push %rbp\n\t.cfi_def_cfa_offset 16\n\t.cfi_offset %rbp, -16\n\t"         \
                        "mov %rsp, %rbp\n\t.cfi_def_cfa_register %rbp\n\t"                         \
                        "mov %rdi, %rsp\n\tmov %rdx, %rdi\n\tcall *%rsi\n\t"                       \
                        "mov %rbp, %rsp\n\tpop %rbp\n\t.cfi_def_cfa %rsp, 8")
#else
#define ARCH_CALL_ON(name)                                                                         \
    ARCH_FUNCTION(name, "stp x29, x30, [sp, #-16]!\n\t.cfi_def_cfa_offset 16\n\t"                  \
                        ".cfi_offset x29, -16\n\t.cfi_offset x30, -8\n\t"                          \
                        "mov x29, sp\n\t.cfi_def_cfa_register x29\n\t"                             \
                        "mov sp, x0\n\tmov x0, x2\n\tblr x1\n\t"                                   \
                        "mov sp, x29\n\t.cfi_def_cfa_register sp\n\tldp x29, x30, [sp], #16\n\t"   \
                        ".cfi_def_cfa_offset 0\n\t.cfi_restore x29\n\t.cfi_restore x30")
#endif

#endif
