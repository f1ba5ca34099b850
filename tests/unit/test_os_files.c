/* SPDX-License-Identifier: MIT */
/* test_os_files.c: os/os_file: what os.h promises of files, and that none touches errno.
 *
 * ctest: no-qemu
 */
#include "unit.h"

#include <sys/stat.h>

static int setup(void **state)
{
    hak__os_init();
    return 0;
}

/* The number is high, fork's child has it, and another file under the number is noticed. */
OS_TEST(keep)
{
    char path[] = "/tmp/test_os_files_XXXXXX", text[64];
    int file = mkstemp(path);
    assert_true(file >= 0);
    errno = ERRNO_UNTOUCHED;
    struct os_kept kept = hak__os_keep_append(path);
    assert_true(kept.descriptor >= OS_KEPT_MIN);
    assert_true(hak__os_is_kept(&kept));
    assert_int_equal(errno, ERRNO_UNTOUCHED);
    assert_int_equal(fcntl(kept.descriptor, F_GETFD), FD_CLOEXEC);
    hak__os_write(kept.descriptor, "kept", 4);
    support_read_file(path, text, sizeof text);
    assert_string_equal(text, "kept");
    int other = open("/dev/null", O_WRONLY | O_CLOEXEC);
    assert_true(other >= 0 && dup2(other, kept.descriptor) == kept.descriptor);
    errno = ERRNO_UNTOUCHED;
    assert_false(hak__os_is_kept(&kept));
    close(kept.descriptor);
    assert_false(hak__os_is_kept(&kept));
    kept = hak__os_keep_append(path);
    assert_true(hak__os_is_kept(&kept));
    unlink(path); /* it is to be made again */
    assert_false(hak__os_is_kept(&kept));
    close(kept.descriptor);
    kept = hak__os_keep_append("/dev/null/none");
    assert_int_equal(kept.descriptor, -1);
    assert_false(hak__os_is_kept(&kept));
    assert_int_equal(errno, ERRNO_UNTOUCHED);
    close(other);
    close(file);
}

OS_TEST(open)
{
    char directory[] = "/tmp/unit.XXXXXX", path[64], link[64];
    struct stat about;
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/file", directory);
    snprintf(link, sizeof link, "%s/link", directory);
    errno = ERRNO_UNTOUCHED;
    for (int replaces = 0; replaces < 2; replaces++) {
        int (*open_file)(const char *) = replaces ? hak__os_open_new : hak__os_open_append;
        int file = open_file(path);
        assert_int_equal(fstat(file, &about), 0);
        assert_int_equal(about.st_mode, S_IFREG | 0600);
        assert_int_equal(fcntl(file, F_GETFL) & (O_NONBLOCK | O_APPEND), replaces ? 0 : O_APPEND);
        hak__os_close(file);
        assert_int_equal(symlink(path, link), 0);
        assert_int_equal(open_file(link), -ELOOP);
        unlink(link);
        assert_int_equal(mkfifo(link, 0600), 0);
        assert_int_equal(open_file(link), -ENXIO); /* nobody reads: no wait */
        int reader = open(link, O_RDONLY | O_NONBLOCK);
        file = open_file(link);
        assert_int_equal(fcntl(file, F_GETFL) & O_NONBLOCK, 0); /* writes wait */
        hak__os_close(file);
        if (geteuid() == 0) {
            assert_int_equal(chown(link, 64125, 64125), 0);
            assert_int_equal(open_file(link), -EPERM);
        }
        close(reader);
        unlink(link);
        unlink(path);
    }
    assert_int_equal(errno, ERRNO_UNTOUCHED);
    rmdir(directory);
}

OS_TEST(update_file)
{
    char directory[] = "/tmp/unit.XXXXXX", path[64], text[64];
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/file", directory);
    errno = ERRNO_UNTOUCHED;
    assert_int_equal(hak__os_update_file(path, "a long text", 11), 0);
    support_read_file(path, text, sizeof text);
    assert_string_equal(text, "a long text");
    assert_int_equal(hak__os_update_file(path, "short", 5),
                     0); /* nothing of the old text is left */
    assert_int_equal(hak__os_read_file(path, text, sizeof text), 5);
    assert_memory_equal(text, "short", 5);
    assert_int_equal(hak__os_update_file("/dev/null", "text", 4), 0);
    assert_int_equal(hak__os_update_file(directory, "text", 4), -EISDIR);
    assert_int_equal(hak__os_update_file("/dev/null/none", "text", 4), -ENOTDIR);
    assert_int_equal(errno, ERRNO_UNTOUCHED);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(hak__os_update_file(path, "text", 4), -ENXIO); /* nobody reads: no wait */
    assert_int_equal(hak__os_read_file(path, text, sizeof text), 0);
    unlink(path);
    assert_int_equal(symlink("/dev/null", path), 0);
    assert_int_equal(hak__os_update_file(path, "text", 4), -ELOOP);
    unlink(path);
    rmdir(directory);
    errno = ERRNO_UNTOUCHED;
}

TESTS(setup)
