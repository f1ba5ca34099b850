/* SPDX-License-Identifier: MIT */
/* attach.h: starts hakmem's observer in a process that was started without one.
 *
 *   target.c    what /proc says of the process: mappings, threads, why it is refused
 *   symbols.c   where in the process hakmem's functions are
 *   seccomp.c   whether its system call filter lets it start a thread
 *   tracee.c    one thread of it under ptrace: stopped, called, put back
 *   clock.c     time, and the signals that end this program
 *   urgent.c    lets it run soon on a busy machine
 *   moment.c    whether a stopped thread is at a good moment
 *   attach.c    chooses the thread
 *
 * A program of its own, not a part of the library: 64-bit Linux on x86-64 and aarch64. It serves
 * one process, then exits; so it frees nothing and ends at the first error with one sentence. */
#ifndef ATTACH_H
#define ATTACH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { STATUS_USAGE = 2, STATUS_FAILED = 125, STATUS_CANNOT = 126, STATUS_NO_PROCESS = 127 };

/* Writes "hakmem: ..." and ends this process. */
__attribute__((noreturn, format(printf, 2, 3))) void refuse(int status, const char *format, ...);

/* --- target.c --- */

enum object { OBJECT_OTHER, OBJECT_LIBC, OBJECT_LOADER, OBJECT_KERNEL, OBJECT_NONE };

struct mapping {
    uintptr_t start, end;
    uint64_t offset; /* in the file */
    uint64_t inode;  /* 0: no file */
    bool executable;
    enum object object;
    bool is_hakmem; /* in the file that holds hakmem; set by attach.c */
    char *path;
};

struct target {
    pid_t pid;
    pid_t
        living; /* a thread that has the process's memory: the main one, or after its end another */
    struct mapping *mappings; /* in the order of addresses */
    size_t mappings_count;
};

/* A thread of the process that lives, the main one if it does; 0: there is none. */
pid_t target_living(pid_t pid);
/* True: its user is ours. */
bool target_is_own(pid_t pid);
/* Ends with a sentence if the process cannot be attached to. */
void target_check(pid_t pid);
/* Reads the mappings anew. False: the process has ended. */
bool target_read(struct target *target);
const struct mapping *target_mapping(const struct target *target, uintptr_t address);
/* Bytes read, at most `size`; 0: none. */
size_t target_memory(pid_t pid, uintptr_t address, void *bytes, size_t size);
/* Ends with the sentence for a ptrace call or a file of /proc that was refused. */
__attribute__((noreturn)) void target_refused(pid_t pid, int error);
/* Ends with the sentence for a process that is gone. */
__attribute__((noreturn)) void target_ended(pid_t pid);
/* Ends with the sentence for a process whose memory is not what it was. */
__attribute__((noreturn)) void target_changed(pid_t pid);

/* What a thread does. The smaller, the better to stop it. */
enum doing { DOING_WAIT, DOING_FUTEX, DOING_RUN, DOING_NOTHING_GOOD };
struct task {
    pid_t tid;
    enum doing doing;
};
/* The threads that may be stopped, best first; at most `most`. Returns their number. */
size_t target_tasks(const struct target *target, struct task *tasks, size_t most);
/* True: the thread ends or is gone. Linux refuses to trace one that ends with EPERM. */
bool target_task_ends(pid_t pid, pid_t tid);
/* What a thread does that is in this system call of `code` (NULL: not known), whose second argument
 * is `second`. */
enum doing target_call(const struct mapping *code, long number, uint64_t second);

/* What a thread's system call filters (seccomp) do if it starts the observer. */
enum filtered {
    FILTERED_HARMLESS,
    FILTERED_ENDS,   /* the process ends, or gets a signal */
    FILTERED_UNKNOWN /* look into them: seccomp_check */
};
enum filtered target_filtered(pid_t pid, pid_t tid);

/* --- seccomp.c --- */

/* Reads the filters of the stopped thread and runs them. FILTERED_UNKNOWN: we may not. */
enum filtered seccomp_check(pid_t tid);

/* --- symbols.c --- */

struct symbols {
    uintptr_t enter; /* hak_observe_enter; 0: the process has no hakmem */
    uintptr_t stack; /* hak_observe_stack */
    size_t stack_size;
    uint64_t object; /* inode of the file that holds them */
    bool is_program; /* which is the program's */
};
/* Ends with a sentence if there are none. */
struct symbols symbols_find(struct target *target);

/* --- tracee.c --- */

struct urgency;

enum stop { STOP_DONE, STOP_ENDED, STOP_STOPPED, STOP_LATE };
struct state; /* of a stopped thread */

/* Begins to trace the thread. Returns 0 or an errno value. */
int tracee_seize(pid_t tid);
/* Stops it. STOP_DONE: it is stopped. STOP_STOPPED: as all of its process, by a signal. */
enum stop tracee_stop(pid_t tid);
/* Reads the registers of the stopped thread. False: it is gone. */
bool tracee_read(pid_t tid, struct state *state);
/* The program counter, the stack pointer, the system call it is in or -1. */
uintptr_t state_pc(const struct state *state);
uintptr_t state_sp(const struct state *state);
long state_call(pid_t tid, const struct state *state);
/* The second argument of that system call. */
uint64_t state_second(const struct state *state);
/* The return address of a function without a frame; `first` is the first word of the stack. */
uintptr_t state_caller(const struct state *state, uintptr_t first);
struct state *state_make(void);
/* True: in a restartable sequence, which must not be left. */
bool tracee_is_in_sequence(pid_t tid);
/* Calls hak_observe_enter in the stopped thread and puts it back; it is stopped then as before.
 * Fills the rest of `before`.
 * Returns 0, an errno value from the process, ETIMEDOUT: the call did not come back, or -1: the
 * thread is gone. */
int tracee_call(pid_t tid, const struct symbols *symbols, const struct urgency *urgency,
                struct state *before);
/* Lets it run on, untraced. */
void tracee_release(pid_t tid);

/* --- urgent.c --- */

struct urgency {
    bool known; /* false: there is nothing to put back */
    pid_t tid;
    _Alignas(8) unsigned char bytes[128];
};
/* Lets the thread run as soon as it can (0: the calling one). Fills `before` for urgent_end. */
void urgent_begin(pid_t tid, struct urgency *before);
void urgent_end(const struct urgency *before);

/* --- moment.c --- */

/* Searches all code for the places to which signal handlers return. */
void moment_prepare(const struct target *target);
/* NULL: the stopped thread may start the observer. Otherwise why not. */
const char *moment_why_not(const struct target *target, const struct symbols *symbols, pid_t tid,
                           const struct state *state);

/* --- machine.c --- */

/* The function that the call before this return address calls. NONE: there is no call, or it stays
 * in its own file. */
enum callee { CALLEE_NONE, CALLEE_KNOWN, CALLEE_UNKNOWN };
enum callee tracee_callee(pid_t pid, uintptr_t address, uintptr_t *callee);
/* Whether the words from the return address words[0] on are a signal handler's frame, and where the
 * handler has interrupted the thread. UNKNOWN: that cannot be told. */
enum frame { FRAME_NONE, FRAME_KNOWN, FRAME_UNKNOWN };
struct place {
    uintptr_t pc, sp;
    long call;       /* the system call that it is in; -1: none */
    uint64_t second; /* its second argument */
};
enum frame tracee_frame(pid_t pid, const uintptr_t *words, size_t count, struct place *place);

/* The end of a signal handler, to which it returns, as bytes of a program. */
struct pattern {
    const char *bytes;
    size_t size;
};
extern const struct pattern tracee_patterns[];
extern const size_t tracee_patterns_count;

/* --- clock.c --- */

uint64_t clock_us(void);
void sleep_us(long duration_us);
/* Rings all the time, from before the first wait for a thread until after the last. */
void alarm_begin(void);
void alarm_end(void);
/* True: this process, which blocks all signals, has got one that ends it. */
bool is_told_to_end(void);

#endif
