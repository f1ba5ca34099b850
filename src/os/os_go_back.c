/* SPDX-License-Identifier: MIT */
/* os_go_back.c: a thread that a tool has stopped goes back by itself, because the tool was killed
 * (hakmem/observe.h).
 *
 * Not by rt_sigreturn, which forgets the system call that the kernel was to restart. All system
 * calls come first. Then nothing is left to do but loads: vector registers, the others from a stack
 * pointer that walks over the saved ones, and the program counter from memory. A signal may come
 * between any two of them: its handler finds room below the saved registers, and comes back. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "os/os.h"

#include "hakmem/observe.h"

#include <signal.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
HAK_STATIC_ASSERT(offsetof(struct hak_observe_saved, vector) % 64 == 0, "XRSTOR wants it so");
HAK_STATIC_ASSERT(HAK_OBSERVE_SAVED_AT % 64 == 0, "XRSTOR wants it so");

/* One tool at a time works on a process. */
static uint64_t os_program_counter __attribute__((used));

void hak__os_go_back(struct hak_observe_saved *saved)
{
    enum { PROGRAM_COUNTER = 16 };
    if (saved->has_schedule != 0 && hak__os_may_ask()) {
        syscall(SYS_sched_setattr, 0, saved->schedule, 0);
    }
    os_program_counter = saved->registers[PROGRAM_COUNTER];
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &saved->signals, NULL, sizeof saved->signals);
    __asm__ volatile("movl $-1, %%eax\n\t"
                     "movl $-1, %%edx\n\t"
                     "xrstor64 (%[vector])\n\t"
                     "movq %[registers], %%rsp\n\t"
                     "popq %%r15\n\t"
                     "popq %%r14\n\t"
                     "popq %%r13\n\t"
                     "popq %%r12\n\t"
                     "popq %%rbp\n\t"
                     "popq %%rbx\n\t"
                     "popq %%r11\n\t"
                     "popq %%r10\n\t"
                     "popq %%r9\n\t"
                     "popq %%r8\n\t"
                     "popq %%rax\n\t"
                     "popq %%rcx\n\t"
                     "popq %%rdx\n\t"
                     "popq %%rsi\n\t"
                     "popq %%rdi\n\t"
                     "leaq 24(%%rsp), %%rsp\n\t" /* orig_rax, rip, cs */
                     "popfq\n\t"
                     "movq (%%rsp), %%rsp\n\t"
                     "jmpq *%[counter]"
                     :
                     : [vector] "r"(saved->vector), [registers] "r"(saved->registers),
                       [counter] "m"(os_program_counter)
                     : "rax", "rdx", "memory");
    __builtin_unreachable();
}
#else
void hak__os_go_back(struct hak_observe_saved *saved)
{
    (void)saved;
}
#endif
