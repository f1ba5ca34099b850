/* SPDX-License-Identifier: MIT */
/* test_archive_plugin.c: a program that knows nothing of hakmem loads and unloads a library that
 * was linked with libhakmem.a: threads that used it end after the dlclose, its blocks stay, and
 * fork still works.
 * ctest: preload-only no-qemu */
#include "override.h"

#include <pthread.h>

static pthread_barrier_t barrier;
static unsigned char *(*work)(size_t count);

static void *run_across_close(void *argument)
{
    (void)argument;
    unsigned char *block = work(300);
    CHECK(block != NULL && block[999] == 0);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    block[999] = 1; /* unloaded or not, memory in use is there */
    return NULL;    /* the thread's hook runs now */
}

static void run_once(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        dprintf(2, "%s\n", dlerror());
    }
    CHECK(library != NULL);
    work = (unsigned char *(*)(size_t))(uintptr_t)dlsym(library, "plugin_archive_work");
    CHECK(work != NULL);
    pthread_t thread;
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, run_across_close, NULL) == 0);
    pthread_barrier_wait(&barrier);
    CHECK(dlclose(library) == 0);
    pthread_barrier_wait(&barrier);
    CHECK(pthread_join(thread, NULL) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        give_back(get_memory(1000));
        _exit(0);
    }
    wait_for_success(child, "child after the dlclose");
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "run") == 0) {
        CHECK(find_server() == SERVED_BY_OTHER);
        char path[TEST_PATH_SIZE];
        plugin_path("archive", path);
        for (int i = 0; i < 20; i++) {
            run_once(path);
        }
        return 0;
    }
    prove_preloaded();
    char self[TEST_PATH_SIZE];
    own_path(self);
    CHECK(unsetenv("LD_PRELOAD") == 0);
    execl(self, self, "run", (char *)NULL);
    return 126;
}
