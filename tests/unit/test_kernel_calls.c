/* SPDX-License-Identifier: MIT */
/* test_kernel_calls.c: the library enters the kernel only by functions that tests/fault wraps, and
 * by system calls that tests/fault/fault.h knows. */
#include "../support.h"

/* No way into the kernel, or only by wrapped functions: a new name belongs to one of the lists. */
static const char *const harmless[] = {
    "__errno_location",
    "madvise", /* fault.h has its own */
    "fputs",
    "fwrite",                 /* malloc_info's and malloc_stats', to the program's file */
    "__libc_single_threaded", /* a variable, of glibc's alone, and two others */
    "__rseq_offset",
    "__rseq_size",
    "hakmem_options", /* a constant of the program */
    "memcpy",
    "memmove",
    "memset",
    "memchr",
    "memcmp",
    "bcmp", /* clang's, for memcmp */
    "strchr",
    "strchrnul",
    "strlen",
    "strncmp",
    "strrchr",
    "strstr",
    "pthread_key_create",
    "pthread_setspecific",
    "pthread_atfork",
    "at_quick_exit", /* needs no memory for the first 32 functions */
    /* for HAKMEM_STATS_SIGNAL; override/stats_signal runs it */
    "sigaction",
    "sigemptyset",
    "sigaddset",
    "raise",
    /* the profiler's unwinder, which it looks for outside malloc */
    "dlopen",
    "hak__secure_kinds",   /* weak: this archive has no functions of C++ */
    "__ehdr_start",        /* the linker's */
    "__start_hakmem_text", /* the linker's */
    "__stop_hakmem_text",
    "_Unwind_Backtrace",
    "_Unwind_GetIPInfo",
    "_Unwind_GetCFA",
    "_Unwind_GetGR",
    "_Unwind_Find_FDE",
    /* the scavenger's; override/scavenger runs it, and it is warned of when it cannot be had */
    "pthread_attr_destroy",
    "pthread_attr_init",
    "pthread_attr_setstacksize",
    "pthread_create",
    "pthread_detach",
    "pthread_self",
    "pthread_sigmask",
    "sigfillset",
    "abort",
    "dl_iterate_phdr",
    "dlsym",
    "pthread_setcancelstate",
    "environ",
    "getauxval",
    "__tls_get_addr",
    "_GLOBAL_OFFSET_TABLE_",
};
static const char *const wrapped[] = {"mmap", "munmap", "mremap", "mincore",
                                      "open", "close",  "syscall"};

static bool list_has(const char *const *list, size_t count, const char *name, bool *seen)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(list[i], name) == 0) {
            seen[i] = true;
            return true;
        }
    }
    return false;
}

TEST(no_call_is_new)
{
    char command[1024], name[256];
    bool seen[COUNT_OF(wrapped)] = {false}, ignored[COUNT_OF(harmless)];
    const char *build = getenv("TEST_BUILD");
    size_t defined_count = 0, names = 0;
    static char defined[4096][96];
    SKIP_IF(build == NULL || system("command -v nm >/dev/null") != 0);
    static const char *const wanted[] = {"--defined-only", "--undefined-only"};
    for (size_t i = 0; i < COUNT_OF(wanted); i++) {
        snprintf(command, sizeof command,
                 "nm -A %s %s/libhakmem_api.a | awk '{print $NF}' | sort -u", wanted[i], build);
        FILE *output = popen(command, "r");
        assert_non_null(output);
        while (fgets(name, sizeof name, output) != NULL) {
            name[strcspn(name, "\n")] = '\0';
            if (i == 0) {
                assert_true(defined_count < COUNT_OF(defined) && strlen(name) < 96);
                strcpy(defined[defined_count++], name);
                continue;
            }
            names++;
            bool own = false;
            for (size_t j = 0; j < defined_count && !own; j++) {
                own = strcmp(defined[j], name) == 0;
            }
            bool compilers = strncmp(name, "__aarch64_", 10) == 0 ||
                             strncmp(name, "__popcount", 10) == 0 ||
                             strncmp(name, "__stack_chk", 11) == 0;
            if (!own && !compilers && !list_has(wrapped, COUNT_OF(wrapped), name, seen) &&
                !list_has(harmless, COUNT_OF(harmless), name, ignored)) {
                fail_msg("the library refers to %s: wrap it (cmake/hakmem_tests.cmake, fault.h) or "
                         "say that it is harmless",
                         name);
            }
        }
        assert_int_equal(pclose(output), 0);
    }
    assert_true(names >= COUNT_OF(wrapped));
    for (size_t i = 0; i < COUNT_OF(wrapped); i++) {
        if (!seen[i]) {
            fail_msg("the library does not call %s any more", wrapped[i]);
        }
    }
}

/* syscall() hides which: those named in src/ are those of fault_call_of. */
TEST(no_number_is_new)
{
    static const char *const known[] = {
        "SYS_write",         "SYS_sysinfo",         "SYS_sched_getaffinity",
        "SYS_clock_gettime", "SYS_futex",           "SYS_sched_yield",
        "SYS_getpid",        "SYS_openat",          "SYS_read",
        "SYS_lseek",         "SYS_close",           "SYS_readlinkat",
        "SYS_newfstatat",    "SYS_prctl",           "SYS_close_range",
        "SYS_fcntl",         "SYS_fstat",           "SYS_rt_sigprocmask",
        "SYS_fallocate",     "SYS_unlinkat",        "SYS_madvise",
        "SYS_ftruncate",     "SYS_geteuid",         "SYS_gettid",
        "SYS_tgkill",        "SYS_exit_group",      "SYS_mprotect",
        "SYS_rt_sigpending", "SYS_rt_sigtimedwait", "SYS_process_vm_readv",
        "SYS_pkey_mprotect", "SYS_mlock",           "SYS_mlock2",
        "SYS_munlock",       "SYS_linkat",          "SYS_renameat",
        "SYS_prlimit64",     "SYS_ppoll",           "SYS_ioctl"};
    char command[1024], name[256];
    bool seen[COUNT_OF(known)] = {false};
    const char *root = getenv("TEST_ROOT");
    SKIP_IF(root == NULL);
    snprintf(command, sizeof command, "grep -rhoE '\\b(SYS|__NR)_[a-z0-9_]+' %s/src", root);
    FILE *output = popen(command, "r");
    assert_non_null(output);
    while (fgets(name, sizeof name, output) != NULL) {
        name[strcspn(name, "\n")] = '\0';
        if (!list_has(known, COUNT_OF(known), name, seen)) {
            fail_msg("%s is new: fault.h has to know it", name);
        }
    }
    pclose(output);
    for (size_t i = 0; i < COUNT_OF(known); i++) {
        assert_true(seen[i]);
    }
}

TESTS(NULL)
