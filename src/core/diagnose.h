/* diagnose.h: says what a program did wrong, then ends it. Allocates nothing, takes no lock. */
#ifndef HAK_CORE_DIAGNOSE_H
#define HAK_CORE_DIAGNOSE_H

#include "base/compiler.h"

/* Prints "hakmem: fatal: WHAT: pointer 0x.. (size class N bytes, heap H)" and aborts. `object_size`
 * 0: unknown; `heap_id` 0: unknown. */
HAK_HIDDEN HAK_COLD __attribute__((noreturn)) void
hak__diagnose_fatal(const char *what, const void *pointer, size_t object_size, uint32_t heap_id);
/* The same as one line without the end of the process: "hakmem: warning: WHAT: pointer 0x.."; NULL:
 * none. */
HAK_HIDDEN HAK_COLD void hak__diagnose_warn(const char *what, const void *pointer);

/* Defined in heap/thread.c: after a fatal report this thread's cache may be broken, and is not used
 * again. */
HAK_HIDDEN HAK_COLD void hak__thread_give_up(void);

#endif
