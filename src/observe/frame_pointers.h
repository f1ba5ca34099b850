/* SPDX-License-Identifier: MIT */
/* frame_pointers.h: the callers of code that has no unwind tables, such as the code that Java,
 * node or `python3 -X perf` generate.
 *
 * A function with a frame pointer keeps two words at the address in that register:
 *
 *   frame pointer -> | frame pointer of the caller | return address |   towards the stack's end
 *
 * Code without unwind tables may use the register for anything. So no word is read unless it lies
 * between the stack pointer of the generated code and the end of the calling thread's own stack,
 * and all pages between these two can be read. That memory stays as long as the thread runs. On
 * other stacks (makecontext, an alternate signal stack) nothing is read. Wrong values in the
 * register can therefore not crash the program, but callers may be missing: those that were
 * compiled without frame pointers.
 *
 * State: what each thread knows of its stack. No lock, no allocation. */
#ifndef HAK_OBSERVE_FRAME_POINTERS_H
#define HAK_OBSERVE_FRAME_POINTERS_H

#include "base/compiler.h"

/* True: the code at the address has unwind tables. */
typedef bool frame_table(uintptr_t address);

/* Appends to the `depth` return addresses, innermost first, of which the last one is in code
 * without tables, the callers of that code, until there are `depth_max`. The two pointers are the
 * registers of that code. Returns the number of addresses. */
HAK_HIDDEN uint32_t hak__frame_pointers_follow(uintptr_t *frames, uint32_t depth,
                                               uint32_t depth_max, uintptr_t stack_pointer,
                                               uintptr_t frame_pointer, frame_table *has_table);

#endif
