/* SPDX-License-Identifier: MIT */
/* test_program_options.c: the string hakmem_options of a program: good and bad settings in it, and
 * that the environment overrides it, and it overrides the file. The program starts itself with
 * other environments.
 *
 * ctest: exports no-qemu
 */
#include "override.h"

#include "hakmem/control.h"

const char hakmem_options[] = "purge_delay_ms=345, HAKMEM_BIN_BYTES=64k\n"
                              "profile=small,,cache_bytes=much,nonsense,config_file=/etc/passwd";

/* hakmem's functions: a preloaded library's are found by name. */
typedef int get_function(const char *name, char *value, size_t size);

static void show(const char *name)
{
    char value[64] = "";
    get_function *get = (get_function *)(uintptr_t)dlsym(RTLD_DEFAULT, "hak_option_get");
    CHECK(get != NULL && get(name, value, sizeof value) == 0);
    dprintf(2, "%s=%s\n", name, value);
}

/* What the program, started anew with one variable more, writes to standard error. */
static void run_with(const char *name, const char *value, char *text, size_t size)
{
    int channel[2];
    size_t length = 0;
    CHECK(pipe(channel) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(setenv(name, value, 1) == 0 && dup2(channel[1], 2) == 2);
        close(channel[0]);
        close(channel[1]);
        execl("/proc/self/exe", "test_program_options", "show", (char *)NULL);
        _exit(126);
    }
    close(channel[1]);
    for (ssize_t got; (got = read(channel[0], text + length, size - 1 - length)) > 0;) {
        length += (size_t)got;
    }
    text[length] = '\0';
    close(channel[0]);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void expect(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        dprintf(2, "no <%s> in <%s>\n", part, text);
        FAIL("a line is missing");
    }
}

int main(int argc, char **argv)
{
    char text[4096];
    if (argc > 1 && strcmp(argv[1], "show") == 0) {
        give_back(get_memory(100));
        show("purge_delay_ms");
        show("bin_bytes");
        show("profile");
        show("limit");
        return 0;
    }
    prove_served();
    run_with("TEST_NOTHING", "1", text, sizeof text);
    expect(text, "purge_delay_ms=345\nbin_bytes=64k\nprofile=small\nlimit=never\n");
    expect(text, "hakmem: hakmem_options: cache_bytes=much ignored: must be a number of bytes");
    expect(text, "hakmem: hakmem_options: nonsense ignored: it is not of the form NAME=VALUE\n");
    expect(text, "hakmem: hakmem_options: config_file=/etc/passwd ignored: only the environment");
    run_with("HAKMEM_PURGE_DELAY_MS", "12", text, sizeof text);
    expect(text, "purge_delay_ms=12\nbin_bytes=64k\nprofile=small\n");
    run_with("HAKMEM_PROFILE", "fast", text, sizeof text);
    expect(text, "purge_delay_ms=345\nbin_bytes=64k\nprofile=fast\n");

    char file[] = "/tmp/test_program_options_XXXXXX";
    int descriptor = mkstemp(file);
    CHECK(descriptor >= 0 && write(descriptor, "limit=5t\nbin_bytes=8k\n", 22) == 22);
    CHECK(close(descriptor) == 0);
    run_with("HAKMEM_CONFIG_FILE", file, text, sizeof text);
    CHECK(unlink(file) == 0);
    expect(text, "purge_delay_ms=345\nbin_bytes=64k\nprofile=small\nlimit=5t\n");
    return 0;
}
