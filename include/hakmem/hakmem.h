/* SPDX-License-Identifier: MIT */
/* hakmem.h: hakmem's own names for malloc and its relatives, and some functions that the C library
 * lacks.
 *
 * Threads: any thread may call every function at any time: before main, in constructors, in
 * destructors that run when a thread ends, after main. No function is async-signal-safe. A signal
 * handler may allocate and free if it did not interrupt the allocator.
 *
 * Sizes are in bytes. Every freeing function takes blocks of every allocating function. If hakmem
 * also replaces the C library's names (LD_PRELOAD or static link), the two sets of names can be
 * mixed: hak_free takes blocks of malloc, and free takes blocks of hak_malloc.
 *
 * Errors: after a failed allocation errno is ENOMEM, or EINVAL for a bad alignment. A free never
 * changes errno. If hakmem notices that an invalid pointer is freed or resized, it ends the process
 * with a message. */
#ifndef HAKMEM_HAKMEM_H
#define HAKMEM_HAKMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HAK_VERSION_MAJOR 1
#define HAK_VERSION_MINOR 0
#define HAK_VERSION_PATCH 0

#if defined(__cplusplus)
extern "C" {
#endif

#if defined(__GNUC__)
#define HAK_API __attribute__((visibility("default")))
#define HAK_ATTR_ALLOC(...) __attribute__((malloc, warn_unused_result, __VA_ARGS__))
#define HAK_ATTR_RESIZE(...) __attribute__((warn_unused_result, __VA_ARGS__))
#define HAK_ATTR_RESULT __attribute__((warn_unused_result))
#else
#define HAK_API
#define HAK_ATTR_ALLOC(...)
#define HAK_ATTR_RESIZE(...)
#define HAK_ATTR_RESULT
#endif
#if defined(__cplusplus)
#define HAK_NOEXCEPT noexcept
#else
#define HAK_NOEXCEPT
#endif

/* Returns "major.minor.patch". The string lives as long as the library. */
HAK_API const char *hak_version(void) HAK_NOEXCEPT;

/* Allocates at least `size` bytes, aligned to 16, with undefined contents. A request of 0 bytes
 * gives a pointer that no other block has, and that may be freed. Returns NULL with errno ENOMEM if
 * there is no memory or `size` exceeds PTRDIFF_MAX. */
HAK_API void *hak_malloc(size_t size) HAK_NOEXCEPT HAK_ATTR_ALLOC(alloc_size(1));

/* Allocates `count * size` zeroed bytes. Returns NULL with errno ENOMEM also if the product
 * overflows. */
HAK_API void *hak_calloc(size_t count, size_t size) HAK_NOEXCEPT HAK_ATTR_ALLOC(alloc_size(1, 2));

/* Resizes a block to at least `size` bytes and keeps the first min(old, new) bytes. The block may
 * move. `pointer` NULL: like hak_malloc. Size 0 with a pointer: frees it and returns NULL, with
 * errno unchanged (as glibc does). On failure returns NULL with errno ENOMEM, and the old block
 * stays as it was. */
HAK_API void *hak_realloc(void *pointer, size_t size) HAK_NOEXCEPT HAK_ATTR_RESIZE(alloc_size(2));

/* hak_realloc(pointer, count * size); an overflow of the product is a failure. */
HAK_API void *hak_reallocarray(void *pointer, size_t count, size_t size) HAK_NOEXCEPT
    HAK_ATTR_RESIZE(alloc_size(2, 3));

/* Resizes a block to at least `size` bytes where it is. False: it cannot, and the block is as it
 * was; also if `pointer` is NULL, `size` is 0, or the block is an object of a heap
 * (hakmem/heap.h). Shrinking succeeds, except for guarded blocks (HAKMEM_GUARD). In the ordinary
 * form it returns memory of blocks above 64 KiB. Never changes errno. */
HAK_API bool hak_resize(void *pointer, size_t size) HAK_NOEXCEPT;

/* Frees a block that any function of this header returned. NULL does nothing. A pointer that hakmem
 * did not allocate is not freed; the first ten are reported on standard error. The secure form,
 * and any form with HAKMEM_ABORT_ON_FOREIGN=1, aborts instead. */
HAK_API void hak_free(void *pointer) HAK_NOEXCEPT;

/* Frees a block, given its size, or its size and alignment, as allocated (C23). Aborts if the block
 * is smaller than `size`; the secure form, if another size was asked for
 * (HAKMEM_ABORT_ON_SIZE). Debug builds and the secure form also abort if it is less aligned. */
HAK_API void hak_free_sized(void *pointer, size_t size) HAK_NOEXCEPT;
HAK_API void hak_free_aligned_sized(void *pointer, size_t alignment, size_t size) HAK_NOEXCEPT;

/* Allocates at least `size` bytes at a multiple of `alignment`. Any power of two is allowed for
 * which there is address space (1 GiB works). Returns NULL with errno EINVAL for other alignments.
 */
HAK_API void *hak_aligned_alloc(size_t alignment, size_t size) HAK_NOEXCEPT
    HAK_ATTR_ALLOC(alloc_align(1), alloc_size(2));
/* As hak_calloc, at a multiple of `alignment`. */
HAK_API void *hak_aligned_calloc(size_t alignment, size_t count, size_t size) HAK_NOEXCEPT
    HAK_ATTR_ALLOC(alloc_align(1), alloc_size(2, 3));
/* As hak_realloc, and the result is a multiple of `alignment`, whatever the old alignment was. On
 * EINVAL, too, the old block stays as it was. */
HAK_API void *hak_aligned_realloc(void *pointer, size_t alignment, size_t size) HAK_NOEXCEPT
    HAK_ATTR_RESIZE(alloc_align(2), alloc_size(3));
/* As hak_aligned_alloc, but rounds other alignments up to a power of two (as glibc's memalign).
 * EINVAL only if that power of two does not fit into a size_t. */
HAK_API void *hak_memalign(size_t alignment, size_t size) HAK_NOEXCEPT
    HAK_ATTR_ALLOC(alloc_size(2));
/* Stores the block in *result. Returns 0, ENOMEM, or EINVAL if `alignment` is not a power of two
 * and a multiple of sizeof(void *). Never changes errno. On failure *result stays as it was. */
HAK_API int hak_posix_memalign(void **result, size_t alignment,
                               size_t size) HAK_NOEXCEPT HAK_ATTR_RESULT;
/* Allocate blocks aligned to the OS page. hak_pvalloc also rounds the size up to whole OS pages, at
 * least one. */
HAK_API void *hak_valloc(size_t size) HAK_NOEXCEPT HAK_ATTR_ALLOC(alloc_size(1));
HAK_API void *hak_pvalloc(size_t size) HAK_NOEXCEPT HAK_ATTR_RESULT;

/* Allocate and free a block, and name the place of the call. `site` is its number: an id of
 * hak_site_register (hakmem/site.h), or any other, such as a hash of file and line. While samples
 * are taken, all views show the memory of each site. 0: the thread's site, or the caller's address.
 * hak_free_at does not use it; its size 0 means "unknown". */
HAK_API void *hak_alloc_at(size_t size, uintptr_t site) HAK_NOEXCEPT HAK_ATTR_ALLOC(alloc_size(1));
HAK_API void hak_free_at(void *pointer, size_t size, uintptr_t site) HAK_NOEXCEPT;

/* Bytes that the program may use at `pointer`, the start of a block: at least what it asked for.
 * NULL: 0. */
HAK_API size_t hak_usable_size(const void *pointer) HAK_NOEXCEPT;

/* The least number of bytes that hak_malloc(size) makes usable: a program that asks for this many
 * wastes none. Above 64 KiB a reused block may be larger. SIZE_MAX if hak_malloc(size) cannot
 * succeed. */
HAK_API size_t hak_good_size(size_t size) HAK_NOEXCEPT;

/* True if `pointer` points to any byte of a superslab, used or free, or of a huge block in use.
 * For other pointers the time grows with the number of huge blocks. */
HAK_API bool hak_owns(const void *pointer) HAK_NOEXCEPT;

/* Returns free memory to the OS now, and addresses of the heap that are wholly free: the calling
 * thread's cache, kept spans, cached huge blocks and all free slices. Other threads' bins stay.
 * Does nothing if only `keep` bytes or fewer could be returned; this count leaves out thread caches
 * and kept spans. Returns true if anything was returned. */
HAK_API bool hak_trim(size_t keep) HAK_NOEXCEPT;

/* Called when the bytes mapped by hakmem, `mapped`, have just exceeded the soft limit. The calling
 * thread is the one whose allocation exceeded it, or the next thread that notices, at the end of an
 * allocation or free. No lock is held: the function may call all of hakmem, but should not wait for
 * other threads. */
typedef void hak_limit_function(size_t mapped, void *argument);

/* Limits the memory that hakmem maps in this process, in bytes; SIZE_MAX: no limit. Objects, free
 * memory and tables count, resident or not; what the program maps itself does not. Replaces
 * HAKMEM_LIMIT, HAKMEM_LIMIT_HARD and earlier calls. Has no effect in a signal handler that
 * interrupted the allocator.
 *
 * Above `soft`, hakmem returns free memory after 10 ms, and its addresses, too. Any thread does
 * this in parts, at its slow operations. If `over` is not NULL, hakmem calls it once, and again
 * each time that the bytes exceed `soft` after they had fallen below it.
 *
 * Nothing is mapped beyond `hard`. An allocation that needs more first returns all free memory,
 * then fails with ENOMEM. A limit below the bytes already mapped stops further growth. */
HAK_API void hak_limit_set(size_t soft, size_t hard, hak_limit_function *over,
                           void *argument) HAK_NOEXCEPT;

#if defined(__cplusplus)
}
#endif

#endif
