/* frame_pointers.c: see frame_pointers.h. */
#include "observe/frame_pointers.h"

#include "base/arch.h"
#include "os/os.h"

#include <pthread.h>

/* Bytes of the longest stack that is looked at, page by page, once in each thread. Twice: up to 8
 * ms for the first sample in a deep recursion. Half: fewer deep recursions have such frames. */
#define STACK_LOOK_SIZE_MAX ((uintptr_t)64 << 20)

struct stack_range {
    uintptr_t low; /* 0: none */
    uintptr_t high;
};
static HAK_TLS struct stack_range stack_own;   /* can be read up to the stack's end */
static HAK_TLS struct stack_range stack_other; /* the last range for which that was not so */

static bool range_has(const struct stack_range *range, uintptr_t address)
{
    return address >= range->low && address < range->high;
}

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

/* True: the address lies in the calling thread's own stack, and so do all that follow up to
 * stack_own.high. */
static bool stack_has(uintptr_t address)
{
    if (range_has(&stack_own, address) || range_has(&stack_other, address)) {
        return range_has(&stack_own, address);
    }
    bool known = stack_own.low != 0 && address < stack_own.low;
    uintptr_t high = known ? stack_own.low : stack_end();
    uintptr_t low = address & ~(uintptr_t)(hak__os_page_size() - 1);
    if (low >= high || high - low > STACK_LOOK_SIZE_MAX) {
        return false;
    }
    for (uintptr_t page = low; page < high; page += hak__os_page_size()) {
        if (!hak__os_is_readable(page)) {
            stack_other = (struct stack_range){low, page};
            return false;
        }
    }
    stack_own = (struct stack_range){low, known ? stack_own.high : high};
    return true;
}

/* False: no code can lie there. It is not looked for an executable mapping, which would take a
 * file of /proc; tools do that. */
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
    if (!stack_has(stack_pointer)) {
        return depth;
    }
    const uintptr_t record_size = 2 * sizeof(uintptr_t);
    uintptr_t last = stack_own.high - record_size;
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
