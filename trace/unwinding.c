/* SPDX-License-Identifier: MIT */
/* unwinding.c: what hakmem's unwinder (src/observe/unwind.h) asks of the rest of the library. The
 * recorder walks stacks by it, because it never ends a program, whatever is on the stack. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "observe/loaded.h"
#include "observe/unwind.h"
#include "os/os.h"

/* NULL: missing. Written before the process has a second thread. */
static int (*find_object)(void *address, struct loader_answer *answer);

bool hak__loaded_start(void)
{
    *(void **)&find_object = dlsym(RTLD_DEFAULT, "_dl_find_object");
    return find_object != NULL;
}

bool hak__loaded_ask(uintptr_t address, struct loader_answer *answer)
{
    return find_object != NULL && find_object((void *)address, answer) == 0; /* NOLINT */
}

bool hak__os_is_readable(uintptr_t address)
{
    HAK_KEEP_ERRNO;
    return syscall(SYS_futex, address, FUTEX_CMP_REQUEUE_PRIVATE, 0, 0, address, 0) >= 0 ||
           errno == EAGAIN;
}

/* For static programs, which have no recorder. */
bool hak__unwind_index(struct unwind_module *module, uintptr_t bias)
{
    (void)module;
    (void)bias;
    return false;
}
