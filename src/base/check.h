/* SPDX-License-Identifier: MIT */
/* check.h: assertions in two levels.
 *
 *   HAK_ASSERT       from assertion level 1 on: cheap checks at entry and exit of slow paths
 *   HAK_ASSERT_FULL  at level 2: checks that may walk whole structures
 *
 * An assertion that is off is still compiled, so it stays correct C. Mistakes that a program can
 * make are not assertions: an `if` checks them in every build, and core/diagnose.h reports them. */
#ifndef HAK_BASE_CHECK_H
#define HAK_BASE_CHECK_H

#include "base/compiler.h"

/* Prints the text and the place, then aborts. Defined in core/diagnose.c. */
HAK_HIDDEN HAK_COLD __attribute__((noreturn)) void hak__assert_fail(const char *text,
                                                                    const char *file, int line);

#define HAK_ASSERT_AT(level, condition)                                                            \
    do {                                                                                           \
        if (HAK_LEVEL >= (level) && HAK_UNLIKELY(!(condition))) {                                  \
            hak__assert_fail(#condition, __FILE__, __LINE__);                                      \
        }                                                                                          \
    } while (0)

#define HAK_ASSERT(condition) HAK_ASSERT_AT(1, condition)
#define HAK_ASSERT_FULL(condition) HAK_ASSERT_AT(2, condition)

#endif
