/* SPDX-License-Identifier: MIT */
/* own_stack.h: calls a function on a stack of hakmem's own.
 *
 * Why: the program may call malloc on a stack of 4 KiB (coroutines) or in a handler on a small
 * alternate stack. A walk of the stack needs 6 KiB and a report 30, so both run elsewhere. The
 * stacks of the callers stay visible to unwinders. */
#ifndef HAK_CORE_OWN_STACK_H
#define HAK_CORE_OWN_STACK_H

#include "base/compiler.h"

/* Calls function(argument) on another stack and returns true. False: there is no memory for one,
 * and nothing was called. Any thread, also in a signal handler. */
HAK_HIDDEN bool hak__own_stack_call(void (*function)(void *argument), void *argument);
/* The same; without memory it calls the function on this stack. */
HAK_HIDDEN void hak__own_stack_try(void (*function)(void *argument), void *argument);

#endif
