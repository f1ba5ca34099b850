/* vdso.h: functions of the vDSO, the small library that the kernel maps into every process
 * (vdso(7)). */
#ifndef HAK_OS_VDSO_H
#define HAK_OS_VDSO_H

#include "base/compiler.h"

/* The address of the function `name`, NULL when there is no vDSO or no such function in it. */
HAK_HIDDEN void *hak__vdso_find(const char *name);

#endif
