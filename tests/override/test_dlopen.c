/* SPDX-License-Identifier: MIT */
/* test_dlopen.c: a program that was not started on hakmem loads and closes it, and a library that
 * was linked with libhakmem.a, 1,000 times, and uses their own names. The C library keeps malloc.
 * hakmem refuses to be unloaded rather than crash in a thread's exit hook (mimalloc #147, #809):
 * threads that used it end after the dlclose, and its blocks stay valid. Each round leaves nothing:
 * no mapping, no thread-specific key, no memory. The loader finds room for its thread-local data
 * although another library was greedy (jemalloc #937, #1237).
 *
 * ctest: preload-only no-qemu
 */
#include "override.h"

#include <link.h>
#include <stdatomic.h>

enum { ROUNDS_COUNT = 1000, WARM_UP_COUNT = 100, THREAD_EVERY = 10 };
enum { THREADS_COUNT = 8, BLOCKS_COUNT = 300 };

typedef unsigned char *work_function(size_t count);

static void *(*get)(size_t size);
static void *(*resize)(void *pointer, size_t size);
static void (*release)(void *pointer);
static bool (*owns)(const void *pointer);
static work_function *work;

static void *load(const char *path)
{
    return loaded(dlopen(path, RTLD_NOW | RTLD_LOCAL));
}

static void *load_hakmem(const char *path)
{
    void *library = load(path);
    get = (void *(*)(size_t))find_in(library, "hak_malloc");
    resize = (void *(*)(void *, size_t))find_in(library, "hak_realloc");
    release = (void (*)(void *))find_in(library, "hak_free");
    owns = (bool (*)(const void *))find_in(library, "hak_owns");
    return library;
}

/* --- many threads, beside the C library's malloc --- */

static _Atomic(unsigned char *) handed_over[BLOCKS_COUNT];

static size_t block_size(size_t index)
{
    return index % 50 == 0 ? index * 10000 + 1 : index * 17 + 1;
}

/* Checks every byte of a block that another thread filled. */
static void check_and_free(unsigned char *block, size_t index)
{
    for (size_t i = 0; i < block_size(index); i++) {
        CHECK_EQUAL(block[i], index % 256);
    }
    release(block);
}

static void *hand_over(void *argument)
{
    for (size_t i = 0; i < 5 * BLOCKS_COUNT; i++) {
        size_t index = i % BLOCKS_COUNT, size = block_size(index);
        unsigned char *block = get(opaque_size(size / 2));
        CHECK(block != NULL && owns(block));
        block = resize(block, opaque_size(size));
        CHECK(block != NULL);
        memset(block, (int)(index % 256), size);
        block = atomic_exchange(&handed_over[index], block);
        if (block != NULL) {
            check_and_free(block, index);
        }
        give_back(get_memory(size));
    }
    return argument;
}

static void use_in_threads(void)
{
    pthread_t threads[THREADS_COUNT];
    start_all(threads, THREADS_COUNT, hand_over, NULL);
    join_all(threads, THREADS_COUNT);
}

/* --- rounds --- */

static size_t mappings_count(void)
{
    static char text[1 << 20];
    read_file("/proc/self/maps", text, sizeof text);
    return count_words(text, "\n");
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
    void *library = load_hakmem(path);
    void *plugin = load(archive);
    work = (work_function *)find_in(plugin, "plugin_archive_work");
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

static void run_rounds(const char *path)
{
    char archive[TEST_PATH_SIZE];
    size_t mappings = 0, keys = 0, resident = 0;
    plugin_path("archive", archive);
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    for (size_t round = 0; round < ROUNDS_COUNT; round++) {
        if (round == WARM_UP_COUNT) {
            keys = keys_left();
            mappings = mappings_count();
            resident = resident_bytes();
        }
        run_round(path, archive, round);
    }
    IN_CHILD("child after the last dlclose") {
        use_both();
        give_back(get_memory(1000));
    }
    CHECK_EQUAL(keys_left(), keys);
    CHECK(mappings_count() <= mappings + 16); /* free superslabs leave holes in the heap */
    CHECK(resident_bytes() <= resident + (4 << 20));
}

static int note_tls_size(struct dl_phdr_info *info, size_t size, void *result)
{
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
    size_t tls_size = 0;
    plugin_path("tls", greedy);
    CHECK(*((char *(*)(void))find_in(load(greedy), "plugin_tls_touch"))() != 0);
    CHECK(find_server() == SERVED_BY_OTHER);
    void *early = get_memory(1000); /* before, freed after */
    void *library = load_hakmem(path);
    dl_iterate_phdr(note_tls_size, &tls_size);
    CHECK(tls_size <= 128);
    CHECK(!is_hakmem_path(owner_of_address(dlsym(RTLD_DEFAULT, "malloc"))));
    CHECK(!owns(early));
    give_back(early);
    use_in_threads();
    CHECK(dlclose(library) == 0); /* with blocks in use */
    run_rounds(path);
    library = load_hakmem(path);
    use_in_threads();
    for (size_t i = 0; i < BLOCKS_COUNT; i++) {
        check_and_free(handed_over[i], i);
    }
    CHECK(dlclose(library) == 0);
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
