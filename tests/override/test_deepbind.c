/* SPDX-License-Identifier: MIT */
/* test_deepbind.c: libraries loaded with RTLD_DEEPBIND (PHP and APR load all of theirs so) have the
 * same malloc as everybody else, from their constructors on, and else their own functions.
 * HAKMEM_KEEP_DEEPBIND=1 lets them have the C library's malloc. Where the C library's table cannot
 * be changed they get the program's functions, and one line says so. The loader still searches as
 * for whoever called dlopen. Libraries in name spaces of their own (dlmopen) have another malloc.
 * ctest: preload-only no-qemu exports */
#include "override.h"

#include <link.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

int codec_version(void);

int codec_version(void) /* the library has another one */
{
    return 1;
}

static void *library;

static uintptr_t find(const char *name)
{
    return find_in(library, name);
}

static void load(void)
{
    char path[TEST_PATH_SIZE];
    plugin_path("deepbind", path);
    CHECK(dlopen("no such library", RTLD_NOW | RTLD_DEEPBIND) == NULL && dlerror() != NULL);
    library = loaded(dlopen(path, RTLD_NOW | RTLD_DEEPBIND));
}

static bool is_ours(const void *pointer)
{
    bool (*owns)(const void *) = (bool (*)(const void *))(uintptr_t)dlsym(RTLD_DEFAULT, "hak_owns");
    return owns(pointer);
}

static int plugin_version(void)
{
    return ((int (*)(void))find("plugin_deepbind_version"))();
}

static void exchange(void)
{
    void *(*get)(size_t) = (void *(*)(size_t))find("plugin_deepbind_get");
    void *(*grow)(void *, size_t) = (void *(*)(void *, size_t))find("plugin_deepbind_grow");
    void (*release)(void *) = (void (*)(void *))find("plugin_deepbind_free");
    int (*use_c_library)(void) = (int (*)(void))find("plugin_deepbind_use_c_library");
    size_t (*usable)(void *) = (size_t(*)(void *))find("plugin_deepbind_usable");
    void *(*aligned)(size_t, size_t) = (void *(*)(size_t, size_t))find("plugin_deepbind_aligned");
    void **made = (void **)find("plugin_deepbind_made");
    for (size_t i = 0; i < 2; i++) {
        CHECK(is_ours(made[i]));
        give_back(made[i]);
        made[i] = get(100);
    }
    for (size_t size = 1; size < 10000000; size = size * 3 + 1) {
        void *theirs = get(size);
        CHECK(is_ours(theirs));
        give_back(realloc(theirs, 2 * size));
        void *ours = grow(get_memory(size), 2 * size);
        CHECK(is_ours(ours) && usable(ours) >= 2 * size);
        release(ours);
        theirs = aligned(4096, size);
        CHECK(is_ours(theirs) && (uintptr_t)theirs % 4096 == 0);
        give_back(theirs);
    }
    CHECK_EQUAL(use_c_library(), 0);
}

/* The page of the C library's table that was changed is read-only again. */
static void check_closed(void)
{
    Dl_info info;
    void *symbol = NULL;
    void *known = dlsym(RTLD_DEFAULT, "gnu_get_libc_version");
    char line[TEST_PATH_SIZE];
    CHECK(dladdr1(known, &info, &symbol, RTLD_DL_SYMENT) != 0 && symbol != NULL);
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    const char *libc = strrchr(info.dli_fname, '/');
    size_t seen = 0;
    while (fgets(line, sizeof line, maps) != NULL) {
        uintptr_t from = strtoul(line, NULL, 16);
        uintptr_t to = strtoul(strchr(line, '-') + 1, NULL, 16);
        /* what lies before the first page of data is not writable */
        if (strstr(line, libc) != NULL && from <= (uintptr_t)known) {
            CHECK(strchr(line, ' ')[2] == '-');
            seen += from <= (uintptr_t)symbol && (uintptr_t)symbol < to;
        }
    }
    CHECK_EQUAL(seen, 1);
    fclose(maps);
}

static void run_shared(void)
{
    load();
    CHECK_EQUAL(codec_version(), 1);
    CHECK_EQUAL(plugin_version(), 2);
    exchange();
    /* by a handle, as interpreters call functions */
    void (*release)(void *) = (void (*)(void *))find("free");
    release(strdup("a string"));
    check_closed();
}

static void run_with_their_malloc(void)
{
    load();
    void *(*get)(size_t) = (void *(*)(size_t))find("plugin_deepbind_get");
    void (*release)(void *) = (void (*)(void *))find("plugin_deepbind_free");
    void *theirs = get(1000);
    CHECK(theirs != NULL && !is_ours(theirs));
    release(theirs);
    CHECK_EQUAL(plugin_version(), 2);
}

/* tests/override is in the plugin's RUNPATH, not in the program's. */
static void run_and_search(void)
{
    run_shared();
    void *(*load_neighbour)(const char *) = (void *(*)(const char *))find("plugin_deepbind_load");
    CHECK(dlopen("plugin_tls.so", RTLD_NOW) == NULL);
    CHECK(dlclose(loaded(load_neighbour("plugin_tls.so"))) == 0);
}

static void *load_in_thread(void *argument)
{
    char path[TEST_PATH_SIZE];
    plugin_path("deepbind", path);
    pthread_barrier_wait(argument);
    CHECK(dlopen(path, RTLD_LAZY | RTLD_DEEPBIND) != NULL);
    return NULL;
}

static void run_threads(void)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    pthread_barrier_t barrier;
    CHECK(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
    start_all(threads, THREADS, load_in_thread, &barrier);
    join_all(threads, THREADS);
    run_shared();
}

/* From here on no page becomes writable. */
static void forbid_writable_pages(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_WRITE, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        _exit(TEST_SKIPPED);
    }
}

static void run_refused(void)
{
    int ends[2];
    char said[1000];
    int error_file = dup(2);
    get_memory(1);
    CHECK(pipe(ends) == 0 && dup2(ends[1], 2) == 2);
    forbid_writable_pages();
    load();
    load();
    CHECK(dup2(error_file, 2) == 2 && close(ends[1]) == 0);
    ssize_t length = read(ends[0], said, sizeof said - 1);
    CHECK(length > 0);
    said[length] = '\0';
    const char *name = strstr(said, "HAKMEM_KEEP_DEEPBIND=1");
    CHECK(name != NULL && strstr(said, "RTLD_DEEPBIND is left out") != NULL);
    CHECK(strchr(name, '\n') == said + length - 1);
    CHECK_EQUAL(plugin_version(), 1);
    exchange();
}

/* --- name spaces of their own --- */

/* As debuggers and auditors load libraries: each has a C library of its own, with its malloc,
 * beside the program's, which goes on being ours. One that has a hakmem inside, too, lives beside
 * the first. Threads work in all of them, fork in ours. */
enum { SPACES = 3 };

static struct space {
    void *(*get)(size_t size);
    void *(*grow)(void *pointer, size_t size);
    void (*release)(void *pointer);
    int (*use_c_library)(void);
} spaces[SPACES];
static void *(*work_inside)(size_t count);

static void *load_apart(const char *name)
{
    char path[TEST_PATH_SIZE];
    plugin_path(name, path);
    return loaded(dlmopen(LM_ID_NEWLM, path, RTLD_NOW | RTLD_LOCAL));
}

static void *use_spaces(void *argument)
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

static void run_spaces(void)
{
    for (size_t i = 0; i < SPACES; i++) {
        library = load_apart("deepbind");
        spaces[i].get = (void *(*)(size_t))find("plugin_deepbind_get");
        spaces[i].grow = (void *(*)(void *, size_t))find("plugin_deepbind_grow");
        spaces[i].release = (void (*)(void *))find("plugin_deepbind_free");
        spaces[i].use_c_library = (int (*)(void))find("plugin_deepbind_use_c_library");
    }
    work_inside = (void *(*)(size_t))find_in(load_apart("archive"), "plugin_archive_work");
    for (int round = 0; round < 10; round++) {
        pthread_t threads[2];
        start_all(threads, 2, use_spaces, NULL);
        IN_CHILD("child") {
            /* the C library of another name space knows of no fork: its locks may be held */
            give_back(get_memory(1000));
        }
        join_all(threads, 2);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {{"now", run_and_search},
                 {"threads", run_threads}, /* lazily */
                 {"refused", run_refused},
                 {"spaces", run_spaces},
                 {"keep", run_with_their_malloc}};
    static const char *const keep[] = {"HAKMEM_KEEP_DEEPBIND", "1", NULL};
    prove_preloaded();
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        if (argc == 1) {
            run_again(parts[i].name, parts[i].run == run_with_their_malloc ? keep : keep + 2);
        } else if (strcmp(argv[1], parts[i].name) == 0) {
            parts[i].run();
        }
    }
    return 0;
}
