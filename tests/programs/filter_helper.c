/* SPDX-License-Identifier: MIT */
/* filter_helper.c: CALL... aADVICE... -- PROGRAM ARGUMENT...: runs the program under a filter that
 * ends it at each system call that is neither one of these numbers nor one of the C library's
 * malloc, and at each advice of madvise but MADV_DONTNEED and these. For filtered.sh. */
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct sock_filter code[2048];
static unsigned short length;

static void add(unsigned short what, unsigned value, unsigned char yes, unsigned char no)
{
    code[length++] = (struct sock_filter){what, yes, no, value};
}

static void allow(unsigned value)
{
    add(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
    add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
}

int main(int count, char **arguments)
{
    static const int own[] = {SYS_brk,      SYS_mmap,  SYS_munmap, SYS_mremap,
                              SYS_mprotect, SYS_futex, SYS_execve};
    int program = 1;
    add(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        allow((unsigned)own[i]);
    }
    for (; program < count && strcmp(arguments[program], "--") != 0; program++) {
        if (arguments[program][0] != 'a' && atoi(arguments[program]) != SYS_madvise) {
            allow((unsigned)atoi(arguments[program]));
        }
    }
    add(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 1, 0);
    add(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS, 0, 0);
    add(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2]), 0, 0);
    allow(MADV_DONTNEED);
    for (int i = 1; i < program; i++) {
        if (arguments[i][0] == 'a') {
            allow((unsigned)strtoul(arguments[i] + 1, NULL, 0));
        }
    }
    add(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS, 0, 0);
    struct sock_fprog filter = {length, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) != 0) {
        return 77;
    }
    execvp(arguments[program + 1], arguments + program + 1);
    return 126;
}
