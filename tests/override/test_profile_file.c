/* SPDX-License-Identifier: MIT */
/* test_profile_file.c: HAKMEM_PROFILE_FILE: the process and its forked child append a profile each
 * at their exit, with the blocks that are in use, to one file or to one each (%p). A file that
 * cannot be opened is named. The environment of a program that samples from the start is whole.
 *
 * ctest: no-qemu
 */
#include "override.h"

#include <dirent.h>

static int allocate_and_exit(void)
{
    CHECK(getenv("HAKMEM_PROFILE_FILE") != NULL && getenv("TEST_PROFILE_KEPT") != NULL);
    for (int i = 0; i < 1000; i++) {
        CHECK(get_memory(20000) != NULL);
    }
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        exit(0);
    }
    wait_for_success(child, "child");
    return 0;
}

static char said[TEST_PATH_SIZE]; /* by both processes */

static void start_program(const char *profile)
{
    const char *const variables[] = {"HAKMEM_SAMPLE_BYTES",
                                     "1000",
                                     "HAKMEM_PROFILE_FILE",
                                     profile,
                                     "TEST_PROFILE_KEPT",
                                     "1",
                                     NULL};
    struct again program = start_again("allocate", AGAIN_ERRORS, variables);
    read_to_end(program.ends[2], said, sizeof said);
    wait_for_success(program.process, "program");
}

/* The sum of all live bytes of the line that starts at `text`. */
static long long live_bytes(const char *text)
{
    static const char key[] = "\"live_bytes\": ";
    const char *end = strchr(text, '\n');
    long long sum = 0;
    for (const char *at = text; (at = strstr(at, key)) != NULL && at < end; at++) {
        sum += strtoll(at + strlen(key), NULL, 10);
    }
    return sum;
}

/* With %p each process has a file of its own. */
static void check_own_files(const char *directory)
{
    char name[64];
    size_t files = 0;
    snprintf(name, sizeof name, "%s/100%%%%.%%p", directory);
    start_program(name);
    DIR *stream = opendir(directory);
    CHECK(stream != NULL);
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        if (entry->d_name[0] != '.') {
            CHECK(strncmp(entry->d_name, "100%.", 5) == 0 && atoi(entry->d_name + 5) > 1);
            CHECK(unlinkat(dirfd(stream), entry->d_name, 0) == 0);
            files++;
        }
    }
    closedir(stream);
    CHECK_EQUAL(files, 2);
}

int main(int argc, char **argv)
{
    static char text[1 << 20];
    prove_served();
    if (argc > 1 && strcmp(argv[1], "allocate") == 0) {
        return allocate_and_exit();
    }
    char directory[] = "/tmp/test_profile_file_XXXXXX";
    char profile[64], complaint[200];
    CHECK(mkdtemp(directory) != NULL);
    snprintf(profile, sizeof profile, "%s/profile", directory);
    start_program(profile);
    int file = open(profile, O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
    read_to_end(file, text, sizeof text);
    const char *second = strchr(text, '\n');
    CHECK(strncmp(text, "{\"hakmem_profile\": ", 19) == 0 && second != NULL && second[1] == '{');
    /* 20 MB in 1,000 blocks, of which nearly all are sampled. */
    CHECK(live_bytes(text) > 19000000 && live_bytes(text) < 22000000);
    CHECK(live_bytes(second + 1) > 19000000 && live_bytes(second + 1) < 22000000);
    CHECK(unlink(profile) == 0);
    check_own_files(directory);
    CHECK(rmdir(directory) == 0);
    start_program(profile); /* there is no such directory now */
    snprintf(complaint, sizeof complaint,
             "hakmem: cannot write the profile to %s: there is no such directory\n", profile);
    const char *first = strstr(said, complaint);
    CHECK(first != NULL && strstr(first + 1, complaint) != NULL); /* of both processes */
    return 0;
}
