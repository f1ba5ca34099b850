/* SPDX-License-Identifier: MIT */
/* test_secure.c: a setuid program ignores the options of the environment and the file that these
 * name: who calls it chooses its environment, and HAKMEM_STATS_FILE would let them append to any
 * file. Its own hak_options count. A copy of this program is made setuid root and started by
 * nobody; the same copy without the bit shows that the options are read otherwise. Needs root;
 * LD_PRELOAD is the loader's business and not let through.
 *
 * ctest: static-only no-qemu
 */
#include "override.h"

#include "hakmem/control.h"

#include <sys/auxv.h>

enum { NOBODY = 65534 };

const char hak_options[] = "purge_delay_ms=77,bin_bytes=8k";

static bool has_value(const char *name, const char *wanted)
{
    char value[64];
    return hak_option_get(name, value, sizeof value) == 0 && strcmp(value, wanted) == 0;
}

static void write_file(const char *path, const char *text, mode_t mode)
{
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    CHECK(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text));
    CHECK(fchmod(file, mode) == 0 && close(file) == 0);
}

/* Starts the copy as nobody, with a good and a bad option; its exit status, and whether it printed
 * anything, to standard error or to the file of the option. */
static int run_copy(const char *copy, const char *report, const char *config, bool *printed)
{
    int channel[2];
    char text[4096];
    CHECK(pipe(channel) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(dup2(channel[1], 2) == 2);
        close(channel[0]);
        close(channel[1]);
        CHECK(setenv("HAKMEM_BOGUS", "1", 1) == 0);
        CHECK(setenv("HAKMEM_CONFIG_FILE", config, 1) == 0);
        CHECK(setenv("HAKMEM_BIN_BYTES", "16k", 1) == 0);
        CHECK(setenv("HAKMEM_STATS", "text", 1) == 0);
        CHECK(setenv("HAKMEM_STATS_FILE", report, 1) == 0);
        CHECK(setresgid(NOBODY, NOBODY, NOBODY) == 0 && setresuid(NOBODY, NOBODY, NOBODY) == 0);
        execl(copy, copy, "run", (char *)NULL);
        _exit(126);
    }
    close(channel[1]);
    ssize_t length = read(channel[0], text, sizeof text);
    close(channel[0]);
    int status = exit_status_of(child);
    struct stat file;
    CHECK(stat(report, &file) == 0);
    *printed = length > 0 || file.st_size != 0;
    return status;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "run") == 0) {
        give_back(get_memory(100));
        CHECK(has_value("purge_delay_ms", "77"));
        bool secure = getauxval(AT_SECURE) != 0;
        CHECK(has_value("bin_bytes", secure ? "8k" : "16k"));
        CHECK(has_value("limit", secure ? "never" : "5t"));
        return secure ? 2 : 0;
    }
    prove_served();
    if (geteuid() != 0) {
        dprintf(2, "skipped: not root\n");
        return TEST_SKIPPED;
    }
    char self[TEST_PATH_SIZE], command[TEST_PATH_SIZE + 100];
    char copy[64];
    char report[64];
    char config[64];
    char directory[] = "/tmp/test_secure_XXXXXX";
    own_path(self);
    CHECK(mkdtemp(directory) != NULL && chmod(directory, 0755) == 0);
    snprintf(copy, sizeof copy, "%s/copy", directory);
    snprintf(report, sizeof report, "%s/report", directory);
    snprintf(config, sizeof config, "%s/config", directory);
    snprintf(command, sizeof command, "cp %s %s", self, copy);
    CHECK_EQUAL(system(command), 0);
    write_file(config, "limit=5t\n", 0644);
    write_file(report, "", 0666);
    bool printed_plain, printed_secure;
    int plain = run_copy(copy, report, config, &printed_plain);
    CHECK(truncate(report, 0) == 0);
    CHECK(chown(copy, 0, 0) == 0 && chmod(copy, 04755) == 0);
    int secure = run_copy(copy, report, config, &printed_secure);
    CHECK(unlink(copy) == 0 && unlink(report) == 0 && unlink(config) == 0 && rmdir(directory) == 0);
    CHECK_EQUAL(plain, 0);
    CHECK(printed_plain);
    if (secure == 0) {
        dprintf(2, "skipped: /tmp has no setuid programs\n");
        return TEST_SKIPPED;
    }
    CHECK_EQUAL(secure, 2);
    CHECK(!printed_secure);
    return 0;
}
