/* SPDX-License-Identifier: MIT */
/* test_small_stack.c: a thread with the smallest stack that pthreads have ends the process by exit,
 * _exit or a signal, and the report is whole. (What malloc and free need: threads/test_stack_use.)
 * ctest: no-qemu */
#include "override.h"

static const char *how_to_end;

static void *end(void *argument)
{
    give_back(get_memory(100000));
    if (strcmp(how_to_end, "exit") == 0) {
        exit(0);
    } else if (strcmp(how_to_end, "_exit") == 0) {
        _exit(0);
    }
    raise(SIGTERM);
    return argument;
}

static void run_thread(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, (size_t)PTHREAD_STACK_MIN) == 0);
    CHECK(pthread_create(&thread, &attributes, end, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

int main(int argc, char **argv)
{
    static const char *ends[] = {"exit", "_exit", "signal"};
    static char report[100000];
    char path[] = "/tmp/small_stack_XXXXXX";
    prove_served();
    if (argc > 1) {
        how_to_end = argv[1];
        run_thread();
    }
    int file = mkstemp(path);
    CHECK(file >= 0 && close(file) == 0);
    for (size_t i = 0; i < COUNT_OF(ends); i++) {
        const char *const variables[] = {
            "HAKMEM_STATS", "json", "HAKMEM_STATS_SIGNAL", "1", "HAKMEM_STATS_FILE", path, NULL};
        int status = status_of(start_again(ends[i], 0, variables).process);
        size_t length = read_file(path, report, sizeof report);
        CHECK(unlink(path) == 0);
        if (status != (strcmp(ends[i], "signal") == 0 ? SIGTERM : 0) || length == 0 ||
            report[length - 1] != '\n') {
            dprintf(2, "%s: status %d, %zu bytes\n", ends[i], status, length);
            FAIL("the thread's end was not as it should be");
        }
    }
    return 0;
}
