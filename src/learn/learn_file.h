/* learn_file.h: starts the learner with the process and keeps what it learned in a file, as the
 * option HAKMEM_LEARN says. */
#ifndef HAK_LEARN_LEARN_FILE_H
#define HAK_LEARN_LEARN_FILE_H

#include "base/compiler.h"

/* Refers to this file's constructor, so that a static program links it (hakmem.c). */
HAK_HIDDEN extern const bool hak__learn_linked;

#endif
