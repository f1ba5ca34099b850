/* cxx.cc: operators new and delete.
 *
 * A program may replace operator new(size_t) and operator delete(void *), or any other form, and
 * expects the rest to end up in its own ([new.delete]): so all but the few at the bottom of it go
 * through the address the loader bound the more basic form to.
 *
 *   new[] -> new          delete[], sized, nothrow -> delete     aligned new[] -> aligned new
 *   nothrow -> its throwing form, unless that is ours             ... delete ... -> aligned delete
 *   new, aligned new: the fast path, then new_failed: new handler, ..., throw bad_alloc
 *   delete, aligned delete: hak_free, in libc.c
 *
 * The library serves C programs too and so must not need libstdc++: whatever it takes from the C++
 * runtime is a weak reference. A C program that loads a C++ library (python, nginx) has a runtime
 * that nothing was bound to: new_failed looks for it by name. */
#include <cstddef>
#include <cstdint>
#include <dlfcn.h>
#include <initializer_list>
#include <new>

#include "hakmem/hakmem.h"

extern "C" { /* C's headers, which know no C++ */
#include "core/diagnose.h"
#include "front/short.h"
}

/* What throw, catch and unwinding refer to (Itanium C++ ABI, 2.4 and 2.5, and the compilers' own
 * helpers). Said to the assembler, because no declaration stands for most of them. */
#define CXX_WEAK(symbol) __asm__(".weak " symbol)
CXX_WEAK("_ZTISt9bad_alloc");
CXX_WEAK("_ZTVSt9bad_alloc");
CXX_WEAK("_ZNSt9bad_allocD1Ev");
CXX_WEAK("__cxa_allocate_exception");
CXX_WEAK("__cxa_throw");
CXX_WEAK("__cxa_begin_catch");
CXX_WEAK("__cxa_end_catch");
CXX_WEAK("__gxx_personality_v0");
CXX_WEAK("_Unwind_Resume");
#if defined(__clang__)
CXX_WEAK("_ZSt9terminatev");
#elif __GNUC__ >= 13
CXX_WEAK("__cxa_call_terminate");
#endif
/* Older C libraries have it in a library of their own; a static program may lack it. The other two
 * are looked up: a linker warns of each static program that refers to dlopen. */
#pragma weak dlsym

#if !defined(__clang__)
/* The partner of our sized delete is in libc.c; aliases need no attributes. */
#pragma GCC diagnostic ignored "-Wsized-deallocation"
#pragma GCC diagnostic ignored "-Wmissing-attributes"
#endif

/* Weak, so that a program that is linked with libhakmem.a may define its own. */
#define CXX_OPERATOR HAK_API __attribute__((weak))

extern "C" {
/* Under other names, so that the compiler takes nothing for granted. */
__attribute__((weak)) std::new_handler cxx_get_new_handler() __asm__("_ZSt15get_new_handlerv");
__attribute__((weak)) void cxx_throw() __asm__("__cxa_throw");
HAK_API void *cxx_new(size_t size) __asm__("_Znwm");
HAK_API void *cxx_new_array(size_t size) __asm__("_Znam");
HAK_API void *cxx_new_aligned(size_t, std::align_val_t) __asm__("_ZnwmSt11align_val_t");
HAK_API void *cxx_new_array_aligned(size_t, std::align_val_t) __asm__("_ZnamSt11align_val_t");
HAK_API void cxx_delete(void *) noexcept __asm__("_ZdlPv");
HAK_API void cxx_delete_array(void *) noexcept __asm__("_ZdaPv");
HAK_API void cxx_delete_aligned(void *, std::align_val_t) noexcept __asm__("_ZdlPvSt11align_val_t");
HAK_API void cxx_delete_array_aligned(void *, std::align_val_t) noexcept
    __asm__("_ZdaPvSt11align_val_t");
}

namespace
{

/* What the loader bound. Volatile: the compiler must not see that they point to this very file. */
#define CXX_BOUND(name, symbol) decltype(&symbol) const volatile name = symbol
CXX_BOUND(bound_new, cxx_new);
CXX_BOUND(bound_new_array, cxx_new_array);
CXX_BOUND(bound_new_aligned, cxx_new_aligned);
CXX_BOUND(bound_new_array_aligned, cxx_new_array_aligned);
CXX_BOUND(bound_delete, cxx_delete);
CXX_BOUND(bound_delete_array, cxx_delete_array);
CXX_BOUND(bound_delete_aligned, cxx_delete_aligned);
CXX_BOUND(bound_delete_array_aligned, cxx_delete_array_aligned);

/* --- no memory --- */

/* What new needs of the C++ runtime when nothing of it was bound. */
struct cxx_runtime {
    std::new_handler (*get_new_handler)();
    void *(*allocate_exception)(size_t size);
    void (*throw_exception)(void *exception, void *type, void (*destructor)(void *));
    void (*destroy_bad_alloc)(void *exception);
    void *bad_alloc_type;
    void *bad_alloc_table;
};

template <typename Pointer>
bool cxx_find(void *library, const char *name, Pointer *pointer)
{
    *pointer = reinterpret_cast<Pointer>(dlsym(library, name));
    return *pointer != nullptr;
}

/* The runtime of a library that the program has loaded privately. */
bool cxx_find_runtime(cxx_runtime *runtime)
{
    void *(*open)(const char *, int) = nullptr;
    int (*close)(void *) = nullptr;
    if (dlsym == nullptr || !cxx_find(RTLD_DEFAULT, "dlopen", &open) ||
        !cxx_find(RTLD_DEFAULT, "dlclose", &close)) {
        return false;
    }
    bool found = false;
    for (const char *name : {"libstdc++.so.6", "libc++abi.so.1", "libc++.so.1"}) {
        void *library = open(name, RTLD_LAZY | RTLD_NOLOAD);
        if (library != nullptr && !found) {
            found = cxx_find(library, "_ZSt15get_new_handlerv", &runtime->get_new_handler) &&
                    cxx_find(library, "__cxa_allocate_exception", &runtime->allocate_exception) &&
                    cxx_find(library, "__cxa_throw", &runtime->throw_exception) &&
                    cxx_find(library, "_ZNSt9bad_allocD1Ev", &runtime->destroy_bad_alloc) &&
                    cxx_find(library, "_ZTISt9bad_alloc", &runtime->bad_alloc_type) &&
                    cxx_find(library, "_ZTVSt9bad_alloc", &runtime->bad_alloc_table);
        }
        if (library != nullptr) {
            close(library); /* its user keeps it */
        }
    }
    return found;
}

/* throw std::bad_alloc() by hand: the object is nothing but a pointer into its virtual table, past
 * the offset and the type (Itanium C++ ABI, 2.5.2). */
void cxx_throw_by(const cxx_runtime *runtime)
{
    void *exception = runtime->allocate_exception(sizeof(std::bad_alloc));
    *static_cast<void **>(exception) = static_cast<void **>(runtime->bad_alloc_table) + 2;
    runtime->throw_exception(exception, runtime->bad_alloc_type, runtime->destroy_bad_alloc);
}

/* The program's handler may find memory, throw, or end the process. nullptr: there is none (left).
 */
void *new_ask_handler(decltype(&cxx_get_new_handler) get_new_handler, size_t size, size_t alignment)
{
    for (;;) {
        std::new_handler handler = get_new_handler != nullptr ? get_new_handler() : nullptr;
        if (handler == nullptr) {
            return nullptr;
        }
        handler();
        void *pointer = hak_aligned_alloc(alignment, size);
        if (pointer != nullptr) {
            return pointer;
        }
    }
}

HAK_COLD void *new_failed_unbound(size_t size, size_t alignment)
{
    cxx_runtime runtime;
    if (!cxx_find_runtime(&runtime)) {
        hak__diagnose_fatal("operator new found no memory, and no C++ runtime to say so", nullptr,
                            0, 0);
    }
    void *pointer = new_ask_handler(runtime.get_new_handler, size, alignment);
    if (pointer == nullptr) {
        cxx_throw_by(&runtime);
    }
    return pointer;
}

HAK_COLD void *new_failed(size_t size, size_t alignment)
{
    if (cxx_throw == nullptr) {
        return new_failed_unbound(size, alignment);
    }
    void *pointer = new_ask_handler(cxx_get_new_handler, size, alignment);
    if (pointer == nullptr) {
        throw std::bad_alloc();
    }
    return pointer;
}

/* Without a bound runtime what a handler throws could not be caught here: then none is asked. */
HAK_COLD void *new_failed_nothrow(size_t size, size_t alignment) noexcept
{
    if (cxx_throw == nullptr) {
        return nullptr;
    }
    try {
        return new_ask_handler(cxx_get_new_handler, size, alignment);
    } catch (...) {
        return nullptr;
    }
}

HAK_NOINLINE void *new_slow(size_t size)
{
    void *pointer = hak__malloc_slow(size);
    return HAK_LIKELY(pointer != nullptr) ? pointer : new_failed(size, OBJECT_ALIGNMENT);
}

HAK_NOINLINE void *new_slow_nothrow(size_t size) noexcept
{
    void *pointer = hak__malloc_slow(size);
    return HAK_LIKELY(pointer != nullptr) ? pointer : new_failed_nothrow(size, OBJECT_ALIGNMENT);
}

HAK_NOINLINE void *new_aligned_slow(size_t size, size_t alignment)
{
    void *pointer = hak_aligned_alloc(alignment, size);
    return HAK_LIKELY(pointer != nullptr) ? pointer : new_failed(size, alignment);
}

HAK_NOINLINE void *new_aligned_slow_nothrow(size_t size, size_t alignment) noexcept
{
    void *pointer = hak_aligned_alloc(alignment, size);
    return HAK_LIKELY(pointer != nullptr) ? pointer : new_failed_nothrow(size, alignment);
}

/* The program's own throwing form, made nothrow. */
template <typename Call>
HAK_COLD void *new_theirs(Call call) noexcept
{
    try {
        return call();
    } catch (...) {
        return nullptr;
    }
}

void *new_aligned_nothrow(size_t size, std::align_val_t align) noexcept
{
    size_t alignment = static_cast<size_t>(align);
    void *object = short_aligned(alignment, size);
    return HAK_LIKELY(object != nullptr) ? object : new_aligned_slow_nothrow(size, alignment);
}

} // namespace

/* --- new --- */

CXX_OPERATOR HAK_FAST_PATH void *operator new(size_t size)
{
    return malloc_fast(size, new_slow);
}

CXX_OPERATOR void *operator new(size_t size, std::align_val_t align)
{
    size_t alignment = static_cast<size_t>(align);
    void *object = short_aligned(alignment, size);
    return HAK_LIKELY(object != nullptr) ? object : new_aligned_slow(size, alignment);
}

CXX_OPERATOR void *operator new[](size_t size)
{
    return bound_new(size);
}

CXX_OPERATOR void *operator new[](size_t size, std::align_val_t align)
{
    return bound_new_aligned(size, align);
}

/* The four above under names that stay ours. */
extern "C" {
HAK_HIDDEN void *cxx_own_new(size_t) __attribute__((alias("_Znwm")));
HAK_HIDDEN void *cxx_own_new_array(size_t) __attribute__((alias("_Znam")));
HAK_HIDDEN void *cxx_own_new_aligned(size_t, std::align_val_t)
    __attribute__((alias("_ZnwmSt11align_val_t")));
HAK_HIDDEN void *cxx_own_new_array_aligned(size_t, std::align_val_t)
    __attribute__((alias("_ZnamSt11align_val_t")));
}

CXX_OPERATOR void *operator new(size_t size, const std::nothrow_t &) noexcept
{
    if (HAK_UNLIKELY(bound_new != cxx_own_new)) {
        return new_theirs([=] { return bound_new(size); });
    }
    return malloc_fast(size, new_slow_nothrow);
}

CXX_OPERATOR void *operator new[](size_t size, const std::nothrow_t &) noexcept
{
    if (HAK_UNLIKELY(bound_new_array != cxx_own_new_array || bound_new != cxx_own_new)) {
        return new_theirs([=] { return bound_new_array(size); });
    }
    return malloc_fast(size, new_slow_nothrow);
}

CXX_OPERATOR void *operator new(size_t size, std::align_val_t align,
                                const std::nothrow_t &) noexcept
{
    if (HAK_UNLIKELY(bound_new_aligned != cxx_own_new_aligned)) {
        return new_theirs([=] { return bound_new_aligned(size, align); });
    }
    return new_aligned_nothrow(size, align);
}

CXX_OPERATOR void *operator new[](size_t size, std::align_val_t align,
                                  const std::nothrow_t &) noexcept
{
    if (HAK_UNLIKELY(bound_new_array_aligned != cxx_own_new_array_aligned ||
                     bound_new_aligned != cxx_own_new_aligned)) {
        return new_theirs([=] { return bound_new_array_aligned(size, align); });
    }
    return new_aligned_nothrow(size, align);
}

/* --- delete --- */

CXX_OPERATOR void operator delete[](void *pointer) noexcept
{
    bound_delete(pointer);
}

/* The size is of no use to a release build: the slab knows it. */
CXX_OPERATOR void operator delete(void *pointer, size_t size) noexcept
{
    if (HAK_LEVEL >= 1 && bound_delete == hak_free) {
        hak_free_sized(pointer, size);
        return;
    }
    bound_delete(pointer);
}

CXX_OPERATOR void operator delete[](void *pointer, size_t) noexcept
{
    bound_delete_array(pointer);
}

CXX_OPERATOR void operator delete(void *pointer, const std::nothrow_t &) noexcept
{
    bound_delete(pointer);
}

CXX_OPERATOR void operator delete[](void *pointer, const std::nothrow_t &) noexcept
{
    bound_delete_array(pointer);
}

CXX_OPERATOR void operator delete[](void *pointer, std::align_val_t align) noexcept
{
    bound_delete_aligned(pointer, align);
}

CXX_OPERATOR void operator delete(void *pointer, size_t, std::align_val_t align) noexcept
{
    bound_delete_aligned(pointer, align);
}

CXX_OPERATOR void operator delete[](void *pointer, size_t, std::align_val_t align) noexcept
{
    bound_delete_array_aligned(pointer, align);
}

CXX_OPERATOR void operator delete(void *pointer, std::align_val_t align,
                                  const std::nothrow_t &) noexcept
{
    bound_delete_aligned(pointer, align);
}

CXX_OPERATOR void operator delete[](void *pointer, std::align_val_t align,
                                    const std::nothrow_t &) noexcept
{
    bound_delete_array_aligned(pointer, align);
}
