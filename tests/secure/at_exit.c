/* SPDX-License-Identifier: MIT */
/* at_exit.c: the secure form, preloaded, looks at blocks that nobody freed when the program exits,
 * and at freed ones that rest; and it reports nothing else. */
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>

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

static void overflow_small(void)
{
    make(40)[40] = 'n';
}

static void overflow_large(void)
{
    make(200001)[200001] = 'n';
}

static void before_large(void)
{
    make(200000)[-1] = 'n';
}

static void write_resting(void)
{
    char *block = make(100);
    free(hide(block));
    ((char *)hide(block))[50] = 'u';
}

static void overflow_in_child(void)
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

static void use_everything(void)
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

static void protect_pages(void)
{
    char *block = hide(memalign(4096, 8192)), *large = hide(memalign(4096, 300001));
    mprotect(block, 8192, PROT_NONE);
    mprotect(large, 303104, PROT_NONE);
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

static void run_beside_thread(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_thread, NULL) != 0) {
        exit(2);
    }
    use_everything();
}

static void fork_beside_thread(void)
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

static void exit_in_handler(void)
{
    signal(SIGALRM, end_now);
    ualarm(20000, 0);
    for (;;) {
        for (size_t i = 0; i < 50; i++) {
            free(realloc(make(i * 20), i * 20 + 5));
        }
    }
}

static const struct child_case cases[] = {
    {overflow_small, "overflow"},    {overflow_large, "overflow"},
    {before_large, "underflow"},     {write_resting, "use after free"},
    {overflow_in_child, "overflow"}, {use_everything, NULL},
    {protect_pages, NULL},           {run_beside_thread, NULL},
    {fork_beside_thread, NULL},      {exit_in_handler, NULL}};

static void run_to_exit(const void *argument)
{
    printf("printed"); /* not written before the exit */
    run_case(argument);
    exit(0);
}

int main(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct child child = run_child(run_to_exit, &cases[i]);
        require_case(i, &child, cases[i].report, "printed");
    }
    return 0;
}
