/* SPDX-License-Identifier: MIT */
/* direct.h: hakmem's calls of the C library do not reach a program's functions of the same names.
 */
#ifndef HAK_OVERRIDE_DIRECT_H
#define HAK_OVERRIDE_DIRECT_H

#include "base/compiler.h"

/* Binds them anew. Once, while the loader relocates the library. */
HAK_HIDDEN void hak__direct_bind(void);

#endif
