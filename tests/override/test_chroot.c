/* SPDX-License-Identifier: MIT */
/* test_chroot.c: a program that goes into an empty root directory, without /proc, still writes a
 * profile with the files of its code, and its observer stays.
 * ctest: no-qemu */
#include "override.h"

static int use(const char *root)
{
    char byte = 0;
    static void *volatile kept[64];
    CHECK(chroot(root) == 0 && chdir("/") == 0);
    for (size_t i = 0; i < 64; i++) {
        kept[i] = get_memory(1 << 20);
    }
    CHECK(kept[0] != NULL && write(1, &byte, 1) == 1);
    CHECK(read(0, &byte, 1) == 0); /* until the parent has looked */
    return 0;
}

int main(int argc, char **argv)
{
    static char text[1 << 20];
    char folder[] = "/tmp/chroot_XXXXXX";
    char self[TEST_PATH_SIZE], profile[TEST_PATH_SIZE], root[TEST_PATH_SIZE];
    prove_served();
    if (argc > 1) {
        return use(argv[1]);
    }
    if (geteuid() != 0) {
        dprintf(2, "skipped: only root may chroot\n");
        return TEST_SKIPPED;
    }
    CHECK(mkdtemp(folder) != NULL);
    snprintf(root, sizeof root, "%s/root", folder);
    snprintf(profile, sizeof profile, "%s/profile", folder);
    CHECK(mkdir(root, 0755) == 0);
    const char *const variables[] = {"HAKMEM_PROFILE_FILE", profile, "HAKMEM_OBSERVE", "1", NULL};
    struct again program = start_again(root, AGAIN_INPUT | AGAIN_OUTPUT, variables);
    await_byte(&program);
    sleep(2); /* an observer that cannot look at /proc would have ended */
    CHECK_EQUAL(threads_count(program.process), 2);
    close_ends(&program);
    wait_for_success(program.process, "in the other root directory");
    read_file(profile, text, sizeof text);
    own_path(self);
    const char *mappings = strstr(text, "\"mappings\"");
    CHECK(mappings != NULL && strstr(mappings, self) != NULL);
    CHECK(strstr(mappings, "/libc.so.6") != NULL);
    CHECK(unlink(profile) == 0 && rmdir(root) == 0 && rmdir(folder) == 0);
    return 0;
}
