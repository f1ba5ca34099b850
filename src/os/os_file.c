/* os_file.c: the files that hakmem writes, and the one that it keeps open. See os.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int hak__os_open_append(const char *path)
{
    int saved = errno;
    int result = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    result = result < 0 ? -errno : result;
    errno = saved;
    return result;
}

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
    case EMFILE:
    case ENFILE:
        return "too many open files";
    default:
        return "the kernel refuses it";
    }
}

/* Sets the file behind `descriptor`; false: there is none, or it was deleted. */
static bool os_identify(int descriptor, struct os_kept *kept)
{
    struct stat file;
    if (syscall(SYS_newfstatat, descriptor, "", &file, AT_EMPTY_PATH) != 0 || file.st_nlink == 0) {
        return false;
    }
    *kept = (struct os_kept){descriptor, (uint64_t)file.st_dev, (uint64_t)file.st_ino};
    return true;
}

struct os_kept hak__os_keep_append(const char *path)
{
    int saved = errno;
    struct os_kept kept = {-1, 0, 0};
    int low = hak__os_open_append(path);
    if (low >= 0) {
        int high = (int)syscall(SYS_fcntl, low, F_DUPFD_CLOEXEC, OS_KEPT_MIN);
        if (high >= 0 && !os_identify(high, &kept)) {
            hak__os_close(high);
        }
        hak__os_close(low);
    }
    errno = saved;
    return kept;
}

bool hak__os_is_kept(const struct os_kept *kept)
{
    int saved = errno;
    struct os_kept now;
    bool same = kept->descriptor >= 0 && os_identify(kept->descriptor, &now) &&
                now.device == kept->device && now.inode == kept->inode;
    errno = saved;
    return same;
}

void hak__os_close(int descriptor)
{
    int saved = errno;
    close(descriptor);
    errno = saved;
}
