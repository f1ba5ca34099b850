/* life.h: a name by which the linker finds life.c. Only the loader calls that file, and from an
 * archive a linker takes only files that somebody refers to. So malloc, which every program has,
 * refers to this name. */
#ifndef HAK_CONTROL_LIFE_H
#define HAK_CONTROL_LIFE_H

#include "base/compiler.h"

HAK_HIDDEN extern const bool hak__life_linked;

/* The observer at the process's start, in fork's child and at the process's end. Defined in
 * observe/observer.c, which lies above this layer. */
HAK_HIDDEN void hak__observer_begin(void);
HAK_HIDDEN void hak__observer_fork_child(void);
HAK_HIDDEN void hak__observer_end(void);

#endif
