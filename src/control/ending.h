/* SPDX-License-Identifier: MIT */
/* ending.h: what hakmem does when the process ends, by exit, quick_exit or _exit: it writes the
 * report, the profile and the heap map, as far as they are asked for, and removes the observer's
 * file.
 *
 * exit runs the library's destructor (life.c), and quick_exit a function that hakmem registers.
 * _exit runs nothing, so hakmem has a function of that name (override/next.c). Shells, forked
 * children of servers and Python's os._exit end that way.
 *
 * State: one word. None -> the thread that writes -> done. So all is written once, also if exit
 * ends by _exit, and if several threads end the process at the same time.
 *
 * Only a process that exec or fork has started writes. A child of vfork or of a clone that shares
 * memory has another process id than the one noted here; it changes nothing in its parent's memory.
 *
 * _exit may be called in a signal handler that interrupted any code. So the writers use no lock of
 * the C library, no stdio and no malloc: they make system calls, and take hakmem's own locks inside
 * the gate. The gate refuses a thread that was interrupted inside hakmem; then one sentence takes
 * the document's place. A wait for another thread's fork has a limit (GATE_HURRY). */
#ifndef HAK_CONTROL_ENDING_H
#define HAK_CONTROL_ENDING_H

#include "base/compiler.h"

/* True if there is something to do at the end, perhaps. Set at the start of the process, or by the
 * observer. Relaxed: a thread that just starts the observer races with the end anyway. */
HAK_HIDDEN extern bool hak__ending_wanted;
HAK_HIDDEN void hak__ending_want(void);

/* Notes the process: when an end is first wanted, and then in the child of a fork. */
HAK_HIDDEN void hak__ending_note_process(void);

/* True: the calling thread is to call hak__ending_write. False: nothing is left to do. If another
 * thread is writing, waits for it first, for some seconds at most. */
HAK_HIDDEN bool hak__ending_take(void);
/* Writes all. `soon`: at _exit and quick_exit. */
HAK_HIDDEN void hak__ending_write(bool soon);
/* In a handler, before the signal ends the process: the same without the observer's file. */
HAK_HIDDEN void hak__ending_by_signal(void);

#endif
