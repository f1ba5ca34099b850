/* test_deepbind.c: libraries loaded with RTLD_DEEPBIND (PHP and APR load all of theirs so) have the
 * same malloc as everybody else; HAKMEM_KEEP_DEEPBIND=1 lets them have the C library's. The loader
 * still searches as for whoever called dlopen.
 * ctest: preload-only no-qemu */
#include "override.h"

static void *library;

static void *find(const char *name)
{
    void *found = dlsym(library, name);
    CHECK(found != NULL);
    return found;
}

static void load(void)
{
    char path[TEST_PATH_SIZE];
    plugin_path("deepbind", path);
    CHECK(dlopen("no such library", RTLD_NOW | RTLD_DEEPBIND) == NULL && dlerror() != NULL);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (library == NULL) {
        dprintf(2, "%s\n", dlerror());
    }
    CHECK(library != NULL);
}

static bool is_ours(const void *pointer)
{
    bool (*owns)(const void *) = (bool (*)(const void *))(uintptr_t)dlsym(RTLD_DEFAULT, "hak_owns");
    return owns(pointer);
}

static void run_with_our_malloc(void)
{
    void *(*get)(size_t) = (void *(*)(size_t))(uintptr_t)find("plugin_deepbind_get");
    void *(*grow)(void *, size_t) =
        (void *(*)(void *, size_t))(uintptr_t)find("plugin_deepbind_grow");
    void (*release)(void *) = (void (*)(void *))(uintptr_t)find("plugin_deepbind_free");
    int (*use_c_library)(void) = (int (*)(void))(uintptr_t)find("plugin_deepbind_use_c_library");
    for (size_t size = 1; size < 10000000; size = size * 3 + 1) {
        void *theirs = get(size);
        CHECK(is_ours(theirs));
        give_back(realloc(theirs, 2 * size));
        void *ours = grow(get_memory(size), 2 * size);
        CHECK(is_ours(ours));
        release(ours);
    }
    CHECK_EQUAL(use_c_library(), 0);
}

static void run_with_their_malloc(void)
{
    void *(*get)(size_t) = (void *(*)(size_t))(uintptr_t)find("plugin_deepbind_get");
    void (*release)(void *) = (void (*)(void *))(uintptr_t)find("plugin_deepbind_free");
    void *theirs = get(1000);
    CHECK(theirs != NULL && !is_ours(theirs));
    release(theirs);
}

/* tests/override is in the plugin's RUNPATH, not in the program's. */
static void run_search(void)
{
    void *(*load_neighbour)(const char *) =
        (void *(*)(const char *))(uintptr_t)find("plugin_deepbind_load");
    CHECK(dlopen("plugin_tls.so", RTLD_NOW) == NULL);
    void *neighbour = load_neighbour("plugin_tls.so");
    if (neighbour == NULL) {
        dprintf(2, "%s\n", dlerror());
    }
    CHECK(neighbour != NULL);
    CHECK(dlclose(neighbour) == 0);
}

int main(int argc, char **argv)
{
    prove_preloaded();
    load();
    if (argc > 1 && strcmp(argv[1], "keep") == 0) {
        run_with_their_malloc();
        return 0;
    }
    run_with_our_malloc();
    run_search();
    char self[TEST_PATH_SIZE];
    own_path(self);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(setenv("HAKMEM_KEEP_DEEPBIND", "1", 1) == 0);
        execl(self, self, "keep", (char *)NULL);
        _exit(126);
    }
    wait_for_success(child, "HAKMEM_KEEP_DEEPBIND=1");
    return 0;
}
