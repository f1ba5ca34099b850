/* SPDX-License-Identifier: MIT */
/* test_stderr_reused.c: hakmem's messages go to standard error and to no data file or connection
 * that got descriptor 2 after the program closed it.
 *
 * ctest: no-qemu (which writes a line of its own to descriptor 2 when a program aborts) */
#include "override.h"

#include <sys/socket.h>

static char path[] = "/tmp/hakmem_stderr_XXXXXX";

/* A warning, then a fatal report. */
static void say_something(void)
{
    static char foreign[64];
    give_back(foreign + 16);
    void *volatile block = get_memory(3000000);
    void *again = block;
    give_back(block);
    give_back(again);
    _exit(0);
}

enum change { CLOSED_AND_REUSED, SOCKET, PIPE, LOG_FOR_BOTH, UNCHANGED, CHANGES };

/* Bytes that a child's messages add where its descriptor 2 leads. */
static size_t said_after(enum change change)
{
    int ends[2], log = open(path, O_RDWR | O_TRUNC);
    CHECK(log >= 0);
    CHECK((change == SOCKET ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends)) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        if (change == CLOSED_AND_REUSED) {
            close(2);
            CHECK(dup(log) == 2);
        } else if (change == LOG_FOR_BOTH) {
            CHECK(dup2(log, 1) == 1 && dup2(log, 2) == 2);
        } else if (change != UNCHANGED) {
            CHECK(dup2(ends[1], 2) == 2);
        }
        say_something();
    }
    int status = status_of(child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    close(ends[1]);
    char text[1000];
    ssize_t sent = read(ends[0], text, sizeof text);
    struct stat file;
    CHECK(sent >= 0 && fstat(log, &file) == 0);
    close(ends[0]);
    close(log);
    return (size_t)sent + (size_t)file.st_size;
}

int main(int argc, char **argv)
{
    prove_served();
    if (argc > 2 &&
        strcmp(argv[1], "inherited") == 0) { /* descriptor 2 is the file from the start */
        memcpy(path, argv[2], sizeof path);
        say_something();
    }
    CHECK(mkstemp(path) >= 0);
    CHECK_EQUAL(said_after(CLOSED_AND_REUSED), 0);
    CHECK_EQUAL(said_after(SOCKET), 0);
    CHECK_EQUAL(said_after(UNCHANGED), 0);
    CHECK(said_after(PIPE) > 100);
    CHECK(said_after(LOG_FOR_BOTH) > 100);
    char self[TEST_PATH_SIZE];
    own_path(self);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int log = open(path, O_RDWR | O_TRUNC);
        CHECK(log >= 0 && dup2(log, 2) == 2);
        execl(self, self, "inherited", path, (char *)NULL);
        _exit(126);
    }
    struct stat file;
    (void)status_of(child);
    CHECK(stat(path, &file) == 0 && file.st_size > 100);
    unlink(path);
    return 0;
}
