/* SPDX-License-Identifier: MIT */
/* test_program_options.cc: the string hak_options of a program, which the header gives the name
 * that the library looks for, in C++ too: good and bad settings in it, and that the environment
 * overrides it, and it overrides the file. The program starts itself with other environments.
 *
 * ctest: exports no-qemu
 */
#include "override.h"

#include "hakmem/control.h"

const char hak_options[] = "purge_delay_ms=345, HAKMEM_BIN_BYTES=64k\n"
                           "profile=small,,cache_bytes=much,nonsense,config_file=/etc/passwd";

/* hakmem's functions: a preloaded library's are found by name. */
typedef int get_function(const char *name, char *value, size_t size);

static void show(const char *name)
{
    char value[64] = "";
    auto get = reinterpret_cast<get_function *>(dlsym(RTLD_DEFAULT, "hak_option_get"));
    CHECK(get != nullptr && get(name, value, sizeof value) == 0);
    dprintf(2, "%s=%s\n", name, value);
}

/* The program, started anew with one variable more, writes `part` to standard error. */
static void expect(const char *name, const char *value, const char *part)
{
    char text[4096];
    const char *const variables[] = {name, value, nullptr};
    struct again program = start_again("show", AGAIN_ERRORS, variables);
    read_to_end(program.ends[2], text, sizeof text);
    wait_for_success(program.process, value);
    if (strstr(text, part) == nullptr) {
        dprintf(2, "no <%s> in <%s>\n", part, text);
        FAIL("a line is missing");
    }
}

int main(int argc, char **)
{
    prove_served();
    if (argc > 1) {
        const char *const names[] = {"purge_delay_ms", "bin_bytes", "profile", "limit"};
        for (const char *name : names) {
            show(name);
        }
        return 0;
    }
    const char *const parts[] = {
        "purge_delay_ms=345\nbin_bytes=64k\nprofile=small\nlimit=never\n",
        "hakmem: hak_options: cache_bytes=much ignored: must be a number of bytes",
        "hakmem: hak_options: nonsense ignored: it is not of the form NAME=VALUE\n",
        "hakmem: hak_options: config_file=/etc/passwd ignored: only the environment"};
    for (const char *part : parts) {
        expect("TEST_NOTHING", "1", part);
    }
    expect("HAKMEM_PURGE_DELAY_MS", "12", "purge_delay_ms=12\nbin_bytes=64k\nprofile=small\n");
    expect("HAKMEM_PROFILE", "fast", "purge_delay_ms=345\nbin_bytes=64k\nprofile=fast\n");
    char file[] = "/tmp/test_program_options_XXXXXX";
    int descriptor = mkstemp(file);
    CHECK(descriptor >= 0 && write(descriptor, "limit=5t\nbin_bytes=8k\n", 22) == 22);
    CHECK(close(descriptor) == 0);
    expect("HAKMEM_CONFIG_FILE", file,
           "purge_delay_ms=345\nbin_bytes=64k\nprofile=small\nlimit=5t\n");
    CHECK(unlink(file) == 0);
    return 0;
}
