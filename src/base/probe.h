/* SPDX-License-Identifier: MIT */
/* probe.h: static probes (USDT): named places where bpftrace, perf, SystemTap or gdb can look at a
 * running process. A probe is one `nop`, and a note in the file says where it is and which
 * registers hold its arguments. A tool that listens replaces the nop. docs/observability/probes.md
 * shows how to use them.
 *
 * Why without a semaphore, which would say if anybody listens: to test one costs as much as the few
 * arguments, which are at hand where a probe stands. Every probe is in a slow path.
 *
 * The notes have the format of SystemTap's sys/sdt.h, version 3:
 * https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation
 * Their section is not loaded, so a process pays no memory and no relocation for them. */
#ifndef HAK_BASE_PROBE_H
#define HAK_BASE_PROBE_H

#include "base/compiler.h"

/* Xn(provider, name, n arguments, text, action) makes the function probe_PROVIDER_NAME.
 * `text` says when the probe fires, and `action` is an example for bpftrace. An argument's name
 * ends in its unit: bytes, objects, or what the page says of arena, error and state. */
#define HAK_PROBES(X1, X2, X3, X5)                                                                 \
    X3(hakmem, refill, arena, object_bytes, objects, "an empty bin got objects from slabs",        \
       "@objects[arg1] = sum(arg2);")                                                              \
    X3(hakmem, flush, arena, object_bytes, objects, "a bin returned objects to their slabs",       \
       "@objects[arg1] = sum(arg2);")                                                              \
    X2(hakmem, remote_send, object_bytes, objects,                                                 \
       "a thread sends a batch of freed objects back to the arena that owns them",                 \
       "@objects[tid, arg0] = sum(arg1);")                                                         \
    X2(hakmem, purge, address, bytes, "pages went back to the OS and stay mapped",                 \
       "@bytes = sum(arg1); @pieces = hist(arg1);")                                                \
    X2(hakmem, map, address, bytes, "the OS mapped memory", "@bytes[ustack(6)] = sum(arg1);")      \
    X2(hakmem, map_failed, bytes, error, "hakmem's limit or the OS refused to map memory",         \
       "@refused[arg1] = count();")                                                                \
    X2(hakmem, unmap, address, bytes, "memory was unmapped", "@bytes = sum(arg1);")                \
    X5(hakmem, remap, old_address, old_bytes, address, bytes, flags,                               \
       "the OS let a mapping grow, shrink or move", "@moved[arg0 != arg2] = sum(arg1);")           \
    X2(hakmem, allocation_failed, bytes, alignment, "an allocation failed with ENOMEM",            \
       "@[ustack] = count();")                                                                     \
    X2(hakmem, limit_exceeded, bytes, limit_bytes, "more is mapped than the soft limit allows",    \
       "@over = hist(arg0 - arg1);")                                                               \
    X3(otel_memory, alloc, ptr, size, weighted_bytes,                                              \
       "a block was sampled at its allocation, and stands for so many bytes",                      \
       "@bytes[ustack] = sum(arg2);")                                                              \
    X1(otel_memory, free, ptr, "a sampled block is freed", "@frees = count();")                    \
    X1(hakmem, gate_refused, state,                                                                \
       "a slow operation was refused, during a fork or in a signal handler that interrupted one",  \
       "@[arg0, ustack] = count();")

/* All values are 8 bytes in registers, so one form of note serves all machines and compilers.
 * `inline` tells the compiler that this text of many lines is a single instruction. */
#define PROBE_NOTE(provider, name, places)                                                         \
    "990: nop\n"                                                                                   \
    ".pushsection .note.stapsdt,\"?\",\"note\"\n"                                                  \
    ".balign 4\n"                                                                                  \
    ".4byte 992f-991f, 994f-993f, 3\n"                                                             \
    "991: .asciz \"stapsdt\"\n"                                                                    \
    "992: .balign 4\n"                                                                             \
    "993: .8byte 990b, _.stapsdt.base, 0\n"                                                        \
    ".asciz \"" #provider "\"\n"                                                                   \
    ".asciz \"" #name "\"\n"                                                                       \
    ".asciz \"" places "\"\n"                                                                      \
    "994: .balign 4\n"                                                                             \
    ".popsection\n"                                                                                \
    ".ifndef _.stapsdt.base\n" /* tools compare its address with the note's, to find a shift */    \
    ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"                        \
    ".weak _.stapsdt.base\n"                                                                       \
    ".hidden _.stapsdt.base\n"                                                                     \
    "_.stapsdt.base: .space 1\n"                                                                   \
    ".size _.stapsdt.base, 1\n"                                                                    \
    ".popsection\n"                                                                                \
    ".endif\n"
#define PROBE_AT(provider, name, places, ...)                                                      \
    __asm__ __inline__ __volatile__(PROBE_NOTE(provider, name, places)::__VA_ARGS__)

#define PROBE_1(provider, name, a, text, action)                                                   \
    HAK_INLINE void probe_##provider##_##name(uint64_t a)                                          \
    {                                                                                              \
        PROBE_AT(provider, name, "8@%0", "r"(a));                                                  \
    }
#define PROBE_2(provider, name, a, b, text, action)                                                \
    HAK_INLINE void probe_##provider##_##name(uint64_t a, uint64_t b)                              \
    {                                                                                              \
        PROBE_AT(provider, name, "8@%0 8@%1", "r"(a), "r"(b));                                     \
    }
#define PROBE_3(provider, name, a, b, c, text, action)                                             \
    HAK_INLINE void probe_##provider##_##name(uint64_t a, uint64_t b, uint64_t c)                  \
    {                                                                                              \
        PROBE_AT(provider, name, "8@%0 8@%1 8@%2", "r"(a), "r"(b), "r"(c));                        \
    }
#define PROBE_5(provider, name, a, b, c, d, e, text, action)                                       \
    HAK_INLINE void probe_##provider##_##name(uint64_t a, uint64_t b, uint64_t c, uint64_t d,      \
                                              uint64_t e)                                          \
    {                                                                                              \
        PROBE_AT(provider, name, "8@%0 8@%1 8@%2 8@%3 8@%4", "r"(a), "r"(b), "r"(c), "r"(d),       \
                 "r"(e));                                                                          \
    }

HAK_PROBES(PROBE_1, PROBE_2, PROBE_3, PROBE_5)

#endif
