/* SPDX-License-Identifier: MIT */
/* os_share.c: a file in memory through which other processes talk to this one, a part of os.h on
 * Linux. See os_machine.c for how the kernel is called. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/bound.h"
#include "os/quiet.h"

static int os_open_new(const char *path)
{
    int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int result = (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0600);
    return result < 0 ? -errno : result;
}

/* fallocate takes the memory now: a write to a page that a full /dev/shm cannot provide would end
 * the process with SIGBUS. */
static int os_reserve(int descriptor, size_t size)
{
    int error;
    struct os_quiet quiet = os_quiet_begin();
    do {
        error = syscall(SYS_fallocate, descriptor, 0, (off_t)0, (off_t)size) != 0 ? -errno : 0;
    } while (error == -EINTR);
    os_quiet_end(&quiet, error);
    return error;
}

static int os_map_shared(struct os_shared *shared, size_t size)
{
    int error = os_reserve(shared->descriptor, size);
    if (error != 0) {
        return error;
    }
    void *address = bound_mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, shared->descriptor);
    if (address == MAP_FAILED) {
        return -errno;
    }
    syscall(SYS_madvise, address, size, MADV_DONTFORK); /* a child has a file of its own, or none */
    shared->address = address;
    shared->size = size;
    return 0;
}

int hak__os_share(const char *path, size_t size, struct os_shared *shared)
{
    HAK_KEEP_ERRNO;
    *shared = (struct os_shared){NULL, 0, os_open_new(path)};
    if (shared->descriptor == -EEXIST) { /* of an earlier program or process of this number */
        syscall(SYS_unlinkat, AT_FDCWD, path, 0);
        shared->descriptor = os_open_new(path);
    }
    int error = shared->descriptor < 0 ? shared->descriptor : os_map_shared(shared, size);
    if (error != 0 && shared->descriptor >= 0) {
        hak__os_remove(path);
        hak__os_unshare(shared);
    }
    return error;
}

int hak__os_share_resize(struct os_shared *shared, size_t size)
{
    HAK_KEEP_ERRNO;
    int error = shared->descriptor < 0 ? -EBADF : 0;
    if (error == 0 && size > shared->size) {
        error = os_reserve(shared->descriptor, size);
    }
    if (error != 0) {
        return error;
    }
    void *moved = bound_mremap(shared->address, shared->size, size, MREMAP_MAYMOVE, NULL);
    if (moved == MAP_FAILED) {
        return -errno;
    }
    if (size < shared->size) {
        syscall(SYS_ftruncate, shared->descriptor, (off_t)size);
    }
    shared->address = moved;
    shared->size = size;
    return 0;
}

void hak__os_share_close(struct os_shared *shared)
{
    if (shared->descriptor >= 0) {
        hak__os_close(shared->descriptor);
        shared->descriptor = -1;
    }
}

void hak__os_unshare(struct os_shared *shared)
{
    HAK_KEEP_ERRNO;
    hak__os_share_close(shared);
    if (shared->address != NULL) {
        bound_munmap(shared->address, shared->size);
        shared->address = NULL;
    }
}

void hak__os_remove(const char *path)
{
    HAK_KEEP_ERRNO;
    syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

int hak__os_rename(const char *from, const char *to)
{
    HAK_KEEP_ERRNO;
    return syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to) != 0 ? -errno : 0;
}

int hak__os_link(const char *from, const char *to)
{
    HAK_KEEP_ERRNO;
    hak__os_remove(to);
    return syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0) != 0 ? -errno : 0;
}

void hak__os_tell_tracer(uint64_t first, uint64_t second, bool quiet)
{
    syscall(SYS_tgkill, (long)syscall(SYS_getpid), (long)syscall(SYS_gettid),
            quiet ? SIGWINCH : SIGTRAP, first, second);
}

uint32_t hak__os_user_id(void)
{
    return (uint32_t)syscall(SYS_geteuid);
}
