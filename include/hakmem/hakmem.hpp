/* SPDX-License-Identifier: MIT */
/* hakmem.hpp: hakmem for C++17, in headers only.
 *
 *   hak::memory_resource   a std::pmr::memory_resource on hak_aligned_alloc and hak_free
 *   hak::allocator<T>      an allocator for containers on the same functions; it has no state
 *   hak::heap              a heap (hakmem/heap.h), which its destructor destroys;
 *                          a std::pmr::memory_resource, too
 *   hak::heap_allocator<T> an allocator for containers in a heap
 *
 *     hak::heap heap;
 *     std::pmr::vector<int> numbers(&heap);
 *     std::list<int, hak::heap_allocator<int>> list(hak::heap_allocator<int>{heap});
 *
 * A program that is linked with hakmem, or preloads it, needs hak::memory_resource and
 * hak::allocator only if another allocator has the names malloc and new.
 *
 * Sizes are in bytes. Allocations that fail throw std::bad_alloc; without exceptions they abort.
 * Everything is as thread-safe as heap.h says. A heap must outlive the containers in it, or never
 * be asked for their memory again: a container that is destroyed after its heap is an error, and
 * one that is never destroyed is none, because the heap's destructor frees its memory. */
#ifndef HAKMEM_HAKMEM_HPP
#define HAKMEM_HAKMEM_HPP

#include "hakmem/hakmem.h"
#include "hakmem/heap.h"

#include <cstddef>
#include <cstdlib>
#include <limits>
#include <memory_resource>
#include <new>
#include <type_traits>

namespace hak
{

namespace detail
{

[[noreturn]] inline void out_of_memory()
{
#if defined(__cpp_exceptions)
    throw std::bad_alloc();
#else
    std::abort();
#endif
}

inline void *checked(void *pointer)
{
    if (__builtin_expect(pointer == nullptr, 0)) {
        out_of_memory();
    }
    return pointer;
}

/* Bytes of `count` objects of type T. */
template <typename T>
std::size_t bytes_of(std::size_t count)
{
    if (__builtin_expect(count > std::numeric_limits<std::size_t>::max() / sizeof(T), 0)) {
#if defined(__cpp_exceptions)
        throw std::bad_array_new_length();
#else
        std::abort();
#endif
    }
    return count * sizeof(T);
}

/* Every object is aligned to this. */
inline constexpr std::size_t natural_alignment = 16;

} // namespace detail

/* Memory of hakmem, whichever allocator has the names malloc and new. All such resources are equal.
 */
class memory_resource : public std::pmr::memory_resource
{
  private:
    void *do_allocate(std::size_t bytes, std::size_t alignment) override
    {
        return detail::checked(alignment <= detail::natural_alignment
                                   ? hak_malloc(bytes)
                                   : hak_aligned_alloc(alignment, bytes));
    }
    void do_deallocate(void *pointer, std::size_t, std::size_t) override
    {
        hak_free(pointer); /* which is as fast as any free that is told the size */
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
#if defined(__cpp_rtti)
        return dynamic_cast<const memory_resource *>(&other) != nullptr;
#else
        return this == &other;
#endif
    }
};

/* Allocates from hakmem, whichever allocator has the names malloc and new. */
template <typename T>
class allocator
{
  public:
    using value_type = T;
    using is_always_equal = std::true_type;
    using propagate_on_container_move_assignment = std::true_type;

    allocator() noexcept = default;
    template <typename U>
    allocator(const allocator<U> &) noexcept
    {
    }

    T *allocate(std::size_t count)
    {
        std::size_t bytes = detail::bytes_of<T>(count);
        return static_cast<T *>(detail::checked(alignof(T) <= detail::natural_alignment
                                                    ? hak_malloc(bytes)
                                                    : hak_aligned_alloc(alignof(T), bytes)));
    }
    void deallocate(T *pointer, std::size_t) noexcept
    {
        hak_free(pointer);
    }
};

template <typename T, typename U>
bool operator==(const allocator<T> &, const allocator<U> &) noexcept
{
    return true;
}
template <typename T, typename U>
bool operator!=(const allocator<T> &, const allocator<U> &) noexcept
{
    return false;
}

/* A heap. It is neither copied nor moved, because containers keep its address. */
class heap : public std::pmr::memory_resource
{
  public:
    /* Throws std::bad_alloc if the options are wrong or there is no memory. */
    heap() : heap_(hak_heap_create(nullptr))
    {
        (void)detail::checked(heap_);
    }
    explicit heap(const hak_heap_options &options) : heap_(hak_heap_create(&options))
    {
        (void)detail::checked(heap_);
    }
    /* A heap in `size` bytes at `memory`, which must outlive it. */
    heap(void *memory, std::size_t size) : heap(in_memory(memory, size))
    {
    }
    heap(const heap &) = delete;
    heap &operator=(const heap &) = delete;
    ~heap() override
    {
        hak_heap_destroy(heap_);
    }

    /* For the functions of heap.h. */
    hak_heap *get() const noexcept
    {
        return heap_;
    }
    hak_heap_stats stats() const noexcept
    {
        hak_heap_stats result;
        hak_heap_stats_read(heap_, &result, sizeof result);
        return result;
    }

  private:
    static hak_heap_options in_memory(void *memory, std::size_t size) noexcept
    {
        hak_heap_options options = {};
        options.size = sizeof options;
        options.memory = memory;
        options.memory_size = size;
        return options;
    }
    void *do_allocate(std::size_t bytes, std::size_t alignment) override
    {
        return detail::checked(alignment <= detail::natural_alignment
                                   ? hak_heap_malloc(heap_, bytes)
                                   : hak_heap_aligned_alloc(heap_, alignment, bytes));
    }
    void do_deallocate(void *pointer, std::size_t bytes, std::size_t alignment) override
    {
        hak_heap_free_sized(heap_, pointer, alignment, bytes);
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
        return this == &other;
    }

    hak_heap *heap_;
};

/* Allocates from a heap, which must outlive it. */
template <typename T>
class heap_allocator
{
  public:
    using value_type = T;
    using is_always_equal = std::false_type;
    using propagate_on_container_move_assignment = std::true_type;
    using propagate_on_container_swap = std::true_type;

    heap_allocator(const heap &from) noexcept : heap_(from.get())
    {
    }
    explicit heap_allocator(hak_heap *from) noexcept : heap_(from)
    {
    }
    template <typename U>
    heap_allocator(const heap_allocator<U> &other) noexcept : heap_(other.get())
    {
    }

    T *allocate(std::size_t count)
    {
        std::size_t bytes = detail::bytes_of<T>(count);
        return static_cast<T *>(
            detail::checked(alignof(T) <= detail::natural_alignment
                                ? hak_heap_malloc(heap_, bytes)
                                : hak_heap_aligned_alloc(heap_, alignof(T), bytes)));
    }
    void deallocate(T *pointer, std::size_t count) noexcept
    {
        hak_heap_free_sized(heap_, pointer, alignof(T), count * sizeof(T));
    }
    hak_heap *get() const noexcept
    {
        return heap_;
    }

  private:
    hak_heap *heap_;
};

template <typename T, typename U>
bool operator==(const heap_allocator<T> &a, const heap_allocator<U> &b) noexcept
{
    return a.get() == b.get();
}
template <typename T, typename U>
bool operator!=(const heap_allocator<T> &a, const heap_allocator<U> &b) noexcept
{
    return a.get() != b.get();
}

} // namespace hak

#endif
