/* SPDX-License-Identifier: MIT */
/* tracee.c: one thread under ptrace, see attach.h.
 *
 * The call. The thread is stopped on its way back to the program, where the kernel looks for
 * signals. Its registers, vector registers and signal mask are saved. Then it runs
 * hak_observe_enter on a stack that hakmem has for this, so that nothing of the thread's own stack
 * is touched. That function ends by sending a marked signal to its own thread. The kernel stops
 * the thread for us again on its way back to the program, and the signal is dropped. The thread
 * gets back what was saved. If it was in a system call, the kernel sees the registers of an
 * interrupted call, as after any stop, and restarts it.
 *
 * Signals. All that may wait do: they stay pending for the thread or the process with all that
 * belongs to them, and are delivered when the mask is back. Those by which the C library makes all
 * threads change their user must not wait: the caller of setuid waits for this thread while it
 * holds a lock that pthread_create needs.
 *
 * The stop. Between INTERRUPT and DETACH there are two waits, one for the stop and one for the
 * call, twelve requests, and one read of the stack. All else is done before or after.
 *
 * A call that does not come back, as of a program that lies about its functions, has an end: the
 * thread is stopped where it is and gets back what was saved. A signal to this process ends the
 * call in the same way, but lets it come back first if it does so in a second.
 *
 * If this process is killed during the call, the kernel lets the thread run on. It then comes to
 * the end of hak_observe_enter. On x86-64 it finds there, on the stack, what it needs to go back by
 * itself; else the SIGTRAP ends the process. So the registers are the first that the call needs and
 * the last that is put back. */
#include "attach.h"

#include "hakmem/observe.h"

#include <elf.h>
#include <errno.h>
#include <linux/ptrace.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef PTRACE_GET_RSEQ_CONFIGURATION /* of Linux 5.13 */
#define PTRACE_GET_RSEQ_CONFIGURATION 0x420f
#endif
#ifndef NT_ARM_SVE
#define NT_ARM_SVE 0x405
#endif

/* How long to wait for a thread to stop: one in an uninterruptible wait does so much later. */
#define STOP_WAIT_US 50000u
/* How long to wait for the call: a busy machine needs a few milliseconds. Halved: a process on a
 * machine that swaps is put back in the middle of the call, and may hold a lock for good. */
#define CALL_WAIT_US 30000000u
/* From when on a thread that still makes the call is as urgent as it was before. */
#define CALL_URGENT_US 200000u
/* How long a wait goes on after a signal to this process, and for the thread that is put back. */
#define END_WAIT_US 1000000u
/* Bytes of vector registers, with room for all extensions there are. */
#define VECTOR_SIZE 65536u
#define KERNEL_SIGSET_SIZE 8u
#ifndef ERESTARTNOHAND /* the kernel's own */
#define ERESTARTSYS 512
#define ERESTARTNOHAND 514
#define ERESTART_RESTARTBLOCK 516
#endif
/* The parts of vector registers that are in use, in the area's header; tiles (AMX) are behind the
 * room that there is for others. */
#define VECTOR_HEADER 512u
#define VECTOR_TILES (UINT64_C(3) << 17)

/* --- the machine --- */

#if defined(__x86_64__)
typedef struct user_regs_struct registers;
static const int vector_kinds[] = {NT_X86_XSTATE, NT_PRFPREG};
#define PC rip
#define SP rsp
#define SECOND rsi
#define CALLER(now, first) (first)

static long registers_call(pid_t tid, const registers *now)
{
    (void)tid;
    return (long)now->orig_rax;
}

static bool registers_mark(const registers *now, long *error)
{
    *error = (long)now->r8;
    return now->orig_rax == SYS_tgkill && now->r10 == HAK_OBSERVE_MARK;
}

/* As after a call instruction whose return address is 0. */
static void registers_call_function(registers *now, uintptr_t function, uintptr_t stack_top)
{
    now->rip = function;
    now->rsp = (stack_top & ~(uintptr_t)15) - 8; /* the stack is zero, and nobody returns */
    now->rax = 0;
    now->rbp = 0;
    now->orig_rax = (unsigned long long)-1;    /* no system call to restart */
    now->eflags &= ~(unsigned long long)0x500; /* direction up, no single steps */
}

/* The kernel ends some calls with EINTR at any stop, as if there were a signal. Programs that know
 * of no handler may not expect that. With ERESTARTNOHAND the call is made again; its timeout starts
 * anew. If there is a signal with a handler after all, the kernel makes EINTR of it. */
static void registers_restart(pid_t tid, registers *now)
{
    (void)tid; /* orig_rax and rax tell the kernel what to restart */
    bool ends = now->orig_rax == SYS_epoll_wait || now->orig_rax == SYS_epoll_pwait ||
                now->orig_rax == SYS_rt_sigtimedwait;
    if (ends && now->rax == (unsigned long long)-EINTR) {
        now->rax = (unsigned long long)-ERESTARTNOHAND;
    }
}

/* The same for a thread that goes back by itself, without the kernel: the call is made again. */
static void registers_restart_alone(registers *now)
{
    long error = (long)now->orig_rax >= 0 ? -(long)now->rax : 0;
    if (error >= ERESTARTSYS && error <= ERESTARTNOHAND) {
        now->rax = now->orig_rax;
        now->rip -= 2; /* the instruction `syscall` */
    } else if (error == ERESTART_RESTARTBLOCK) {
        now->rax = SYS_restart_syscall;
        now->rip -= 2;
    }
}
#else
typedef struct user_regs_struct registers;
static const int vector_kinds[] = {NT_ARM_SVE, NT_PRFPREG};
#define PC pc
#define SP sp
#define SECOND regs[1]
#define CALLER(now, first) ((void)(first), (uintptr_t)(now)->regs[30])
#define CALL_INSTRUCTION 0xd4000001u /* svc #0 */

/* On its way back from an interrupted call the kernel has already put the program counter back to
 * the instruction of the call, and forgotten its number, which is still in register 8. */
static long registers_call(pid_t tid, const registers *now)
{
    uint32_t code[2] = {0, 0}; /* the instruction before, and this one */
    if (target_memory(tid, now->pc - 4, code, sizeof code) != sizeof code) {
        return -1;
    }
    return code[0] == CALL_INSTRUCTION || code[1] == CALL_INSTRUCTION ? (long)now->regs[8] : -1;
}

static bool registers_mark(const registers *now, long *error)
{
    *error = (long)now->regs[4];
    return now->regs[8] == SYS_tgkill && now->regs[3] == HAK_OBSERVE_MARK;
}

static void registers_call_function(registers *now, uintptr_t function, uintptr_t stack_top)
{
    now->pc = function;
    now->sp = stack_top & ~(uintptr_t)15;
    now->regs[29] = now->regs[30] = 0;
}

/* A sleep of a duration goes on with what is left of it. */
static void registers_restart(pid_t tid, registers *now)
{
    uint32_t code = 0;
    long call = (long)now->regs[8];
    bool restarts =
        target_memory(tid, now->pc, &code, sizeof code) == sizeof code && code == CALL_INSTRUCTION;
    if (restarts && (call == SYS_nanosleep || (call == SYS_clock_nanosleep && now->regs[1] == 0))) {
        now->regs[8] = SYS_restart_syscall;
    }
}
#endif

struct state {
    registers now;
    int vector_kind; /* 0: none could be read */
    size_t vector_size;
    uint64_t signals; /* blocked */
    unsigned char vector[VECTOR_SIZE];
};

struct state *state_make(void)
{
    struct state *state = calloc(1, sizeof *state);
    if (state == NULL) {
        refuse(STATUS_FAILED, "there is no memory");
    }
    return state;
}

uintptr_t state_pc(const struct state *state)
{
    return (uintptr_t)state->now.PC;
}

uintptr_t state_sp(const struct state *state)
{
    return (uintptr_t)state->now.SP;
}

uint64_t state_second(const struct state *state)
{
    return state->now.SECOND;
}

uintptr_t state_caller(const struct state *state, uintptr_t first)
{
    (void)state;
    return CALLER(&state->now, first);
}

long state_call(pid_t tid, const struct state *state)
{
    return registers_call(tid, &state->now);
}

/* --- ptrace --- */

static long request(int number, pid_t tid, uintptr_t address, uintptr_t data)
{
    return syscall(SYS_ptrace, (long)number, (long)tid, address, data);
}

static bool get_set(pid_t tid, int kind, void *bytes, size_t *size)
{
    struct iovec area = {bytes, *size};
    if (request(PTRACE_GETREGSET, tid, (uintptr_t)kind, (uintptr_t)&area) != 0) {
        return false;
    }
    *size = area.iov_len;
    return true;
}

static bool put_set(pid_t tid, int kind, const void *bytes, size_t size)
{
    struct iovec area = {(void *)(uintptr_t)bytes, size};
    return request(PTRACE_SETREGSET, tid, (uintptr_t)kind, (uintptr_t)&area) == 0;
}

static bool get_registers(pid_t tid, registers *now)
{
    size_t size = sizeof *now;
    return get_set(tid, NT_PRSTATUS, now, &size) && size == sizeof *now;
}

static bool put_registers(pid_t tid, const registers *now)
{
    return put_set(tid, NT_PRSTATUS, now, sizeof *now);
}

int tracee_seize(pid_t tid)
{
    return request(PTRACE_SEIZE, tid, 0, 0) == 0 ? 0 : errno;
}

/* True from then on, and from a second after a signal on. */
static bool is_late(uint64_t until_us)
{
    static uint64_t end_us;
    uint64_t now_us = clock_us();
    if (end_us == 0 && is_told_to_end()) {
        end_us = now_us + END_WAIT_US;
    }
    return now_us >= until_us || (end_us != 0 && now_us >= end_us);
}

/* Waits for the thread to stop, until then. It sleeps, so that the thread may have this processor
 * at once. False: it did not stop, or is gone; then *status is -1. */
static bool wait_stop(pid_t tid, uint64_t until_us, int *status)
{
    pid_t got;
    do {
        got = waitpid(tid, status, __WALL);
    } while (got < 0 && errno == EINTR && !is_late(until_us));
    bool interrupted = got < 0 && errno == EINTR;
    if (got == tid && WIFSTOPPED(*status)) {
        return true;
    }
    *status = interrupted ? 0 : -1;
    return false;
}

static bool is_event_stop(int status)
{
    return status >> 16 == PTRACE_EVENT_STOP;
}

enum stop tracee_stop(pid_t tid)
{
    int status;
    if (request(PTRACE_INTERRUPT, tid, 0, 0) != 0) {
        return STOP_ENDED;
    }
    uint64_t until_us = clock_us() + STOP_WAIT_US;
    for (;;) {
        if (!wait_stop(tid, until_us, &status)) {
            return status == 0 ? STOP_LATE : STOP_ENDED;
        }
        if (is_event_stop(status)) {
            return WSTOPSIG(status) == SIGTRAP ? STOP_DONE : STOP_STOPPED;
        }
        /* A signal comes first: the thread gets it and stops at the start of its handler. */
        int signal = status >> 16 == 0 ? WSTOPSIG(status) : 0;
        if (is_late(until_us)) {
            request(PTRACE_DETACH, tid, 0, (uintptr_t)signal);
            return STOP_LATE;
        }
        request(PTRACE_CONT, tid, 0, (uintptr_t)signal);
    }
}

bool tracee_read(pid_t tid, struct state *state)
{
    return get_registers(tid, &state->now);
}

/* Reads the rest of what tracee_call puts back. */
static bool save(pid_t tid, struct state *state)
{
    if (request(PTRACE_GETSIGMASK, tid, KERNEL_SIGSET_SIZE, (uintptr_t)&state->signals) != 0) {
        return false;
    }
    state->vector_kind = 0;
    for (size_t i = 0; i < 2 && state->vector_kind == 0; i++) {
        state->vector_size = sizeof state->vector;
        if (get_set(tid, vector_kinds[i], state->vector, &state->vector_size)) {
            state->vector_kind = vector_kinds[i];
        }
    }
    return state->vector_kind != 0;
}

bool tracee_is_in_sequence(pid_t tid)
{
    struct {
        uint64_t area;
        uint32_t size, signature, flags, unused;
    } sequence = {0};
    uint64_t current = 0;
    if (request(PTRACE_GET_RSEQ_CONFIGURATION, tid, sizeof sequence, (uintptr_t)&sequence) <= 0 ||
        sequence.area == 0) {
        return false;
    }
    /* The field rseq_cs of struct rseq: not 0 inside a sequence. */
    return target_memory(tid, sequence.area + 8, &current, sizeof current) != sizeof current ||
           current != 0;
}

/* Writes to the process what the thread needs to go back by itself. Not on a machine where it
 * cannot, or for more vector registers than there is room for. */
static void leave_saved(pid_t tid, const struct symbols *symbols, const struct urgency *urgency,
                        const struct state *before)
{
#if defined(__x86_64__)
    static struct hak_observe_saved saved;
    registers now = before->now;
    uint64_t used;
    size_t size =
        before->vector_size < sizeof saved.vector ? before->vector_size : sizeof saved.vector;
    memcpy(&used, before->vector + VECTOR_HEADER, sizeof used);
    if (before->vector_kind != NT_X86_XSTATE || symbols->stack_size < HAK_OBSERVE_STACK_SIZE ||
        symbols->stack % 64 != 0 || (size < before->vector_size && (used & VECTOR_TILES) != 0)) {
        return;
    }
    registers_restart(tid, &now);
    registers_restart_alone(&now);
    saved = (struct hak_observe_saved){.mark = HAK_OBSERVE_MARK, .signals = before->signals};
    _Static_assert(sizeof now == sizeof saved.registers, "the kernel's");
    memcpy(saved.registers, &now, sizeof now);
    memcpy(saved.vector, before->vector, size);
    saved.has_schedule = urgency->known;
    memcpy(saved.schedule, urgency->bytes, sizeof saved.schedule);
    struct iovec here = {&saved, sizeof saved};
    struct iovec there = {(void *)(symbols->stack + HAK_OBSERVE_SAVED_AT), sizeof saved};
    (void)process_vm_writev(tid, &here, 1, &there, 1, 0);
#else
    (void)tid, (void)symbols, (void)urgency, (void)before;
#endif
}

enum run { RUN_MARKED, RUN_ENDED, RUN_LATE };

/* The signal of the thread's last stop: it gets that when it is let go. */
static int kept_signal;

/* Waits for a stop during the call, and ends the thread's urgency when that takes long. */
static bool wait_call(pid_t tid, uint64_t until_us, const struct urgency *urgency, int *status)
{
    uint64_t urgent_us = clock_us() + CALL_URGENT_US;
    if (wait_stop(tid, urgent_us < until_us ? urgent_us : until_us, status) || *status == -1) {
        return *status != -1;
    }
    urgent_end(urgency);
    return wait_stop(tid, until_us, status);
}

/* Stops a thread that is late. False: it is gone, or does not stop: the end of this process lets it
 * go. */
static bool halt(pid_t tid, int *status)
{
    uint64_t until_us = clock_us() + END_WAIT_US;
    request(PTRACE_INTERRUPT, tid, 0, 0);
    do {
        if (wait_stop(tid, until_us, status)) {
            return true;
        }
    } while (*status == 0 && clock_us() < until_us);
    return false;
}

/* Lets the thread run until it sends itself the marked signal, which it does not get. Other signals
 * are passed on. Afterwards it is stopped, unless it has ended. */
static enum run run_to_mark(pid_t tid, const struct urgency *urgency, long *error)
{
    registers now;
    int status;
    uint64_t until_us = clock_us() + CALL_WAIT_US;
    for (kept_signal = 0;;) {
        if (request(PTRACE_CONT, tid, 0, (uintptr_t)kept_signal) != 0) {
            return RUN_ENDED;
        }
        if (!wait_call(tid, until_us, urgency, &status)) {
            until_us = 0;
            if (status == -1 || !halt(tid, &status)) {
                return RUN_ENDED;
            }
        }
        /* Stops of the whole process wait until we are gone. */
        kept_signal = status >> 16 == 0 ? WSTOPSIG(status) : 0;
        if ((kept_signal == SIGTRAP || kept_signal == SIGWINCH) && get_registers(tid, &now) &&
            registers_mark(&now, error)) {
            kept_signal = 0;
            return RUN_MARKED;
        }
        if (is_late(until_us)) {
            return RUN_LATE;
        }
    }
}

int tracee_call(pid_t tid, const struct symbols *symbols, const struct urgency *urgency,
                struct state *before)
{
    registers now = before->now;
    long error = 0;
    /* All but the marked ones and those by which the C library changes the user: 33 of glibc, 34 of
     * musl. In the kernel's set, bit 0 is signal 1. */
    uint64_t most = ~((UINT64_C(1) << (SIGTRAP - 1)) | (UINT64_C(1) << (SIGWINCH - 1)) |
                      (UINT64_C(1) << 32) | (UINT64_C(1) << 33));
    registers_call_function(&now, symbols->enter, symbols->stack + symbols->stack_size);
    if (!save(tid, before)) {
        return -1;
    }
    leave_saved(tid, symbols, urgency, before);
    if (!put_registers(tid, &now) ||
        request(PTRACE_SETSIGMASK, tid, KERNEL_SIGSET_SIZE, (uintptr_t)&most) != 0) {
        return -1;
    }
    enum run run = run_to_mark(tid, urgency, &error);
    if (run == RUN_ENDED) {
        return -1;
    }
    now = before->now;
    registers_restart(tid, &now);
    if (request(PTRACE_SETSIGMASK, tid, KERNEL_SIGSET_SIZE, (uintptr_t)&before->signals) != 0 ||
        !put_set(tid, before->vector_kind, before->vector, before->vector_size) ||
        !put_registers(tid, &now)) {
        return -1;
    }
    return run == RUN_LATE ? ETIMEDOUT : (int)error;
}

void tracee_release(pid_t tid)
{
    request(PTRACE_DETACH, tid, 0, (uintptr_t)kept_signal);
}
