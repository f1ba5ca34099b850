/* SPDX-License-Identifier: MIT */
/* test_overcommit.c: vm.overcommit_memory = 2, where every private writable mapping counts, touched
 * or not.
 *
 * The mode is the whole machine's: the test runs only when HAKMEM_TEST_OVERCOMMIT is 1 and it may
 * write the file. A guardian process puts the old mode back when this one is gone, however it ends.
 */
#include "exhaust.h"

#ifndef OVERCOMMIT_FILE
#define OVERCOMMIT_FILE "/proc/sys/vm/overcommit_memory"
#endif

static bool mode_write(const char *mode)
{
    int descriptor = open(OVERCOMMIT_FILE, O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (descriptor < 0) {
        return false;
    }
    bool written = write(descriptor, mode, strlen(mode)) == (ssize_t)strlen(mode);
    close(descriptor);
    return written;
}

/* Waits for the end of the pipe, which comes with the end of the test process; then restores.
 * Returns the test's end of the pipe and sets `*pid`. */
static int guardian_start(const char *old_mode, pid_t *pid)
{
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    *pid = fork();
    REQUIRE(*pid >= 0);
    if (*pid == 0) {
        char byte;
        setsid(); /* a ^C or a group kill of the tests does not reach it */
        close(ends[1]);
        while (read(ends[0], &byte, 1) < 0 && errno == EINTR) {
        }
        _exit(mode_write(old_mode) ? 0 : 1);
    }
    close(ends[0]);
    return ends[1];
}

static void careful_mode(void *argument)
{
    struct node *head = NULL;
    size_t before = support_proc_bytes("/proc/self/status", "\nVmData:");
    void *first = hak_malloc(100);
    REQUIRE(first != NULL);
    /* what counts against the machine: a heap and a superslab, not a window */
    REQUIRE_SIZE(support_proc_bytes("/proc/self/status", "\nVmData:"), <=, before + 32 * MIB);
    for (size_t i = 0; i < 20000; i++) {
        struct node *node = hak_malloc(16 + i % 5000);
        REQUIRE(node != NULL);
        node->next = head;
        head = node;
    }
    free_memory(&head);
    for (size_t i = 0; i < COUNT_OF(tier_sizes); i++) {
        char *block = hak_calloc(1, tier_sizes[i]);
        REQUIRE(block != NULL);
        REQUIRE(nonzero_offset(block, tier_sizes[i]) == SIZE_MAX);
        block = hak_realloc(block, tier_sizes[i] * 3 + 1);
        REQUIRE(block != NULL);
        hak_free(block);
    }
    hak_free(first);
    size_t commit_limit = support_proc_bytes("/proc/meminfo", "\nCommitLimit:");
    errno = 0; /* more than the machine may ever commit: refused at once, not killed later */
    REQUIRE(hide(hak_malloc(commit_limit + GIB)) == NULL && errno == ENOMEM);
    hak_trim(0);
}

TEST(overcommit_never)
{
    char old_mode[16];
    const char *wanted = getenv("HAKMEM_TEST_OVERCOMMIT");
    SKIP_IF(wanted == NULL || strcmp(wanted, "1") != 0 || SUPPORT_SANITIZED);
    REQUIRE(support_read_file(OVERCOMMIT_FILE, old_mode, sizeof old_mode) > 0);
    pid_t guardian;
    struct child_end end;
    int pipe_end = guardian_start(old_mode, &guardian);
    bool changed = mode_write("2\n");
    if (changed) {
        child_exec("careful", NULL, NULL, &end);
    }
    close(pipe_end);
    int status;
    REQUIRE(waitpid(guardian, &status, 0) == guardian && status == 0);
    if (!changed) {
        print_message("may not write %s\n", OVERCOMMIT_FILE);
        skip();
    }
    REQUIRE_EXIT(&end, NULL);
}

int main(int count, char **arguments)
{
    const struct child_case cases[] = {{"careful", careful_mode, NULL}};
    child_main(count, arguments, cases, COUNT_OF(cases));
    return tests_run(NULL, NULL);
}
