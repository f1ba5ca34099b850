/* SPDX-License-Identifier: MIT */
/* test_dlmopen.c: libraries in name spaces of their own (dlmopen; debuggers' and auditors' way):
 * each has a C library of its own, with its malloc, beside the program's, which goes on being ours.
 * One that has a hakmem inside, too, lives beside the first. Threads work in all of them, fork in
 * ours. ctest: preload-only no-qemu */
#include "override.h"

#include <pthread.h>

enum { SPACES = 3 };

struct space {
    void *(*get)(size_t size);
    void *(*grow)(void *pointer, size_t size);
    void (*release)(void *pointer);
    int (*use_c_library)(void);
};

static struct space spaces[SPACES];
static void *(*work_inside)(size_t count);

static void *load(const char *name)
{
    char path[TEST_PATH_SIZE];
    plugin_path(name, path);
    void *library = dlmopen(LM_ID_NEWLM, path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        dprintf(2, "%s\n", dlerror());
    }
    CHECK(library != NULL);
    return library;
}

static uintptr_t find(void *library, const char *name)
{
    uintptr_t found = (uintptr_t)dlsym(library, name);
    CHECK(found != 0);
    return found;
}

static void load_all(void)
{
    for (size_t i = 0; i < SPACES; i++) {
        void *library = load("deepbind");
        spaces[i].get = (void *(*)(size_t))find(library, "plugin_deepbind_get");
        spaces[i].grow = (void *(*)(void *, size_t))find(library, "plugin_deepbind_grow");
        spaces[i].release = (void (*)(void *))find(library, "plugin_deepbind_free");
        spaces[i].use_c_library = (int (*)(void))find(library, "plugin_deepbind_use_c_library");
    }
    work_inside = (void *(*)(size_t))find(load("archive"), "plugin_archive_work");
}

static bool is_ours(const void *pointer)
{
    bool (*owns)(const void *) = (bool (*)(const void *))(uintptr_t)dlsym(RTLD_DEFAULT, "hak_owns");
    return owns(pointer);
}

static void *use_all(void *argument)
{
    for (size_t size = 1; size < 3000000; size = size * 3 + 1) {
        unsigned char *mine = get_memory(size);
        CHECK(is_ours(mine));
        mine[0] = mine[size - 1] = 1;
        for (size_t i = 0; i < SPACES; i++) {
            unsigned char *theirs = spaces[i].grow(spaces[i].get(size), 2 * size);
            CHECK(theirs != NULL && !is_ours(theirs));
            theirs[0] = theirs[2 * size - 1] = 2;
            CHECK(spaces[i].use_c_library() == 0);
            CHECK(theirs[0] == 2 && theirs[2 * size - 1] == 2);
            spaces[i].release(theirs);
        }
        unsigned char *inside = work_inside(300);
        CHECK(inside != NULL && !is_ours(inside) && inside[999] == 0);
        inside[999] = 3;
        CHECK(mine[0] == 1 && mine[size - 1] == 1);
        give_back(mine);
    }
    return argument;
}

int main(void)
{
    prove_served();
    load_all();
    use_all(NULL);
    for (int round = 0; round < 10; round++) {
        pthread_t threads[2];
        for (size_t i = 0; i < 2; i++) {
            CHECK(pthread_create(&threads[i], NULL, use_all, NULL) == 0);
        }
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(240);
            /* the C library of another name space knows of no fork: its locks may be held */
            give_back(get_memory(1000));
            _exit(0);
        }
        for (size_t i = 0; i < 2; i++) {
            CHECK(pthread_join(threads[i], NULL) == 0);
        }
        wait_for_success(child, "child");
    }
    return 0;
}
