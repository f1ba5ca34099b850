/* SPDX-License-Identifier: MIT */
/* test_chroot.c: a program that goes into an empty root directory, without /proc, still writes a
 * profile with the files of its code, and its observer stays.
 * ctest: no-qemu */
#include "override.h"

#include <dirent.h>
#include <sys/stat.h>

static char folder[] = "/tmp/chroot_XXXXXX";

static void use(const char *root, int told, int wait)
{
    char byte = 0;
    static void *volatile kept[64];
    CHECK(chroot(root) == 0 && chdir("/") == 0);
    for (size_t i = 0; i < 64; i++) {
        kept[i] = get_memory(1 << 20);
    }
    (void)kept[0];
    CHECK(write(told, &byte, 1) == 1);
    CHECK(read(wait, &byte, 1) == 0); /* until the parent has looked */
    exit(0);
}

static size_t count_threads(pid_t process)
{
    char path[64];
    size_t count = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)process);
    DIR *tasks = opendir(path);
    CHECK(tasks != NULL);
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        count += task->d_name[0] != '.';
    }
    closedir(tasks);
    return count;
}

static void check_profile(const char *path)
{
    static char text[1 << 20];
    char self[TEST_PATH_SIZE];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
    size_t length = 0;
    ssize_t got;
    while ((got = read(file, text + length, sizeof text - 1 - length)) > 0) {
        length += (size_t)got;
    }
    close(file);
    own_path(self);
    const char *mappings = strstr(text, "\"mappings\"");
    CHECK(mappings != NULL && strstr(mappings, self) != NULL);
    CHECK(strstr(mappings, "/libc.so.6") != NULL);
}

int main(int argc, char **argv)
{
    char self[TEST_PATH_SIZE], profile[TEST_PATH_SIZE], root[TEST_PATH_SIZE];
    int told[2], wait[2];
    char byte;
    prove_served();
    if (argc > 1) {
        use(argv[1], atoi(argv[2]), atoi(argv[3]));
    }
    if (geteuid() != 0) {
        dprintf(2, "skipped: only root may chroot\n");
        return TEST_SKIPPED;
    }
    CHECK(mkdtemp(folder) != NULL);
    snprintf(root, sizeof root, "%s/root", folder);
    snprintf(profile, sizeof profile, "%s/profile", folder);
    CHECK(mkdir(root, 0755) == 0 && pipe(told) == 0 && pipe(wait) == 0);
    own_path(self);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char first[16], second[16];
        CHECK(close(wait[1]) == 0);
        snprintf(first, sizeof first, "%d", told[1]);
        snprintf(second, sizeof second, "%d", wait[0]);
        CHECK(setenv("HAKMEM_PROFILE_FILE", profile, 1) == 0);
        CHECK(setenv("HAKMEM_OBSERVE", "1", 1) == 0);
        execl(self, self, root, first, second, (char *)NULL);
        _exit(126);
    }
    CHECK(close(told[1]) == 0 && read(told[0], &byte, 1) == 1);
    sleep(2); /* an observer that cannot look at /proc would have ended */
    CHECK_EQUAL(count_threads(child), 2);
    CHECK(close(wait[1]) == 0);
    wait_for_success(child, "in the other root directory");
    check_profile(profile);
    CHECK(unlink(profile) == 0 && rmdir(root) == 0 && rmdir(folder) == 0);
    return 0;
}
