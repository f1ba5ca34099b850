/* SPDX-License-Identifier: MIT */
/* wrappers.c: the C library's and hakmem's names for memory, and those that end a process or turn
 * it into another program. malloc_usable_size and all that report or tune are not here: the loader
 * binds them to the next library itself.
 *
 * A wrapper takes the stamp of an end before it passes the call on, that of a birth after. */
#define _GNU_SOURCE
#include "wrappers.h"

#include "callers.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* Hidden names of the linker: the beginning and the end of this library. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

/* hakmem lets libraries that are loaded with RTLD_DEEPBIND find these wrappers. */
EXPORT extern const char *const hakmem_recorder_range[2];
const char *const hakmem_recorder_range[2] = {__ehdr_start, _end};

static bool has_next(void)
{
    if (UNLIKELY(next.malloc == NULL)) {
        next_find();
    }
    return next.malloc != NULL;
}

static unsigned log2_of(size_t alignment)
{
    return alignment != 0 ? (unsigned)__builtin_ctzll(alignment) : 0;
}

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* --- births --- */

/* What the allocator has returned; ends the lane's part of the call. */
static void record_birth(struct lane *lane, unsigned kind, size_t alignment, uint64_t site,
                         void *pointer, size_t size)
{
    uint64_t stamp = stamp_now();
    large_born(pointer, size);
    lane_record(lane, kind, log2_of(alignment), callers_site(lane, site), pointer, size, stamp);
    lane_leave(lane);
}

static void *plain_malloc(size_t size)
{
    return LIKELY(has_next()) ? next.malloc(size) : early_alloc(1, size);
}

void *wrap_malloc(size_t size, unsigned kind, uint64_t site)
{
    struct lane *lane = lane_enter();
    void *pointer;
    if (UNLIKELY(lane == NULL)) {
        return plain_malloc(size);
    }
    pointer = next.malloc(size);
    record_birth(lane, kind, 0, site, pointer, size);
    return pointer;
}

void *wrap_memalign(size_t alignment, size_t size, unsigned kind, uint64_t site)
{
    struct lane *lane = lane_enter();
    void *pointer;
    if (UNLIKELY(!has_next())) {
        return early_alloc(alignment, size);
    }
    pointer = kind == KIND_ALIGNED_ALLOC ? next.aligned_alloc(alignment, size)
                                         : next.memalign(alignment, size);
    if (lane != NULL) {
        record_birth(lane, kind, alignment, site, pointer, size);
    }
    return pointer;
}

EXPORT void *malloc(size_t size)
{
    return wrap_malloc(size, KIND_MALLOC, CALLER);
}

EXPORT void *calloc(size_t count, size_t size)
{
    struct lane *lane = lane_enter();
    size_t bytes;
    void *pointer;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        bytes = SIZE_MAX;
    }
    if (UNLIKELY(!has_next())) {
        return early_alloc(1, bytes); /* never used before, so it is zero */
    }
    pointer = next.calloc(count, size);
    if (lane != NULL) {
        record_birth(lane, KIND_CALLOC, 0, CALLER, pointer, bytes);
    }
    return pointer;
}

EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
    return wrap_memalign(alignment, size, KIND_ALIGNED_ALLOC, CALLER);
}

EXPORT void *memalign(size_t alignment, size_t size)
{
    return wrap_memalign(alignment, size, KIND_MEMALIGN, CALLER);
}

EXPORT void *valloc(size_t size)
{
    return wrap_memalign(page_size(), size, KIND_MEMALIGN, CALLER);
}

EXPORT void *pvalloc(size_t size)
{
    size_t page = page_size(), whole = (size + page - 1) & ~(page - 1);
    return wrap_memalign(page, whole < size ? size : whole, KIND_MEMALIGN, CALLER);
}

EXPORT int posix_memalign(void **result, size_t alignment, size_t size)
{
    struct lane *lane = lane_enter();
    int status;
    if (UNLIKELY(!has_next())) {
        *result = early_alloc(alignment, size);
        return *result != NULL ? 0 : ENOMEM;
    }
    status = next.posix_memalign(result, alignment, size);
    if (lane != NULL) {
        record_birth(lane, KIND_POSIX_MEMALIGN, alignment, CALLER, status == 0 ? *result : NULL,
                     size);
    }
    return status;
}

/* --- ends --- */

void wrap_free(void *pointer, unsigned kind, uint64_t site)
{
    struct lane *lane;
    if (UNLIKELY(is_early(pointer))) {
        return;
    }
    lane = lane_enter();
    if (LIKELY(lane != NULL)) {
        large_ends(lane, pointer);
        lane_record(lane, kind, 0, site, pointer, 0, stamp_now());
        next.free(pointer);
        lane_leave(lane);
    } else if (has_next()) {
        next.free(pointer);
    }
}

EXPORT void free(void *pointer)
{
    wrap_free(pointer, KIND_FREE, CALLER);
}

EXPORT void free_sized(void *pointer, size_t size);
void free_sized(void *pointer, size_t size)
{
    (void)size;
    wrap_free(pointer, KIND_FREE_SIZED, CALLER);
}

EXPORT void free_aligned_sized(void *pointer, size_t alignment, size_t size);
void free_aligned_sized(void *pointer, size_t alignment, size_t size)
{
    (void)alignment;
    (void)size;
    wrap_free(pointer, KIND_FREE_SIZED, CALLER);
}

/* --- realloc --- */

static void *early_move(void *pointer, size_t size)
{
    size_t old = early_size(pointer);
    void *moved = plain_malloc(size);
    if (moved != NULL) {
        memcpy(moved, pointer, old < size ? old : size);
    }
    return moved;
}

static void *wrap_realloc(void *pointer, size_t size, uint64_t site)
{
    struct lane *lane;
    void *moved;
    if (UNLIKELY(is_early(pointer))) {
        return early_move(pointer, size);
    }
    lane = lane_enter();
    if (UNLIKELY(!has_next())) {
        return early_alloc(1, size); /* pointer is NULL: every other one is early */
    }
    if (lane == NULL) {
        return next.realloc(pointer, size);
    }
    if (pointer == NULL) {
        moved = next.realloc(NULL, size);
        record_birth(lane, KIND_REALLOC_NULL, 0, site, moved, size);
    } else {
        large_ends(lane, pointer);
        lane_record(lane, KIND_REALLOC_FROM, 0, site, pointer, 0, stamp_now());
        moved = next.realloc(pointer, size);
        record_birth(lane, KIND_REALLOC, 0, site, moved, size);
    }
    return moved;
}

EXPORT void *realloc(void *pointer, size_t size)
{
    return wrap_realloc(pointer, size, CALLER);
}

EXPORT void *reallocarray(void *pointer, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return wrap_realloc(pointer, bytes, CALLER);
}

/* --- hakmem's own names, of programs that are linked with libhakmem.so --- */

/* Gives the alias the attributes of its target: gcc warns of an alias with fewer. */
#if defined(__has_attribute) && __has_attribute(copy)
#define COPY_OF(target) __attribute__((copy(target)))
#else
#define COPY_OF(target)
#endif
#define HAK_NAME(name)                                                                             \
    EXPORT extern __typeof__(name) hak_##name COPY_OF(name) __attribute__((alias(#name)));

HAK_NAME(malloc)
HAK_NAME(calloc)
HAK_NAME(realloc)
HAK_NAME(reallocarray)
HAK_NAME(free)
HAK_NAME(free_sized)
HAK_NAME(free_aligned_sized)
HAK_NAME(aligned_alloc)
HAK_NAME(memalign)
HAK_NAME(posix_memalign)
HAK_NAME(valloc)
HAK_NAME(pvalloc)

/* A trace has the call's address; the name of its site goes. */
EXPORT void *hak_alloc_at(size_t size, uintptr_t site);
void *hak_alloc_at(size_t size, uintptr_t site)
{
    (void)site;
    return wrap_malloc(size, KIND_MALLOC, CALLER);
}

EXPORT void hak_free_at(void *pointer, size_t size, uintptr_t site);
void hak_free_at(void *pointer, size_t size, uintptr_t site)
{
    (void)size;
    (void)site;
    wrap_free(pointer, KIND_FREE_SIZED, CALLER);
}

/* --- another program, the end --- */

/* FIND_EARLY(name): looks the next library's function up before main. Later may be too late: dlsym
 * takes the loader's lock, which nobody gives back in the child of a fork if another thread of the
 * parent had it. */
#define FIND_EARLY(name)                                                                           \
    __attribute__((constructor)) static void find_##name(void)                                     \
    {                                                                                              \
        void *found = dlsym(RTLD_NEXT, #name);                                                     \
        memcpy(&next_##name, &found, sizeof found);                                                \
    }

#define PASS_EXEC(name, parameters, arguments)                                                     \
    static int(*next_##name) parameters;                                                           \
    FIND_EARLY(name)                                                                               \
    EXPORT int name parameters                                                                     \
    {                                                                                              \
        if (next_##name == NULL) {                                                                 \
            find_##name();                                                                         \
        }                                                                                          \
        recorder_write_all(false);                                                                 \
        return next_##name arguments;                                                              \
    }

PASS_EXEC(execve, (const char *file, char *const *words, char *const *environment),
          (file, words, environment))
PASS_EXEC(execv, (const char *file, char *const *words), (file, words))
PASS_EXEC(execvp, (const char *file, char *const *words), (file, words))
PASS_EXEC(execvpe, (const char *file, char *const *words, char *const *environment),
          (file, words, environment))
PASS_EXEC(fexecve, (int file, char *const *words, char *const *environment),
          (file, words, environment))
PASS_EXEC(execveat,
          (int folder, const char *file, char *const *words, char *const *environment, int flags),
          (folder, file, words, environment, flags))

/* The words of execl and its like, as an array; `list` stands behind the NULL that ends them. */
#define COLLECT_WORDS(first, list)                                                                 \
    size_t count = 1;                                                                              \
    char **words;                                                                                  \
    va_start(list, first);                                                                         \
    while (va_arg(list, char *) != NULL) {                                                         \
        count++;                                                                                   \
    }                                                                                              \
    va_end(list);                                                                                  \
    words = __builtin_alloca((count + 1) * sizeof *words);                                         \
    va_start(list, first);                                                                         \
    words[0] = (char *)(uintptr_t)(first);                                                         \
    for (size_t i = 1; i <= count; i++) {                                                          \
        words[i] = va_arg(list, char *);                                                           \
    }

EXPORT int execl(const char *file, const char *first, ...)
{
    va_list list;
    COLLECT_WORDS(first, list)
    va_end(list);
    return execv(file, words);
}

EXPORT int execlp(const char *file, const char *first, ...)
{
    va_list list;
    COLLECT_WORDS(first, list)
    va_end(list);
    return execvp(file, words);
}

EXPORT int execle(const char *file, const char *first, ...)
{
    va_list list;
    char *const *environment;
    COLLECT_WORDS(first, list)
    environment = va_arg(list, char *const *);
    va_end(list);
    return execve(file, words, environment);
}

#define PASS_EXIT(name)                                                                            \
    static void (*next_##name)(int status);                                                        \
    FIND_EARLY(name)                                                                               \
    EXPORT _Noreturn void name(int status)                                                         \
    {                                                                                              \
        if (next_##name == NULL) {                                                                 \
            find_##name();                                                                         \
        }                                                                                          \
        recorder_write_all(true);                                                                  \
        next_##name(status);                                                                       \
        __builtin_unreachable();                                                                   \
    }

PASS_EXIT(_exit)
PASS_EXIT(_Exit)
