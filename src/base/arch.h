/* arch.h: the processor's constants and the one instruction C has no name for. */
#ifndef HAK_BASE_ARCH_H
#define HAK_BASE_ARCH_H

#include "base/compiler.h"

#define HAK_CACHE_LINE 64u

#if !defined(__x86_64__) && !defined(__aarch64__)
#error "hakmem supports x86-64 and aarch64"
#endif

/* Tells the core that this is a wait loop. */
HAK_INLINE void arch_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("yield" ::: "memory");
#endif
}

#endif
