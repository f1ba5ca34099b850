/* SPDX-License-Identifier: MIT */
/* os_file.c: the files that hakmem writes, and the file that it keeps open for a report at exit.
 * See os.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "os/charge.h"
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/text.h"
#include "os/quiet.h"

const char *hak__os_file_error(int error)
{
    switch (-error) {
    case ENOENT:
        return "there is no such directory";
    case ENOTDIR:
        return "a part of the path is not a directory";
    case EISDIR:
        return "it is a directory";
    case EACCES:
    case EPERM:
        return "permission denied";
    case EROFS:
        return "the file system is read-only";
    case ENOSPC:
    case EDQUOT:
        return "no space left";
    case ELOOP:
        return "it is a symbolic link";
    case ENXIO:
        return "it is a pipe that nobody reads";
    case EFBIG:
        return "it reaches the limit of the file size";
    case EPIPE:
        return "nobody reads the other end";
    case EMFILE:
    case ENFILE:
        return "too many open files";
    default:
        return "the kernel refuses it";
    }
}

const char *hak__os_read_error(int error)
{
    return error == -ENOENT ? "there is no such file" : hak__os_file_error(error);
}

/* The file that a descriptor refers to. */
struct os_file {
    bool known;
    mode_t mode;
    dev_t device;
    ino_t inode;
    nlink_t links;
    uid_t user;
};
static struct os_file os_error_file; /* descriptor 2 when the process started */

static struct os_file os_identify(int descriptor)
{
    struct stat file;
    HAK_KEEP_ERRNO;
    struct os_file found = {.known = false};
    if (syscall(SYS_fstat, descriptor, &file) == 0) {
        found = (struct os_file){true,        file.st_mode,  file.st_dev,
                                 file.st_ino, file.st_nlink, file.st_uid};
    }
    return found;
}

/* The flag that keeps an open from following a link, which anybody may have made. The system's own
 * links to what the process has open are meant. */
static int os_no_follow(const char *path)
{
    static const char *const open_files[] = {"/dev/std", "/dev/fd/", "/proc/self/fd/"};
    for (size_t i = 0; i < sizeof open_files / sizeof open_files[0]; i++) {
        if (strncmp(path, open_files[i], strlen(open_files[i])) == 0) {
            return 0;
        }
    }
    return O_NOFOLLOW;
}

/* Does not wait for a pipe's reader. Writes to a pipe or device do. */
static int os_open(const char *path, int flags)
{
    HAK_KEEP_ERRNO;
    int result = open(
        path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | os_no_follow(path) | flags,
        0600);
    struct os_file file = os_identify(result);
    int error = result < 0 ? -errno : 0;
    if (error == 0 && S_ISFIFO(file.mode) && file.user != (uint64_t)syscall(SYS_geteuid)) {
        error = -EPERM; /* who reads it? */
    } else if (error == 0 && syscall(SYS_fcntl, result, F_SETFL, flags & O_APPEND) != 0) {
        error = -errno;
    }
    if (error != 0 && result >= 0) {
        close(result);
    }
    return error != 0 ? error : result;
}

int hak__os_open_append(const char *path)
{
    return os_open(path, O_APPEND);
}

int hak__os_open_new(const char *path)
{
    return os_open(path, O_TRUNC);
}

static bool os_is_same_file(struct os_file a, struct os_file b)
{
    return a.known && b.known && a.device == b.device && a.inode == b.inode;
}

void hak__os_note_error_file(void)
{
    if (!hak__os_is_filtered()) {
        os_error_file = os_identify(STDERR_FILENO);
    }
}

/* True: the descriptor is open for appending, as logs usually are and data files seldom. */
static bool os_appends(int descriptor)
{
    HAK_KEEP_ERRNO;
    int flags = (int)syscall(SYS_fcntl, descriptor, F_GETFL);
    return flags >= 0 && (flags & O_APPEND) != 0;
}

/* For a thread with descriptors of its own: opens what the process has as descriptor 2 anew, unless
 * that is a socket or may not be opened. */
static void os_write_error_of_process(const char *text, size_t size)
{
    int descriptor = os_open("/proc/self/fd/2", O_APPEND);
    struct os_file now = os_identify(descriptor);
    if (S_ISFIFO(now.mode) || S_ISCHR(now.mode) || os_is_same_file(now, os_error_file)) {
        hak__os_write(descriptor, text, size);
    }
    if (descriptor >= 0) {
        hak__os_close(descriptor);
    }
}

void hak__os_write_error(const char *text, size_t size)
{
    hak__os_init();
    if (hak__os_is_filtered()) { /* the C library's malloc does not look either */
        hak__os_write(STDERR_FILENO, text, size);
        return;
    }
    struct os_file now = os_identify(STDERR_FILENO);
    if (!now.known) {
        os_write_error_of_process(text, size);
        return;
    }
    if (S_ISFIFO(now.mode) || S_ISCHR(now.mode) || os_is_same_file(now, os_error_file) ||
        os_is_same_file(now, os_identify(STDOUT_FILENO)) || os_appends(STDERR_FILENO)) {
        hak__os_write(STDERR_FILENO, text, size);
    }
}

struct os_kept hak__os_keep(int descriptor)
{
    HAK_KEEP_ERRNO;
    struct os_kept kept = {-1, 0, 0};
    int high = (int)syscall(SYS_fcntl, descriptor, F_DUPFD_CLOEXEC, OS_KEPT_MIN);
    struct os_file file = os_identify(high);
    if (file.known) {
        kept = (struct os_kept){high, (uint64_t)file.device, (uint64_t)file.inode};
    }
    return kept;
}

struct os_kept hak__os_keep_append(const char *path)
{
    struct os_kept kept = {-1, 0, 0};
    int low = os_open(path, O_APPEND);
    if (low >= 0) {
        kept = hak__os_keep(low);
        hak__os_close(low);
    }
    return kept;
}

bool hak__os_is_kept(const struct os_kept *kept)
{
    struct os_file now = os_identify(kept->descriptor);
    return now.known && now.links != 0 && now.device == kept->device && now.inode == kept->inode;
}

void hak__os_close(int descriptor)
{
    HAK_KEEP_ERRNO;
    close(descriptor);
}

/* Bytes that a write to the descriptor takes without a wait: all of a file's; a page of a pipe's,
 * or all that an empty one holds, so that a report stays in one piece. 0: a pipe or socket has
 * taken nothing for some seconds. */
static size_t os_write_room(int descriptor, mode_t mode, size_t size)
{
    struct pollfd wanted = {descriptor, POLLOUT, 0};
    /* Seconds that a write waits for the reader of a pipe. Twice: a process whose report nobody
     * reads lives that much longer. Half: a reader that is slow for a moment gets no end of the
     * report. */
    struct timespec wait = {5, 0}; /* the kernel stores what is left */
    int unread = 1;
    /* What a pipe that is ready takes at least. */
    long ready, room = ARCH_PAGE_SIZE_MIN;
    if (!S_ISFIFO(mode) && !S_ISSOCK(mode)) {
        return size;
    }
    do {
        ready = syscall(SYS_ppoll, &wanted, 1L, &wait, NULL, 0L);
    } while (ready < 0 && errno == EINTR);
    if (syscall(SYS_ioctl, descriptor, FIONREAD, &unread) == 0 && unread == 0 && S_ISFIFO(mode)) {
        long all = syscall(SYS_fcntl, descriptor, F_GETPIPE_SZ);
        room = all > room ? all : room;
    }
    return ready == 0 ? 0 : size < (size_t)room ? size : (size_t)room;
}

/* Takes back the `size` bytes of a file's end that were just appended. */
static void os_take_back(int descriptor, size_t size)
{
    struct stat file;
    long end = syscall(SYS_lseek, descriptor, 0L, SEEK_CUR);
    if (end >= (long)size && os_appends(descriptor) && syscall(SYS_fstat, descriptor, &file) == 0 &&
        file.st_size == end) { /* else another process has appended meanwhile */
        syscall(SYS_ftruncate, descriptor, end - (long)size);
    }
}

int hak__os_write(int descriptor, const char *text, size_t size)
{
    HAK_KEEP_ERRNO;
    int error = 0;
    size_t done = 0;
    /* a filter of system calls may kill for the calls that only hakmem makes */
    bool may_ask = hak__os_may_ask();
    mode_t mode = may_ask ? os_identify(descriptor).mode : 0;
    struct os_quiet quiet = os_quiet_begin();
    while (done != size && error == 0) {
        size_t room = os_write_room(descriptor, mode, size - done);
        ssize_t written = room == 0 ? 0 : syscall(SYS_write, descriptor, text + done, room);
        if (written > 0) {
            done += (size_t)written;
        } else if (written == 0 || errno != EINTR) {
            error = written < 0 ? -errno : room == 0 ? -EPIPE : -EIO;
        }
    }
    if (error != 0 && done != 0 && may_ask) {
        os_take_back(descriptor, done);
    }
    os_quiet_end(&quiet, error);
    return error;
}

long hak__os_read_part(const char *path, uint64_t offset, char *buffer, size_t size)
{
    HAK_KEEP_ERRNO;
    /* A pipe without a writer must not block. */
    long descriptor = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    long length = 0;
    if (descriptor < 0) {
        return -errno;
    }
    /* a pipe has no offset */
    long got = offset == 0 ? 1 : syscall(SYS_lseek, descriptor, offset, SEEK_SET);
    while (got > 0 && (size_t)length < size) { /* files of /proc come in pieces */
        got = syscall(SYS_read, descriptor, buffer + length, size - (size_t)length);
        length += got > 0 ? got : 0;
    }
    length = got < 0 ? -errno : length;
    syscall(SYS_close, descriptor);
    return length;
}

long hak__os_read_file(const char *path, char *buffer, size_t size)
{
    return hak__os_read_part(path, 0, buffer, size);
}

bool hak__os_read_text(const char *path, char *text, size_t size)
{
    long length = hak__os_read_file(path, text, size - 1);
    text[length > 0 ? length : 0] = '\0';
    return length > 0 && (size_t)length < size - 1;
}

/* Of the calling thread: a main thread that has ended has no memory. The file of /proc needs only
 * calls that programs make, too (os_filter.c). Without /proc, as after chroot, the kernel copies,
 * which a filter may forbid. */
long hak__os_read_memory(uintptr_t from, void *to, size_t size)
{
    HAK_KEEP_ERRNO;
    long got = -1,
         descriptor = syscall(SYS_openat, AT_FDCWD, "/proc/thread-self/mem", O_RDONLY | O_CLOEXEC);
    errno = EACCES;
    if (descriptor >= 0) {
        if (syscall(SYS_lseek, descriptor, from, SEEK_SET) == (long)from) {
            got = syscall(SYS_read, descriptor, to, size);
        }
        int error = errno;
        syscall(SYS_close, descriptor);
        errno = error;
    } else if (hak__os_may_ask()) {
        struct iovec local = {to, size}, remote = {(void *)from, size};
        got = syscall(SYS_process_vm_readv, syscall(SYS_gettid), &local, 1L, &remote, 1L, 0L);
    }
    got = got >= 0 ? got : errno == EIO || errno == EFAULT ? 0 : -errno;
    return got;
}

int hak__os_update_file(const char *path, const char *data, size_t size)
{
    HAK_KEEP_ERRNO;
    long descriptor =
        syscall(SYS_openat, AT_FDCWD, path,
                O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | os_no_follow(path), 0600);
    int error = descriptor < 0 ? -errno : hak__os_write((int)descriptor, data, size);
    if (error == 0) {
        syscall(SYS_ftruncate, descriptor, (long)size); /* fails for devices, which have no rest */
    }
    if (descriptor >= 0) {
        syscall(SYS_close, descriptor);
    }
    return error;
}

bool hak__os_has_userfaultfd(void)
{
    static const char kind[] = "anon_inode:[userfaultfd]";
    char path[32], target[sizeof kind];
    bool found = false;
    HAK_KEEP_ERRNO;
    if (!hak__os_may_ask()) {
        return false;
    }
    /* Files that are looked at, and how many missing ones in a row end the look. Twice: a watching
     * program with many files is noticed, and a look takes twice as long. */
    for (uint32_t file = 0, missing = 0; !found && file < 256 && missing < 16; file++) {
        struct os_file about = os_identify((int)file);
        missing = about.known ? 0 : missing + 1;
        if (!about.known || (about.mode & S_IFMT) != 0) {
            continue; /* most files have a type; the name takes ten times as long as this look */
        }
        hak__text_make(path, sizeof path, "/proc/self/fd/%u", file);
        long length = syscall(SYS_readlinkat, AT_FDCWD, path, target, sizeof target);
        found = length == sizeof kind - 1 && memcmp(target, kind, sizeof kind - 1) == 0;
    }
    return found;
}
