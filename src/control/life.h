/* life.h: a name for life.c, which only the loader calls. From an archive of many files a linker
 * takes what somebody refers to: whatever is in every program must refer to this. */
#ifndef HAK_CONTROL_LIFE_H
#define HAK_CONTROL_LIFE_H

#include "base/compiler.h"

HAK_HIDDEN extern const bool hak__life_linked;

#endif
