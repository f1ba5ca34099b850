/* SPDX-License-Identifier: MIT */
/* tags.h: memory tags of aarch64 (MTE, the memory tagging extension).
 *
 * Each 16 bytes of memory have a tag of 4 bits, and a pointer has one in bits 56 to 59. An access
 * through a pointer whose tag is not the memory's faults. The functions are for memory mapped with
 * PROT_MTE, in a process that has switched tags on (os/os.h), and only the secure form uses them.
 * Source: Arm Architecture Reference Manual, D6. */
#ifndef HAK_BASE_TAGS_H
#define HAK_BASE_TAGS_H

#include "base/compiler.h"

#if defined(__aarch64__)
#define HAK_TAGS HAK_SECURE
#else
#define HAK_TAGS 0
#endif

/* The pointer without the byte that may hold a tag. */
HAK_INLINE void *tag_strip(const void *pointer)
{
    return (void *)((uintptr_t)pointer & ((UINT64_C(1) << 56) - 1));
}

#if HAK_TAGS
/* The tag of the memory at the address, as a pointer to it. */
HAK_INLINE void *tag_of_memory(const void *address)
{
    void *tagged = tag_strip(address);
    __asm__(".arch armv8.5-a+memtag\n\tldg %0, [%0]" : "+r"(tagged) : : "memory");
    return tagged;
}

/* `excluded` with the tag of the pointer added. */
HAK_INLINE uint64_t tag_exclude(const void *pointer, uint64_t excluded)
{
    __asm__(".arch armv8.5-a+memtag\n\tgmi %0, %1, %0" : "+r"(excluded) : "r"(pointer));
    return excluded;
}

/* The address with a random tag that is not excluded. */
HAK_INLINE void *tag_random(const void *address, uint64_t excluded)
{
    void *tagged;
    __asm__ volatile(".arch armv8.5-a+memtag\n\tirg %0, %1, %2"
                     : "=r"(tagged)
                     : "r"(tag_strip(address)), "r"(excluded));
    return tagged;
}

/* Gives the memory from `tagged` on the pointer's tag. `bytes` is a multiple of
 * OBJECT_ALIGNMENT. */
HAK_INLINE void tag_memory(void *tagged, size_t bytes)
{
    char *at = (char *)tagged, *end = at + bytes;
    do {
        __asm__ volatile(".arch armv8.5-a+memtag\n\tstg %0, [%0], #16" : "+r"(at) : : "memory");
    } while (at != end);
}
#else
HAK_INLINE void *tag_of_memory(const void *address)
{
    return tag_strip(address);
}

HAK_INLINE uint64_t tag_exclude(const void *pointer, uint64_t excluded)
{
    (void)pointer;
    return excluded;
}

HAK_INLINE void *tag_random(const void *address, uint64_t excluded)
{
    (void)excluded;
    return tag_strip(address);
}

HAK_INLINE void tag_memory(void *tagged, size_t bytes)
{
    (void)tagged;
    (void)bytes;
}
#endif

#endif
