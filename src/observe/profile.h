/* profile.h: a name by which the linker finds profile.c, as in control/life.h. */
#ifndef HAK_OBSERVE_PROFILE_H
#define HAK_OBSERVE_PROFILE_H

#include "base/compiler.h"

HAK_HIDDEN extern const bool hak__profile_linked;

#endif
