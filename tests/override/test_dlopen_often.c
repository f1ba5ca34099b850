/* SPDX-License-Identifier: MIT */
/* test_dlopen_often.c: a library with an allocator in it is loaded and closed 1,000 times, hakmem
 * itself and one that was linked with libhakmem.a, by a program that was not started on it. It
 * refuses to be unloaded rather than crash in a thread's exit hook (mimalloc #147, #809), and each
 * round leaves nothing: no mapping, no thread-specific key, no memory. Threads that used it end
 * after the dlclose, and fork still works.
 *
 * ctest: preload-only no-qemu
 */
#include "override.h"

#include <limits.h>
#include <pthread.h>

enum { ROUNDS_COUNT = 1000, WARM_UP_COUNT = 100, THREAD_EVERY = 10 };

typedef unsigned char *work_function(size_t count);

static void *(*get)(size_t size);
static void (*release)(void *pointer);
static work_function *work;

static void *find(void *library, const char *name)
{
    void *found = dlsym(library, name);
    CHECK(found != NULL);
    return found;
}

static void *load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        dprintf(2, "%s\n", dlerror());
    }
    CHECK(library != NULL);
    return library;
}

static size_t mappings_count(void)
{
    char buffer[4096];
    size_t count = 0;
    int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
    for (ssize_t length; (length = read(file, buffer, sizeof buffer)) > 0;) {
        for (ssize_t i = 0; i < length; i++) {
            count += buffer[i] == '\n';
        }
    }
    close(file);
    return count;
}

/* Keys that are left: each has a place in a table of the C library's. */
static size_t keys_left(void)
{
    static pthread_key_t keys[PTHREAD_KEYS_MAX];
    size_t count = 0;
    while (count < PTHREAD_KEYS_MAX && pthread_key_create(&keys[count], NULL) == 0) {
        count++;
    }
    for (size_t i = 0; i < count; i++) {
        CHECK(pthread_key_delete(keys[i]) == 0);
    }
    return count;
}

static void use_both(void)
{
    release(get(1000));
    release(get(300000));
}

static pthread_barrier_t barrier;

/* Loaded or not, memory in use is there; the end of the thread runs its hook. */
static void *use_across_close(void *argument)
{
    use_both();
    unsigned char *block = work(300);
    CHECK(block != NULL && block[999] == 0);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    block[999] = 1;
    return argument;
}

static void run_round(const char *path, const char *archive, size_t round)
{
    void *library = load(path);
    void *plugin = load(archive);
    get = (void *(*)(size_t))(uintptr_t)find(library, "hak_malloc");
    release = (void (*)(void *))(uintptr_t)find(library, "hak_free");
    work = (work_function *)(uintptr_t)find(plugin, "plugin_archive_work");
    use_both();
    CHECK(work(20) != NULL);
    pthread_t thread;
    bool with_thread = round % THREAD_EVERY == 0;
    if (with_thread) {
        CHECK(pthread_create(&thread, NULL, use_across_close, NULL) == 0);
        pthread_barrier_wait(&barrier);
    }
    CHECK(dlclose(plugin) == 0);
    CHECK(dlclose(library) == 0);
    if (with_thread) {
        pthread_barrier_wait(&barrier);
        CHECK(pthread_join(thread, NULL) == 0);
    }
}

static void run(const char *path)
{
    char archive[TEST_PATH_SIZE];
    size_t mappings = 0, keys = 0, resident = 0;
    plugin_path("archive", archive);
    CHECK(find_server() == SERVED_BY_OTHER);
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    for (size_t round = 0; round < ROUNDS_COUNT; round++) {
        if (round == WARM_UP_COUNT) {
            keys = keys_left();
            mappings = mappings_count();
            resident = resident_bytes();
        }
        run_round(path, archive, round);
    }
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        use_both();
        give_back(get_memory(1000));
        _exit(0);
    }
    wait_for_success(child, "child after the last dlclose");
    CHECK_EQUAL(keys_left(), keys);
    CHECK(mappings_count() <= mappings + 3);
    CHECK(resident_bytes() <= resident + (4 << 20));
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "run") == 0) {
        run(argv[2]);
        return 0;
    }
    prove_preloaded(); /* ctest preloads it: that tells where it is */
    char self[TEST_PATH_SIZE];
    own_path(self);
    const char *path = preloaded_library_path();
    CHECK(unsetenv("LD_PRELOAD") == 0);
    execl(self, self, "run", path, (char *)NULL);
    return 126;
}
