/* SPDX-License-Identifier: MIT */
/* secure_end.h: the last look of the secure form, when the program exits: at blocks that nobody
 * freed, and so nobody has looked at, and at freed ones that still rest (cache/cache.h).
 *
 *   in use    slabs and spans: a canary that has changed is reported
 *   resting   slabs: a byte that is not zero is reported
 *
 * It runs if the process has had one thread since its start or the fork that made it, and no parent
 * with several threads: else a block may be on its way between two states. A signal handler that
 * exits may have interrupted the thread itself anywhere, so the states are written first or last as
 * region/secure.h says. It takes no lock, and looks at END_OBJECTS_MAX objects and END_SLICES_MAX
 * slices at most. */
#ifndef HAK_CONTROL_SECURE_END_H
#define HAK_CONTROL_SECURE_END_H

#include "base/compiler.h"

/* Looks. If it finds something, it reports that and ends the process. */
HAK_HIDDEN void hak__secure_look_at_end(void);
/* In fork's child, whose parent had several threads: there is no look, nor in its own children. */
HAK_HIDDEN void hak__secure_end_forget(void);

#endif
