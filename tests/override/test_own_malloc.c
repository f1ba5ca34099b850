/* SPDX-License-Identifier: MIT */
/* test_own_malloc.c: a program that brings its own malloc family. The loader gives it and the whole
 * process that one; a preloaded hakmem must stay out of the way, through threads, fork and exit.
 * ctest: preload-only */
#include "override.h"

#include <stdatomic.h>

/* The own allocator: cuts a static arena into blocks with a header, and never reuses one. */
enum { ARENA_SIZE = 256 << 20, HEADER_SIZE = 16 };
static _Alignas(16) unsigned char arena[ARENA_SIZE];
static atomic_size_t arena_used;
static atomic_size_t frees_count;

static bool is_own(const void *pointer)
{
    return (uintptr_t)pointer - (uintptr_t)arena < ARENA_SIZE;
}

void *malloc(size_t size)
{
    size_t whole = HEADER_SIZE + (size + 15) / 16 * 16;
    size_t start = size < ARENA_SIZE ? atomic_fetch_add(&arena_used, whole) : ARENA_SIZE;
    if (start + whole > ARENA_SIZE || start + whole < whole) {
        errno = ENOMEM;
        return NULL;
    }
    memcpy(arena + start, &size, sizeof size);
    return arena + start + HEADER_SIZE;
}

void free(void *pointer)
{
    if (pointer != NULL) {
        if (!is_own(pointer)) {
            static const char text[] = "the program's free got a foreign block\n";
            ssize_t ignored = write(2, text, sizeof text - 1);
            _exit(ignored > 0 ? 1 : 2);
        }
        frees_count++;
    }
}

void *calloc(size_t count, size_t size)
{
    size_t whole;
    return __builtin_mul_overflow(count, size, &whole) ? NULL
                                                       : malloc(whole); /* never reused: zero */
}

void *realloc(void *pointer, size_t size)
{
    void *block = malloc(size);
    if (pointer != NULL && block != NULL) {
        size_t old;
        memcpy(&old, (unsigned char *)pointer - HEADER_SIZE, sizeof old);
        memcpy(block, pointer, old < size ? old : size);
        free(pointer);
    }
    return block;
}

static void *run_thread(void *argument)
{
    for (size_t i = 0; i < 1000; i++) {
        char *text = NULL;
        CHECK(asprintf(&text, "%zu and %0*d", i, (int)(i % 200) + 1, 1) > 0);
        CHECK(is_own(text));
        char *copy = strdup(text);
        CHECK(is_own(copy));
        give_back(text);
        give_back(copy);
        void *block = get_memory(i * 10);
        CHECK(is_own(block));
        give_back(block);
    }
    return NULL;
}

int main(void)
{
    /* The proof is the other way round here: hakmem is loaded, but does not serve malloc. */
    CHECK(preloaded_library_path() != NULL);
    CHECK(find_server() == SERVED_BY_OTHER);
    /* What this family lacks is built on what it has. */
    void *array = reallocarray(NULL, 10, 20);
    CHECK(is_own(array));
    memset(array, 1, 200);
    array = reallocarray(array, 100, 20);
    CHECK(is_own(array) && ((char *)array)[199] == 1);
    give_back(array);
    CHECK_EQUAL(reallocarray(NULL, opaque_size(SIZE_MAX / 2), 4) == NULL && errno == ENOMEM, true);
    pthread_t threads[4];
    start_all(threads, 4, run_thread, NULL);
    join_all(threads, 4);
    for (int i = 0; i < 20; i++) {
        IN_CHILD("child of a program with its own malloc") {
            alarm(240);
            run_thread(NULL);
            exit(0);
        }
    }
    CHECK_EQUAL(system("true"), 0); /* the child is on hakmem */
    CHECK(frees_count > 0);
    return 0;
}
