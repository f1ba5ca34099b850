/* SPDX-License-Identifier: MIT */
/* test_kernel_calls.c: the library enters the kernel only by functions that tests/fault wraps, and
 * by system calls that tests/fault/fault.h knows. */
#include "../support.h"

/* No way into the kernel, or only by wrapped functions: a new name belongs to one of the lists. */
static const char harmless[] =
    " __errno_location memcpy memmove memset memchr memcmp bcmp strchr strchrnul strlen strncmp "
    "strrchr strstr environ getauxval abort __tls_get_addr _GLOBAL_OFFSET_TABLE_ "
    "fputs fwrite "                                     /* malloc_info's, to the program's file */
    "__libc_single_threaded __rseq_offset __rseq_size " /* variables of glibc's */
    "hak_options hakmem_recorder_range "                /* constants of others */
    "hak__secure_kinds hak__secure_kinds_mix "          /* weak: there are no functions of C++ */
    "hak__family_allocate hak__family_free hak__start_refuse " /* weak: nor of the C library */
    "__sanitizer_set_report_path __lsan_init __msan_init __tsan_init " /* weak: does it exist? */
    "_DYNAMIC __ehdr_start __start_hakmem_text __stop_hakmem_text "    /* the linker's */
    "pthread_key_create pthread_setspecific pthread_atfork pthread_setcancelstate "
    "at_quick_exit "                         /* needs no memory for the first 32 functions */
    "sigaction sigemptyset sigaddset raise " /* override/stats_signal runs them */
    "dlopen dlsym dl_iterate_phdr "          /* outside malloc */
    "pthread_attr_destroy pthread_attr_init pthread_attr_setstacksize pthread_create "
    "pthread_detach pthread_self pthread_sigmask sigfillset "; /* override/scavenger runs them */
static const char wrapped[] = " mmap munmap mremap madvise mincore open close syscall ";

static bool has_word(const char *words, const char *word)
{
    char padded[256];
    snprintf(padded, sizeof padded, " %s ", word);
    return strstr(words, padded) != NULL;
}

/* Calls `check` with each line that the shell command writes; how many. */
static size_t each_line(const char *command, void (*check)(const char *line))
{
    char line[256];
    size_t count = 0;
    FILE *output = popen(command, "r");
    assert_non_null(output);
    for (; fgets(line, sizeof line, output) != NULL; count++) {
        line[strcspn(line, "\n")] = '\0';
        check(line);
    }
    assert_int_equal(pclose(output), 0);
    return count;
}

static size_t wrapped_count;

static void check_name(const char *name)
{
    bool compilers = strncmp(name, "__aarch64_", 10) == 0 || strncmp(name, "__popcount", 10) == 0 ||
                     strncmp(name, "__stack_chk", 11) == 0;
    wrapped_count += has_word(wrapped, name);
    if (!compilers && !has_word(wrapped, name) && !has_word(harmless, name)) {
        fail_msg("the library refers to %s: wrap it (cmake/hakmem_tests.cmake, fault.h) or say "
                 "that it is harmless",
                 name);
    }
}

TEST(no_call_is_new)
{
    SKIP_IF(getenv("TEST_BUILD") == NULL || system("command -v nm >/dev/null") != 0);
    each_line(
        "names() { nm -A \"$1\" $TEST_BUILD/libhakmem_api.a | awk '{print $NF}' | sort -u; }; "
        "{ names --defined-only; names --defined-only; names --undefined-only; } | sort | "
        "uniq -c | awk '$1 == 1 {print $2}'",
        check_name);
    assert_int_equal(wrapped_count, 8); /* all of them are called */
}

static void check_number(const char *name)
{
    fail_msg("%s is new: fault.h has to know it", name);
}

/* syscall() hides which: those named in src/ are those of fault_call_of. os/bound.h makes some in
 * the place of wrapped functions, in no program of tests/fault. */
TEST(no_number_is_new)
{
    SKIP_IF(getenv("TEST_ROOT") == NULL);
    each_line("grep -rhoE '\\b(SYS|__NR)_[a-z0-9_]+' $TEST_ROOT/src | sort -u | while read name; "
              "do case $name in SYS_exit_group | SYS_m*map) continue ;; esac; grep -q \"{$name,\" "
              "$TEST_ROOT/tests/fault/fault.h || echo $name; done",
              check_number);
}

TESTS(NULL)
