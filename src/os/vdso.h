/* SPDX-License-Identifier: MIT */
/* vdso.h: finds functions of the vDSO, the small library that the kernel maps into each process
 * (vdso(7)). hakmem reads the clock with it, without a system call. */
#ifndef HAK_OS_VDSO_H
#define HAK_OS_VDSO_H

#include "base/compiler.h"

/* The address of the function `name`. NULL: there is no vDSO, or it has no such function. */
HAK_HIDDEN void *hak__vdso_find(const char *name);

#endif
