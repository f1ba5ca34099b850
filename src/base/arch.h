/* SPDX-License-Identifier: MIT */
/* arch.h: the size of a cache line, the registers of unwind tables, and the few instructions that C
 * has no name for. */
#ifndef HAK_BASE_ARCH_H
#define HAK_BASE_ARCH_H

#include "base/compiler.h"

/* Bytes: the line size of x86-64 and of most aarch64 processors. Not a setting: start lines,
 * alignments and the sizes of structs follow from it. */
#define HAK_CACHE_LINE 64u

/* A word that many threads write, in a line of its own: all slow paths read variables that would
 * be its neighbours, and each write would take that line from all processors
 * (lab/README.md). */
struct arch_own_line {
    uint64_t word;
} __attribute__((aligned(64)));

#if !defined(__x86_64__) && !defined(__aarch64__)
#error "hakmem supports x86-64 and aarch64"
#endif

/* Bytes: the smallest and the largest page that a kernel for this processor may have. */
#define ARCH_PAGE_SIZE_MIN ((size_t)4096)
#if defined(__x86_64__)
#define ARCH_PAGE_SIZE_MAX 4096u
#else
#define ARCH_PAGE_SIZE_MAX 65536u
#endif

/* Registers in unwind tables, by the DWARF numbers of both processors. The last one is the address
 * of the next instruction, which has no number on aarch64. */
#if defined(__x86_64__)
enum arch_register {
    ARCH_FRAME_POINTER = 6,
    ARCH_STACK_POINTER = 7,
    ARCH_RETURN_ADDRESS = 16,
    ARCH_NEXT_INSTRUCTION = 16,
    ARCH_REGISTERS
};
#else
enum arch_register {
    ARCH_FRAME_POINTER = 29,
    ARCH_RETURN_ADDRESS = 30,
    ARCH_STACK_POINTER = 31,
    ARCH_NEXT_INSTRUCTION = 32,
    ARCH_REGISTERS
};
#endif

/* Those that a function leaves as they were, and the last one: a bit for each number. */
#if defined(__x86_64__)
#define ARCH_KEPT_REGISTERS UINT64_C(0x1f0c8)
#else
#define ARCH_KEPT_REGISTERS UINT64_C(0x1fff80000)
#endif
/* The same as a list, without the stack pointer. */
#if defined(__x86_64__)
#define ARCH_KEPT_ORDER                                                                            \
    {                                                                                              \
        3, 6, 12, 13, 14, 15, 16                                                                   \
    }
#else
#define ARCH_KEPT_ORDER                                                                            \
    {                                                                                              \
        19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30                                             \
    }
#endif
/* Stores those of the first list as they are here. */
HAK_INLINE void arch_store_registers(uintptr_t registers[ARCH_REGISTERS])
{
#if defined(__x86_64__)
    __asm__ volatile("movq %%rbx, 24(%0)\n\tmovq %%rbp, 48(%0)\n\tmovq %%rsp, 56(%0)\n\t"
                     "movq %%r12, 96(%0)\n\tmovq %%r13, 104(%0)\n\tmovq %%r14, 112(%0)\n\t"
                     "movq %%r15, 120(%0)\n\tleaq 0(%%rip), %%rax\n\tmovq %%rax, 128(%0)"
                     :
                     : "r"(registers)
                     : "rax", "memory");
#else
    __asm__ volatile("stp x19, x20, [%0, #152]\n\tstp x21, x22, [%0, #168]\n\t"
                     "stp x23, x24, [%0, #184]\n\tstp x25, x26, [%0, #200]\n\t"
                     "stp x27, x28, [%0, #216]\n\tstp x29, x30, [%0, #232]\n\t"
                     "mov x9, sp\n\tadr x10, .\n\tstp x9, x10, [%0, #248]"
                     :
                     : "r"(registers)
                     : "x9", "x10", "memory");
#endif
}

/* Where the caller's stack pointer is right above a record of the frame pointer. */
#if defined(__x86_64__)
#define ARCH_RECORD_ENDS_FRAME true
#else
#define ARCH_RECORD_ENDS_FRAME false
#endif

/* The code to which a signal handler returns, the call of rt_sigreturn, and where the kernel has
 * put the interrupted registers: their offset from the stack pointer, and the number of each. */
#if defined(__x86_64__)
#define ARCH_SIGNAL_RETURN "\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05"
#define ARCH_SIGNAL_OFFSET 40
#define ARCH_SIGNAL_ORDER                                                                          \
    {                                                                                              \
        8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7, 16                                   \
    }
#else
#define ARCH_SIGNAL_RETURN "\x68\x11\x80\xd2\x01\x00\x00\xd4"
#define ARCH_SIGNAL_OFFSET 312
#define ARCH_SIGNAL_ORDER                                                                          \
    {                                                                                              \
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24,  \
            25, 26, 27, 28, 29, 30, 31, 32                                                         \
    }
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
