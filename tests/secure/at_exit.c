/* SPDX-License-Identifier: MIT */
/* at_exit.c: the secure form, preloaded, looks at blocks that nobody freed when the program exits,
 * and at freed ones that rest; and it reports nothing else. */

#include "child.h"

static char *make(size_t size)
{
    char *block = hide(malloc(size));
    if (block == NULL) {
        exit(2);
    }
    return hide(memset(block, 'm', size));
}

/* --- what is found --- */

BUG_CASE(overflow_small, "overflow", make(40)[40] = 'n')
BUG_CASE(overflow_large, "overflow", make(200001)[200001] = 'n')
BUG_CASE(before_large, "underflow", make(200000)[-1] = 'n')

CASE(write_in_quarantine, "use after free")
{
    char *block = make(100);
    free(hide(block));
    ((char *)hide(block))[50] = 'u';
}

CASE(overflow_in_child, "overflow")
{
    pid_t pid = fork();
    int status;
    if (pid == 0) {
        overflow_small();
        exit(0);
    }
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status)) {
        signal(SIGABRT, SIG_DFL);
        raise(WTERMSIG(status));
    }
}

/* --- what is not --- */

CASE(use_everything, NULL)
{
    for (size_t i = 0; i < 20000; i++) {
        char *block = make(i % 500);
        if (i % 3 == 0) {
            free(block);
        } else if (i % 3 == 1) {
            block = realloc(block, i % 700 + 1);
            memset(block, 'r', i % 700 + 1);
        }
    }
    for (size_t size = 1000; size < 3000000; size += size / 3) {
        make(size);
        free(make(size + 1));
        memset(hide(memalign(4096, size)), 1, size);
    }
}

CASE(protect_pages, NULL)
{
    char *block = hide(memalign(4096, 8192)), *large = hide(memalign(4096, 300001));
    mprotect(block, 8192, PROT_NONE);
    mprotect(large, 303104, PROT_NONE);
}

/* A child lacks the pages of blocks that the parent shares with a device, to their last page's end.
 */
CASE(child_without_pages, NULL)
{
    char *blocks[64], *large = hide(memalign(4096, 300001));
    for (size_t i = 0; i < 64; i++) {
        blocks[i] = hide(memalign(4096, 4000));
        memset(blocks[i], 'd', 4000);
        if (i % 2 == 0 && madvise(blocks[i], 4096, MADV_DONTFORK) != 0) {
            exit(2);
        }
    }
    int status, wrong = madvise(large, 303104, MADV_DONTFORK);
    if (fork() == 0) {
        for (size_t i = 1; i < 64; i += 2) {
            free(blocks[i]); /* looks at the end of the block before it */
        }
        exit(0);
    }
    wait(&status);
    if (wrong != 0 || status != 0) {
        exit(2);
    }
}

static void *run_thread(void *nothing)
{
    for (;;) {
        for (size_t i = 0; i < 50; i++) {
            free(make(i * 20));
        }
    }
    return nothing;
}

CASE(run_beside_thread, NULL)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_thread, NULL) != 0) {
        exit(2);
    }
    use_everything();
}

CASE(fork_beside_thread, NULL)
{
    run_beside_thread();
    if (fork() == 0) {
        make(100);
        exit(0); /* also with blocks that the thread was freeing */
    }
}

static void end_now(int number)
{
    exit(0);
}

CASE(exit_in_handler, NULL)
{
    signal(SIGALRM, end_now);
    ualarm(20000, 0);
    for (;;) {
        for (size_t i = 0; i < 50; i++) {
            free(realloc(make(i * 20), i * 20 + 5));
        }
    }
}

static void run_to_exit(const void *argument)
{
    printf("printed"); /* not written before the exit */
    run_case(argument);
    exit(0);
}

int main(void)
{
    require_cases(run_to_exit, "printed");
    return 0;
}
