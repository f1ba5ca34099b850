/* SPDX-License-Identifier: MIT */
/* observe.h: lets tools look into the living process: `./hakmem stat`, `top` and `metrics`
 * (docs/observability/README.md).
 *
 * A process that is observed has one thread more, the observer. It sleeps until a tool of the same
 * user asks for a report. The report goes through the file /dev/shm/hakmem.UID.PID of mode 0600
 * (in a container with a number more), which is removed when the process exits. HAKMEM_OBSERVE=1
 * starts the observer with the process and in forked children. An observer that was started
 * otherwise is not in forked children.
 *
 * All functions are thread-safe, but not async-signal-safe. They return 0 or an errno value, and do
 * not change errno. */
#ifndef HAKMEM_OBSERVE_H
#define HAKMEM_OBSERVE_H

#include "hakmem/hakmem.h"

#if defined(__cplusplus)
extern "C" {
#endif

/* Starts the observer and waits until tools can ask it. 0 also if it runs already. EAGAIN: no
 * further thread can be started. Otherwise why the file cannot be made, for example ENOENT (there
 * is no /dev/shm), EACCES or ENOSPC. */
HAK_API int hak_observe_start(void) HAK_NOEXCEPT;

/* Stops the observer, removes its file, and waits until both are done. 0 also if none runs. */
HAK_API int hak_observe_stop(void) HAK_NOEXCEPT;

/* The rest is for `./hakmem observe PID`, which starts the observer of a process from outside.
 * Programs have no use for it.
 *
 * Starts the observer without waiting for it, on the stack below. Then sends a signal to its own
 * thread by tgkill, with HAK_OBSERVE_MARK and an errno value as the fourth and fifth argument. The
 * tool takes the signal and puts the thread back to where it was. It never returns. If the tool has
 * been killed, the thread goes back by itself: the signal is SIGWINCH then, which programs ignore.
 * Without what it needs for this, the signal is SIGTRAP, which ends the process. */
HAK_API void hak_observe_enter(void) HAK_NOEXCEPT;
#define HAK_OBSERVE_MARK 0x68616b6d656d2121 /* "hakmem!!" */
#define HAK_OBSERVE_STACK_SIZE 32768
HAK_API extern char hak_observe_stack[HAK_OBSERVE_STACK_SIZE];

/* By a note of this name, which is mapped with the library or program, the tool finds both. The
 * first two are distances from this struct. */
#define HAK_OBSERVE_NOTE "hakmem!"
struct hak_observe_note {
    int64_t enter; /* to hak_observe_enter */
    int64_t stack; /* to hak_observe_stack */
    uint64_t stack_size;
};

/* What the thread needs to go back by itself; the tool writes it before the call, on x86-64. It is
 * in the stack: below is room for signal handlers, above for the call. */
#define HAK_OBSERVE_SAVED_AT 8192
#define HAK_OBSERVE_VECTOR_MAX 4096
struct hak_observe_saved {
    uint64_t mark;          /* HAK_OBSERVE_MARK: the rest is there */
    uint64_t signals;       /* blocked */
    uint64_t registers[27]; /* struct user_regs_struct, as the kernel leaves it for the program */
    uint64_t has_schedule;  /* not 0: the next field counts */
    unsigned char schedule[128];
    unsigned char unused[16];
    unsigned char vector[HAK_OBSERVE_VECTOR_MAX]; /* as XSAVE has it; at a multiple of 64 bytes */
};

#if defined(__cplusplus)
}
#endif

#endif
