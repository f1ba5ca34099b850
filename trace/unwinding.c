/* SPDX-License-Identifier: MIT */
/* unwinding.c: what hakmem's unwinder (src/observe/unwind.h) asks of the rest of the library. The
 * recorder walks stacks by it, because it never ends a program, whatever is on the stack. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "observe/loaded.h"
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

size_t hak__os_page_size(void)
{
    return (size_t)getauxval(AT_PAGESZ);
}

bool hak__os_is_readable(uintptr_t address)
{
    HAK_KEEP_ERRNO;
    return syscall(SYS_futex, address, FUTEX_CMP_REQUEUE_PRIVATE, 0, 0, address, 0) >= 0 ||
           errno == EAGAIN;
}

int hak__os_map(size_t size, size_t alignment, void **address)
{
    HAK_KEEP_ERRNO;
    void *memory = alignment <= hak__os_page_size() ? mmap(NULL, size, PROT_READ | PROT_WRITE,
                                                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                                                    : MAP_FAILED;
    if (memory == MAP_FAILED) {
        return -ENOMEM;
    }
    *address = memory;
    return 0;
}

/* For static programs, which have no recorder. */
long hak__os_read_part(const char *path, uint64_t offset, char *buffer, size_t size)
{
    (void)path;
    (void)offset;
    (void)buffer;
    (void)size;
    return -ENOSYS;
}
