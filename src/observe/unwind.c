/* SPDX-License-Identifier: MIT */
/* unwind.c: see unwind.h. The walk from frame to frame. */
#include "observe/unwind.h"

#include "os/os.h"

/* Pages that one walk asks the kernel for. Twice: a wrong frame pointer that lies far up costs up
 * to 1 ms. Half: callers of generated code with frames of more than 1 MiB are missing. */
#define WALK_LOOKS_MAX 512u

/* --- memory --- */

bool hak__unwind_can_read(struct unwind_walk *walk, uintptr_t address, size_t size)
{
    uintptr_t page = address & ~(ARCH_PAGE_SIZE_MIN - 1);
    if (address + size < address) {
        return false;
    }
    if (page < walk->readable_low || page > walk->readable_high) { /* no neighbour of the others */
        walk->readable_low = page;
        walk->readable_high = page;
    }
    while (walk->readable_high < address + size) {
        if (walk->looks++ >= WALK_LOOKS_MAX || !hak__os_is_readable(walk->readable_high)) {
            return false;
        }
        walk->readable_high += ARCH_PAGE_SIZE_MIN;
    }
    return true;
}

/* Words of frames may belong to no variable. */
static HAK_STACK_READER uintptr_t walk_load(uintptr_t address, size_t size)
{
    uintptr_t value = 0;
    const unsigned char *bytes = (const unsigned char *)address;
    if (HAK_LIKELY(size == sizeof value && address % sizeof value == 0)) {
        return *(const uintptr_t *)address;
    }
    for (size_t i = 0; i < size; i++) {
        value |= (uintptr_t)bytes[i] << (8 * i);
    }
    return value;
}

bool hak__unwind_read(struct unwind_walk *walk, uintptr_t address, size_t size, uintptr_t *value)
{
    if (size == 0 || size > sizeof *value || !hak__unwind_can_read(walk, address, size)) {
        return false;
    }
    *value = walk_load(address, size);
    return true;
}

/* --- steps --- */

enum step { STEP_FAILED, STEP_DONE, STEP_END };

static uintptr_t walk_next_instruction(const struct unwind_walk *walk)
{
    return walk->registers[ARCH_NEXT_INSTRUCTION];
}

static bool walk_has_module(struct unwind_walk *walk, uintptr_t address)
{
    const struct unwind_module *module = &walk->module;
    return address - module->start < module->end - module->start ||
           hak__unwind_module_of(address, &walk->module);
}

/* Generated code: the page of the last such address is remembered. */
static bool walk_can_read_code(struct unwind_walk *walk, uintptr_t address)
{
    uintptr_t page = address & ~(ARCH_PAGE_SIZE_MIN - 1);
    if (page != walk->code_page && !hak__os_is_readable(page)) {
        return false;
    }
    walk->code_page = page;
    return true;
}

/* False: no code can lie there. It is not looked for an executable mapping, which would take a file
 * of /proc; tools do that. */
static bool walk_may_be_code(struct unwind_walk *walk, uintptr_t address)
{
    return address > ARCH_PAGE_SIZE_MIN &&
           (walk_has_module(walk, address - 1) || walk_can_read_code(walk, address - 1));
}

/* With wrong tables the frame pointer is not to be trusted, either. But behind a frame that was
 * found by it, other registers are unknown, and it may find one more. */
static enum step walk_tables_fail(const struct unwind_walk *walk)
{
    return walk->by_pointers && walk_next_instruction(walk) != 0 ? STEP_FAILED : STEP_END;
}

static enum step walk_by_tables(struct unwind_walk *walk)
{
    struct unwind_recipe recipe;
    struct unwind_entry entry;
    uintptr_t address = walk_next_instruction(walk) - !walk->interrupted;
    if (!walk_has_module(walk, address)) {
        return STEP_FAILED;
    }
    entry.is_signal = false;
    if (HAK_LIKELY(hak__unwind_recall(&walk->module, address, &recipe))) {
        if (!hak__unwind_follow(walk, &recipe)) {
            return walk_tables_fail(walk);
        }
    } else if (!hak__unwind_find(&walk->module, address, &entry)) {
        return STEP_FAILED;
    } else if (!hak__unwind_apply(walk, &entry, address)) {
        return walk_tables_fail(walk);
    }
    walk->interrupted = entry.is_signal;
    walk->by_pointers = false;
    return STEP_DONE;
}

/* Sanitizers do not know that all of it can be read. */
static HAK_STACK_READER bool walk_has_bytes(uintptr_t address, const char *bytes, size_t size)
{
    const volatile char *there = (const volatile char *)address;
    size_t i = 0;
    while (i < size && there[i] == bytes[i]) {
        i++;
    }
    return i == size;
}

/* The end of a signal handler: the kernel has put the registers on the stack. */
static enum step walk_by_signal(struct unwind_walk *walk)
{
    static const uint8_t order[] = ARCH_SIGNAL_ORDER; /* of words */
    static const char code[] = ARCH_SIGNAL_RETURN;
    uintptr_t at = walk_next_instruction(walk), first;
    uintptr_t saved = walk->registers[ARCH_STACK_POINTER] + ARCH_SIGNAL_OFFSET;
    if ((walk->known >> ARCH_STACK_POINTER & 1) == 0 || !walk_can_read_code(walk, at) ||
        !walk_can_read_code(walk, at + sizeof code - 2) ||
        !walk_has_bytes(at, code, sizeof code - 1) ||
        !hak__unwind_read(walk, saved, sizeof first, &first) ||
        !hak__unwind_can_read(walk, saved, sizeof(uintptr_t[sizeof order]))) {
        return STEP_FAILED;
    }
    for (uint32_t i = 0; i < sizeof order; i++) {
        walk->registers[order[i]] = walk_load(saved + i * sizeof(uintptr_t), sizeof(uintptr_t));
        walk->known |= UINT64_C(1) << order[i];
    }
    walk->interrupted = true;
    walk->by_pointers = false;
    return STEP_DONE;
}

/*   frame pointer -> | frame pointer of the caller | return address |   towards the stack's end
 *
 * Code without tables may use the register for anything. So the record must lie above the frames so
 * far, with nothing between them that cannot be read, as on one stack. A wrong value can then at
 * most give wrong callers, or none. */
static enum step walk_by_pointer(struct unwind_walk *walk)
{
    const uintptr_t size = 2 * sizeof(uintptr_t);
    uintptr_t record = walk->registers[ARCH_FRAME_POINTER];
    if ((walk->known >> ARCH_FRAME_POINTER & 1) == 0 || record < walk->low ||
        record - walk->low > WALK_LOOKS_MAX * ARCH_PAGE_SIZE_MIN ||
        record % sizeof(uintptr_t) != 0 ||
        !hak__unwind_can_read(walk, walk->low, record + size - walk->low)) {
        return STEP_FAILED;
    }
    uintptr_t address = arch_strip_signature(walk_load(record + sizeof(uintptr_t), size / 2));
    if (!walk_may_be_code(walk, address)) {
        return STEP_FAILED;
    }
    walk->registers[ARCH_FRAME_POINTER] = walk_load(record, size / 2);
    walk->registers[ARCH_STACK_POINTER] = record + size;
    walk->registers[ARCH_NEXT_INSTRUCTION] = address;
    walk->known = UINT64_C(1) << ARCH_FRAME_POINTER | UINT64_C(1) << ARCH_NEXT_INSTRUCTION |
                  (uint64_t)ARCH_RECORD_ENDS_FRAME << ARCH_STACK_POINTER;
    walk->interrupted = false;
    walk->by_pointers = true;
    return STEP_DONE;
}

/* Goes to the caller. False: there is none, or it is not found. */
static bool walk_step(struct unwind_walk *walk)
{
    uintptr_t from = walk_next_instruction(walk);
    enum step step = walk_by_tables(walk);
    if (HAK_UNLIKELY(step == STEP_FAILED)) {
        step = walk_by_signal(walk);
    }
    if (HAK_UNLIKELY(step == STEP_FAILED)) {
        step = walk_by_pointer(walk);
    }
    uintptr_t stack_pointer = walk->registers[ARCH_STACK_POINTER];
    if (step != STEP_DONE || walk_next_instruction(walk) == 0) {
        return false;
    }
    /* Frames of a walk that may lie below the one before: other stacks, as of a signal handler, may
     * lie anywhere. Half: a handler on hakmem's stack in a coroutine is as deep as this. */
    if (HAK_UNLIKELY(stack_pointer <= walk->low) &&
        (walk->falls++ == 8 || walk_next_instruction(walk) == from)) {
        return false;
    }
    walk->low = stack_pointer;
    return walk_may_be_code(walk, walk_next_instruction(walk));
}

/* --- the walk --- */

HAK_NOINLINE uint32_t hak__unwind(uintptr_t *addresses, uint32_t depth_max, bool *more)
{
    struct unwind_walk walk;
    uint32_t depth = 0;
    walk.known = ARCH_KEPT_REGISTERS;
    memset(walk.registers, 0, sizeof walk.registers);
    arch_store_registers(walk.registers);
    walk.low = walk.registers[ARCH_STACK_POINTER];
    walk.readable_low = walk.low & ~(ARCH_PAGE_SIZE_MIN - 1); /* this function's own page */
    walk.readable_high = walk.readable_low + ARCH_PAGE_SIZE_MIN;
    walk.code_page = 0;
    walk.looks = 0;
    walk.falls = 0;
    walk.interrupted = true;
    walk.by_pointers = false;
    walk.module.start = 0;
    walk.module.end = 0;
    while (walk_step(&walk)) {
        if (depth == depth_max) {
            *more = true;
            return depth;
        }
        if (HAK_UNLIKELY(walk.interrupted) && depth != 0) {
            addresses[depth - 1]++;
        }
        addresses[depth++] = walk_next_instruction(&walk) + walk.interrupted;
    }
    *more = false;
    return depth;
}
