/* SPDX-License-Identifier: MIT */
/* frame_pointers.c: the callers of code that has no unwind tables, such as the code that Java, node
 * or `python3 -X perf` generate.
 *
 *   frame pointer -> | frame pointer of the caller | return address |   towards the stack's end
 *
 * Code without unwind tables may use the register for anything. So no word is read unless it lies
 * between the stack pointer of the generated code and the end of the calling thread's own stack,
 * and all pages between these two can be read. That memory stays as long as the thread runs. On
 * other stacks (makecontext, an alternate signal stack) nothing is read. Wrong values in the
 * register can therefore not crash the program, but callers that were compiled without frame
 * pointers may be missing. No lock, no allocation. */
#include "observe/stacks.h"

#include "base/arch.h"
#include "os/os.h"

#include <pthread.h>

/* Bytes of the longest stack that is looked at, page by page, once in each thread. Twice: up to 8
 * ms for the first sample in a deep recursion. Half: fewer deep recursions have such frames. */
#define STACK_LOOK_SIZE_MAX ((uintptr_t)64 << 20)

/* The thread's own stack can be read from here to its end; 0: that is not known. */
static HAK_TLS uintptr_t stack_low;

/* An address at the end of the calling thread's stack, above all frames. The kernel puts the
 * program's path at the end of the first stack. The C libraries put the struct of a thread at the
 * end of its stack. */
static uintptr_t stack_end(void)
{
    if (hak__os_is_main_thread()) {
        return (uintptr_t)hak__os_program();
    }
    return (uintptr_t)pthread_self();
}

/* True: the address lies in the calling thread's own stack, which ends at `end`, and so do all that
 * follow up to there. */
static bool stack_has(uintptr_t address, uintptr_t end)
{
    uintptr_t size = hak__os_page_size(), low = address & ~(size - 1);
    if (stack_low != 0 && address >= stack_low) {
        return address < end;
    }
    uintptr_t high = stack_low != 0 ? stack_low : end;
    if (low >= high || high - low > STACK_LOOK_SIZE_MAX) {
        return false;
    }
    for (uintptr_t page = low; page < high; page += size) {
        if (!hak__os_is_readable(page)) {
            return false; /* another stack, as of a coroutine: each sample there looks anew */
        }
    }
    stack_low = low;
    return true;
}

/* False: no code can lie there. It is not looked for an executable mapping, which would take a file
 * of /proc; tools do that. */
static bool address_may_be_code(uintptr_t address, frame_table *has_table)
{
    return address > sizeof(uint64_t) &&
           (has_table(address - 1) ||
            hak__os_is_readable((address - 1) & ~(uintptr_t)(sizeof(uint64_t) - 1)));
}

HAK_STACK_READER uint32_t hak__frame_pointers_follow(uintptr_t *frames, uint32_t depth,
                                                     uint32_t depth_max, uintptr_t stack_pointer,
                                                     uintptr_t frame_pointer,
                                                     frame_table *has_table)
{
    uintptr_t end = stack_end();
    if (!stack_has(stack_pointer, end)) {
        return depth;
    }
    const uintptr_t record_size = 2 * sizeof(uintptr_t);
    uintptr_t last = end - record_size;
    while (depth < depth_max && frame_pointer >= stack_pointer && frame_pointer <= last &&
           frame_pointer % sizeof(uintptr_t) == 0) {
        const uintptr_t *record = (const uintptr_t *)frame_pointer;
        uintptr_t address = arch_strip_signature(record[1]);
        if (!address_may_be_code(address, has_table)) {
            break;
        }
        frames[depth++] = address;
        stack_pointer = frame_pointer + record_size; /* frames rise */
        frame_pointer = record[0];
    }
    return depth;
}
