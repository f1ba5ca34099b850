/* hakmem.h: the allocator's own names for the malloc family, with a few questions malloc cannot
 * answer.
 *
 * Every function may be called from any thread at any time (before main, in constructors, in
 * thread-exit destructors, after main); none is async-signal-safe, but a free from a signal handler
 * that did not interrupt the allocator works. Sizes are bytes. Memory from any of the allocating
 * functions may be given to any of the freeing ones and to the C library's names when hakmem also
 * overrides those (LD_PRELOAD or static link). After a failed allocation errno is ENOMEM (EINVAL
 * for a bad alignment); a free never changes errno.
 */
#ifndef HAKMEM_HAKMEM_H
#define HAKMEM_HAKMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HAKMEM_VERSION_MAJOR 0
#define HAKMEM_VERSION_MINOR 1
#define HAKMEM_VERSION_PATCH 0

#if defined(__cplusplus)
extern "C" {
#endif

#if defined(__GNUC__)
#define HAK_API __attribute__((visibility("default")))
#define HAK_ATTR_ALLOC(...) __attribute__((malloc, warn_unused_result, __VA_ARGS__))
#define HAK_ATTR_RESULT __attribute__((warn_unused_result))
#else
#define HAK_API
#define HAK_ATTR_ALLOC(...)
#define HAK_ATTR_RESULT
#endif
#if defined(__cplusplus)
#define HAK_NOEXCEPT noexcept
#else
#define HAK_NOEXCEPT
#endif

/* "major.minor.patch". The string lives as long as the library. */
HAK_API const char *hak_version(void) HAK_NOEXCEPT;

/* At least `size` bytes aligned to 16, contents undefined. Size 0 gives a distinct pointer that may
 * be freed. NULL with ENOMEM when there is no memory or size exceeds PTRDIFF_MAX. */
HAK_API void *hak_malloc(size_t size) HAK_NOEXCEPT HAK_ATTR_ALLOC(alloc_size(1));

/* `count * size` zero bytes; NULL with ENOMEM also when the product overflows. */
HAK_API void *hak_calloc(size_t count, size_t size) HAK_NOEXCEPT HAK_ATTR_ALLOC(alloc_size(1, 2));

/* Resizes an allocation, keeping the first min(old, new) bytes. `pointer` NULL: like hak_malloc.
 * Size 0 with a pointer: frees it and returns NULL, errno untouched (as glibc does). On failure the
 * old block stays as it was. */
HAK_API void *hak_realloc(void *pointer, size_t size) HAK_NOEXCEPT HAK_ATTR_RESULT;

/* hak_realloc(pointer, count * size) with the overflow checked. */
HAK_API void *hak_reallocarray(void *pointer, size_t count,
                               size_t size) HAK_NOEXCEPT HAK_ATTR_RESULT;

/* Frees what any function of this header returned. NULL does nothing. */
HAK_API void hak_free(void *pointer) HAK_NOEXCEPT;

/* C23: like hak_free; `size` must be what was asked for. The debug build checks that. */
HAK_API void hak_free_sized(void *pointer, size_t size) HAK_NOEXCEPT;
HAK_API void hak_free_aligned_sized(void *pointer, size_t alignment, size_t size) HAK_NOEXCEPT;

/* `alignment` is a power of two (else NULL with EINVAL), up to 1 GiB and beyond while address space
 * lasts. */
HAK_API void *hak_aligned_alloc(size_t alignment, size_t size) HAK_NOEXCEPT
    HAK_ATTR_ALLOC(alloc_size(2));
/* As hak_aligned_alloc, but any alignment is rounded up to a power of two (glibc's memalign). */
HAK_API void *hak_memalign(size_t alignment, size_t size) HAK_NOEXCEPT
    HAK_ATTR_ALLOC(alloc_size(2));
/* Returns 0, EINVAL (alignment not a power of two multiple of sizeof(void *)) or ENOMEM; errno and,
 * on failure, *result are left alone. */
HAK_API int hak_posix_memalign(void **result, size_t alignment,
                               size_t size) HAK_NOEXCEPT HAK_ATTR_RESULT;
/* Aligned to the OS page; pvalloc also rounds the size up to whole OS pages. */
HAK_API void *hak_valloc(size_t size) HAK_NOEXCEPT HAK_ATTR_ALLOC(alloc_size(1));
HAK_API void *hak_pvalloc(size_t size) HAK_NOEXCEPT HAK_ATTR_RESULT;

/* A call site is any small non-zero number that names the place of the call (a hash of file and
 * line, a return address). It costs nothing when no profile is being taken. Otherwise like
 * hak_malloc and hak_free_sized; size 0 in hak_free_at means "unknown". */
HAK_API void *hak_alloc_at(size_t size, uintptr_t site) HAK_NOEXCEPT HAK_ATTR_ALLOC(alloc_size(1));
HAK_API void hak_free_at(void *pointer, size_t size, uintptr_t site) HAK_NOEXCEPT;

/* Bytes that may be used at `pointer` (an allocation's start): at least what was asked for. NULL
 * gives 0. */
HAK_API size_t hak_usable_size(const void *pointer) HAK_NOEXCEPT;

/* What hak_malloc(size) would at least make usable: ask for this to waste nothing. Above 64 KiB a
 * reused block may be longer. SIZE_MAX when it cannot succeed. */
HAK_API size_t hak_good_size(size_t size) HAK_NOEXCEPT;

/* True when `pointer` lies in memory hakmem manages (any byte of it, not only an allocation's
 * start). */
HAK_API bool hak_owns(const void *pointer) HAK_NOEXCEPT;

/* Gives free memory back to the OS now: the calling thread's cache, what heaps keep,
 * empty slabs and spans, cached whales. `keep` bytes of free memory may stay. True when anything
 * was given back. */
HAK_API bool hak_trim(size_t keep) HAK_NOEXCEPT;

/* Called with the bytes mapped when they have just become more than the soft limit: by the thread
 * of the program whose allocation it was, or the next one, at the end of an allocation or free. No
 * lock is held: it may call every function of hakmem, but is not to wait for other threads. */
typedef void hak_limit_function(size_t mapped, void *argument);

/* Limits the memory mapped by hakmem in this process, in bytes, SIZE_MAX for none: objects, what is
 * kept free and tables; not what the program maps itself. Addresses count, whether their pages are
 * resident or not. Above `soft` free memory goes back after 10 ms, in parts and with its addresses,
 * by whatever slow path comes next, and `over`, if it is not NULL, is called once, and again after
 * it had fallen below. `hard` is never exceeded: what would need more gets NULL with ENOMEM, after
 * all that is free was given back; with less than is mapped already nothing more is. Replaces
 * HAKMEM_LIMIT and HAKMEM_LIMIT_HARD and what was set before. */
HAK_API void hak_limit_set(size_t soft, size_t hard, hak_limit_function *over,
                           void *argument) HAK_NOEXCEPT;

#if defined(__cplusplus)
}
#endif

#endif
