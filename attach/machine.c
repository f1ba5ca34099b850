/* SPDX-License-Identifier: MIT */
/* machine.c: what calls and signal handlers' frames look like on this machine, see attach.h. */
#include "attach.h"

#include <limits.h>
#include <string.h>

#if defined(__x86_64__)
/* mov $15, %rax or %eax; syscall: the call of rt_sigreturn. */
const struct pattern tracee_patterns[] = {{"\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05", 9},
                                          {"\xb8\x0f\x00\x00\x00\x0f\x05", 7}};

/* The word in the table that an instruction of six bytes names: two bytes, then the distance from
 * its end. False: it could not be read. */
static bool read_table(pid_t pid, uintptr_t end, const unsigned char *code, uintptr_t *word)
{
    int32_t distance;
    memcpy(&distance, code + 2, sizeof distance);
    return target_memory(pid, end + (uintptr_t)(intptr_t)distance, word, sizeof *word) ==
           sizeof *word;
}

/* A function of another file is called by a jump through the table (PLT): [endbr64] jmp *table. */
static enum callee follow_jump(pid_t pid, uintptr_t function, uintptr_t *callee)
{
    static const unsigned char landing[] = {0xf3, 0x0f, 0x1e, 0xfa};
    unsigned char code[12];
    if (target_memory(pid, function, code, sizeof code) != sizeof code) {
        return CALLEE_UNKNOWN;
    }
    size_t at = memcmp(code, landing, sizeof landing) == 0 ? sizeof landing : 0;
    if (code[at] == 0xf2) { /* bnd */
        at++;
    }
    if (code[at] != 0xff || code[at + 1] != 0x25) {
        return CALLEE_NONE;
    }
    bool known = read_table(pid, function + at + 6, code + at, callee);
    return known ? CALLEE_KNOWN : CALLEE_UNKNOWN;
}

enum callee tracee_callee(pid_t pid, uintptr_t address, uintptr_t *callee)
{
    unsigned char code[8]; /* the last bytes before the address */
    if (target_memory(pid, address - sizeof code, code, sizeof code) != sizeof code) {
        return CALLEE_UNKNOWN;
    }
    if (code[2] == 0xff && code[3] == 0x15) { /* call *table */
        return read_table(pid, address, code + 2, callee) ? CALLEE_KNOWN : CALLEE_UNKNOWN;
    }
    for (size_t i = 1; i < sizeof code - 1; i++) { /* call *register, call *memory: 2 to 7 bytes */
        if (code[i] == 0xff && (code[i + 1] & 0x38) == 0x10) {
            return CALLEE_UNKNOWN;
        }
    }
    if (code[3] == 0xe8) { /* call function */
        int32_t distance;
        memcpy(&distance, code + 4, sizeof distance);
        return follow_jump(pid, address + (uintptr_t)(intptr_t)distance, callee);
    }
    return CALLEE_NONE;
}

/* The system call at which the place is, as the kernel leaves it for a handler: behind the call, or
 * before one that is made again. The C library loads its number just before. -1: none. */
static long call_at(pid_t pid, uintptr_t pc, uintptr_t rax)
{
    unsigned char code[9]; /* mov $number, %eax; syscall; syscall */
    int32_t number;
    if (target_memory(pid, pc - 7, code, sizeof code) != sizeof code) {
        return -1;
    }
    if (code[7] == 0x0f && code[8] == 0x05) {
        return (long)rax;
    }
    if (code[5] != 0x0f || code[6] != 0x05) {
        return -1;
    }
    memcpy(&number, code + 1, sizeof number);
    return code[0] == 0xb8 ? number : LONG_MAX;
}

/* The kernel's struct rt_sigframe: the return address, then struct ucontext. A return address alone
 * is no frame: sigaction has it on the stack, too. */
enum frame tracee_frame(pid_t pid, const uintptr_t *words, size_t count, struct place *place)
{
    enum { LINK = 2, RSI = 15, RAX = 19, RSP = 21, RIP, FLAGS, SEGMENTS, FRAME_WORDS = 30 };
    if (count < FRAME_WORDS) {
        return FRAME_UNKNOWN; /* it goes on where it could not be read */
    }
    if (words[LINK] != 0 || (words[FLAGS] & 2) == 0 || (words[SEGMENTS] & 0xffff) != 0x33) {
        return FRAME_NONE;
    }
    *place =
        (struct place){words[RIP], words[RSP], call_at(pid, words[RIP], words[RAX]), words[RSI]};
    return FRAME_KNOWN;
}
#else
/* mov x8, #139; svc #0: the call of rt_sigreturn. */
const struct pattern tracee_patterns[] = {{"\x68\x11\x80\xd2\x01\x00\x00\xd4", 8}};

enum callee tracee_callee(pid_t pid, uintptr_t address, uintptr_t *callee)
{
    uint32_t call, first;
    (void)callee;
    if (target_memory(pid, address - sizeof call, &call, sizeof call) != sizeof call) {
        return CALLEE_UNKNOWN;
    }
    if (call >> 26 != 0x25) {                                                    /* bl function */
        return (call & 0xfffffc1f) == 0xd63f0000 ? CALLEE_UNKNOWN : CALLEE_NONE; /* blr register */
    }
    intptr_t distance = (intptr_t)(int32_t)(call << 6) >> 4;
    if (target_memory(pid, address - sizeof call + (uintptr_t)distance, &first, sizeof first) !=
        sizeof first) {
        return CALLEE_UNKNOWN;
    }
    /* A function of another file is called by a jump through the table: [bti c] adrp x16, table. */
    bool jumps = (first & 0x9f00001f) == 0x90000010 || first == 0xd503245f;
    return jumps ? CALLEE_UNKNOWN : CALLEE_NONE;
}

/* A handler keeps its return address in a frame of its own, apart from the kernel's. */
enum frame tracee_frame(pid_t pid, const uintptr_t *words, size_t count, struct place *place)
{
    (void)pid, (void)words, (void)count, (void)place;
    return FRAME_UNKNOWN;
}
#endif
const size_t tracee_patterns_count = sizeof tracee_patterns / sizeof tracee_patterns[0];
