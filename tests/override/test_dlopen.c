/* SPDX-License-Identifier: MIT */
/* test_dlopen.c: a program that was not started on hakmem loads it with dlopen and uses its own
 * names from many threads. The C library keeps malloc; threads that end and a dlclose while memory
 * is in use crash nothing (mimalloc #147, #809); the loader finds room for its thread-local data
 * although another library was greedy (jemalloc #937, #1237).
 * ctest: preload-only no-qemu */
#include "override.h"

#include <link.h>
#include <pthread.h>
#include <stdatomic.h>

enum { THREADS_COUNT = 8, BLOCKS_COUNT = 300 };

static void *(*hak_malloc_found)(size_t size);
static void *(*hak_realloc_found)(void *pointer, size_t size);
static void (*hak_free_found)(void *pointer);
static size_t (*hak_usable_size_found)(const void *pointer);
static bool (*hak_owns_found)(const void *pointer);

static void *find(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (found == NULL) {
        dprintf(2, "%s is not in the library\n", name);
    }
    CHECK(found != NULL);
    return found;
}

static void find_names(void *library)
{
    hak_malloc_found = (void *(*)(size_t))(uintptr_t)find(library, "hak_malloc");
    hak_realloc_found = (void *(*)(void *, size_t))(uintptr_t)find(library, "hak_realloc");
    hak_free_found = (void (*)(void *))(uintptr_t)find(library, "hak_free");
    hak_usable_size_found = (size_t(*)(const void *))(uintptr_t)find(library, "hak_usable_size");
    hak_owns_found = (bool (*)(const void *))(uintptr_t)find(library, "hak_owns");
    CHECK(find(library, "hak_version") != NULL);
}

/* Checks every byte of a block that another thread filled. */
static void check_and_free(unsigned char *block, size_t size, int value)
{
    for (size_t i = 0; i < size; i++) {
        CHECK_EQUAL(block[i], value);
    }
    hak_free_found(block);
}

static _Atomic(unsigned char *) handed_over[BLOCKS_COUNT];

static size_t block_size(size_t index)
{
    return index % 50 == 0 ? index * 10000 + 1 : index * 17 + 1;
}

static void *run_thread(void *argument)
{
    (void)argument;
    for (size_t round = 0; round < 5; round++) {
        for (size_t i = 0; i < BLOCKS_COUNT; i++) {
            size_t size = block_size(i);
            unsigned char *block = hak_malloc_found(opaque_size(size / 2));
            CHECK(block != NULL && hak_owns_found(block));
            block = hak_realloc_found(block, opaque_size(size));
            CHECK(block != NULL && hak_usable_size_found(block) >= size);
            memset(block, (int)(i % 256), size);
            block = atomic_exchange(&handed_over[i], block);
            if (block != NULL) {
                check_and_free(block, size, (int)(i % 256));
            }
            give_back(get_memory(size)); /* the C library's, side by side */
        }
    }
    return NULL;
}

static void run_threads(void)
{
    pthread_t threads[THREADS_COUNT];
    for (size_t i = 0; i < THREADS_COUNT; i++) {
        CHECK(pthread_create(&threads[i], NULL, run_thread, NULL) == 0);
    }
    for (size_t i = 0; i < THREADS_COUNT; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

/* A thread that used the library, outlives the dlclose and ends after it. */
static pthread_barrier_t barrier;

static void *run_across_close(void *argument)
{
    (void)argument;
    void *block = hak_malloc_found(1000);
    CHECK(block != NULL);
    hak_free_found(block);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return NULL; /* its thread-exit hook runs now */
}

static int note_tls_size(struct dl_phdr_info *info, size_t size, void *result)
{
    (void)size;
    for (size_t i = 0; is_hakmem_path(info->dlpi_name) && i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_TLS) {
            *(size_t *)result = info->dlpi_phdr[i].p_memsz;
        }
    }
    return 0;
}

static void run(const char *path)
{
    char greedy[TEST_PATH_SIZE];
    plugin_path("tls", greedy);
    void *plugin = dlopen(greedy, RTLD_NOW);
    if (plugin == NULL) {
        dprintf(2, "%s\n", dlerror());
    }
    CHECK(plugin != NULL);
    CHECK(((char *(*)(void))(uintptr_t)find(plugin, "plugin_tls_touch"))() != NULL);

    CHECK(find_server() == SERVED_BY_OTHER);
    void *early = get_memory(1000); /* before, freed after */
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        dprintf(2, "%s\n", dlerror());
    }
    CHECK(library != NULL);
    size_t tls_size = 0;
    dl_iterate_phdr(note_tls_size, &tls_size);
    CHECK(tls_size <= 128);
    CHECK(!is_hakmem_path(owner_of_address(dlsym(RTLD_DEFAULT, "malloc"))));
    find_names(library);
    CHECK(!hak_owns_found(early));
    run_threads();

    /* Closed with blocks in use and a thread that has still to end. */
    pthread_t thread;
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, run_across_close, NULL) == 0);
    pthread_barrier_wait(&barrier);
    CHECK(dlclose(library) == 0);
    pthread_barrier_wait(&barrier);
    CHECK(pthread_join(thread, NULL) == 0);
    give_back(early);

    /* Loaded again: the same library, its blocks still valid. */
    library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    CHECK(library != NULL);
    find_names(library);
    run_threads();
    for (size_t i = 0; i < BLOCKS_COUNT; i++) {
        check_and_free(handed_over[i], block_size(i), (int)(i % 256));
    }
    CHECK(dlclose(library) == 0);
    CHECK(dlclose(plugin) == 0);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "dlopen") == 0) {
        run(argv[2]);
        return 0;
    }
    /* ctest preloads it: that tells where it is. */
    prove_preloaded();
    char self[TEST_PATH_SIZE];
    own_path(self);
    const char *path = preloaded_library_path();
    CHECK(path != NULL || any_server_will_do());
    CHECK(unsetenv("LD_PRELOAD") == 0);
    execl(self, self, "dlopen", path, (char *)NULL);
    return 126;
}
