/* arch.h: the size of a cache line, and the one instruction that C has no name for. */
#ifndef HAK_BASE_ARCH_H
#define HAK_BASE_ARCH_H

#include "base/compiler.h"

/* Bytes: the line size of x86-64 and of most aarch64 processors. Not a setting: start lines,
 * alignments and the sizes of structs follow from it. */
#define HAK_CACHE_LINE 64u

#if !defined(__x86_64__) && !defined(__aarch64__)
#error "hakmem supports x86-64 and aarch64"
#endif

/* Tells the processor that this is a wait loop. */
HAK_INLINE void arch_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("yield" ::: "memory");
#endif
}

#endif
