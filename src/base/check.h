/* check.h: assertions in two levels, and the one way to die.
 *
 * HAK_ASSERT   level 1: cheap, at entry and exit of slow paths.
 * HAK_ASSERT_FULL level 2: may walk whole structures.
 * Off assertions are still compiled, so they cannot rot. What a caller of malloc can break is
 * checked in every build with an explicit `if` and core/diagnose.h, never with an assertion. */
#ifndef HAK_BASE_CHECK_H
#define HAK_BASE_CHECK_H

#include "base/compiler.h"

/* Defined in core/diagnose.c: prints the text and aborts. */
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
