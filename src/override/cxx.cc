/* SPDX-License-Identifier: MIT */
/* cxx.cc: the operators new and delete.
 *
 * A program may replace any form of new or delete, and expects the forms built on it to use its own
 * ([new.delete] in the C++ standard). So all forms but the most basic ones call a more basic form,
 * through the address that the loader has bound:
 *
 *   new[]                            -> new
 *   aligned new[]                    -> aligned new
 *   nothrow new, of any kind         -> its throwing form, if the program has replaced that
 *   delete[], sized, nothrow delete  -> delete; the aligned ones -> aligned delete
 *   new, aligned new                 -> the fast path; without memory new_failed: calls the new
 *                                       handler, and throws bad_alloc if there is none
 *   delete, aligned delete           -> hak_free, in libc.c
 *
 * The library also serves C programs, so it must not need libstdc++: all it takes from the C++
 * runtime are weak references. If a C program loads a C++ library (python, nginx), these references
 * stay unbound although there is a runtime. new_failed then looks the runtime up by name. */
#include <cstddef>
#include <cstdint>
#include <dlfcn.h>
#include <initializer_list>
#include <new>

#include "hakmem/hakmem.h"

extern "C" { /* the headers are C */
#include "core/diagnose.h"
#include "core/knobs.h"
#include "front/short.h"
#include "override/family.h"
}

/* The symbols that throw, catch and unwinding refer to (Itanium C++ ABI, 2.4 and 2.5, and helpers
 * of the compilers). The assembler makes them weak, because most of them have no declaration. */
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
/* Weak: older C libraries have dlsym in a library of their own, and a static program may lack it.
 * dlopen and dlclose are looked up by name, because a linker warns of every static program that
 * refers to dlopen. */
#pragma weak dlsym

#if !defined(__clang__)
/* The unsized partner of the sized delete is in libc.c, and aliases need no attributes. */
#pragma GCC diagnostic ignored "-Wsized-deallocation"
#pragma GCC diagnostic ignored "-Wmissing-attributes"
#endif

/* Weak, so that a program linked with libhakmem.a may define its own. */
#define CXX_OPERATOR HAK_API __attribute__((weak))

/* Forms of new and delete under names that no program can replace. */
extern "C" {
HAK_HIDDEN void *cxx_own_new(size_t);
HAK_HIDDEN void *cxx_own_new_array(size_t);
HAK_HIDDEN void cxx_own_delete(void *) noexcept; /* in libc.c, and calls the one after it */
HAK_HIDDEN void cxx_delete_sized(void *pointer, size_t size) noexcept;
}

extern "C" {
/* Declared under other names, so that the compiler assumes nothing about them. */
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

/* The addresses that the loader has bound. Volatile, so that the compiler does not replace them by
 * the functions of this file. */
#define CXX_BOUND(name, symbol) decltype(&symbol) const volatile name = symbol
CXX_BOUND(bound_new, cxx_new);
CXX_BOUND(bound_new_array, cxx_new_array);
CXX_BOUND(bound_new_aligned, cxx_new_aligned);
CXX_BOUND(bound_new_array_aligned, cxx_new_array_aligned);
CXX_BOUND(bound_delete, cxx_delete);
CXX_BOUND(bound_delete_array, cxx_delete_array);
CXX_BOUND(bound_delete_aligned, cxx_delete_aligned);
CXX_BOUND(bound_delete_array_aligned, cxx_delete_array_aligned);

/* --- kinds: the secure form knows whether an object is from malloc, new or new[] --- */

/* Changes the kind of an object, if it has the kind `from`. Returns `pointer`. */
inline void *cxx_change_kind(void *pointer, enum secure_state from, enum secure_state to)
{
    if (secure_has_kinds() && short_code_is_class(short_code(pointer)) &&
        secure_state_of(pointer) == from) {
        hak__secure_set_kind(pointer, to);
    }
    return pointer;
}

inline void *cxx_from_new(void *pointer)
{
    return cxx_change_kind(pointer, SECURE_MALLOC, SECURE_NEW);
}

inline void *cxx_from_new_array(void *pointer)
{
    return cxx_change_kind(pointer, SECURE_NEW, SECURE_NEW_ARRAY);
}

/* Before a delete[], which calls the plain form of delete. */
inline void cxx_to_delete_array(void *pointer)
{
    if (secure_has_kinds() && bound_new_array == cxx_own_new_array &&
        short_code_is_class(short_code(pointer))) {
        if (HAK_UNLIKELY(secure_state_of(pointer) != SECURE_NEW_ARRAY)) {
            (void)hak__secure_judge(pointer, owner_class(short_code(pointer)), SECURE_NEW_ARRAY);
        }
        hak__secure_set_kind(pointer, SECURE_NEW);
    }
}

HAK_COLD void cxx_report_size(const void *pointer, size_t size)
{
    if (atomic_load_relaxed(&hak__knobs.abort_on_size)) {
        hak__diagnose_given("delete with another size than that of new", size, pointer, 0);
    }
}

/* Before a sized delete: an object of another size or state was not made by this new or new[]. The
 * compiler passes the size of an array if its elements have destructors. */
inline void cxx_check_size(const void *pointer, size_t size, enum secure_state state)
{
    if (!secure_has_kinds() ||
        (state == SECURE_NEW_ARRAY && bound_new_array != cxx_own_new_array)) {
        return;
    }
    bool is_object = short_code_is_class(short_code(pointer));
    if ((!is_object || secure_state_of(pointer) == state) &&
        HAK_UNLIKELY(!short_size_is_right(pointer, size))) {
        cxx_report_size(pointer, size);
    }
}

/* --- no memory --- */

/* What new needs of the C++ runtime, for when the loader has bound nothing of it. */
struct cxx_runtime {
    std::new_handler (*get_new_handler)();
    void *(*allocate_exception)(size_t size);
    void (*throw_exception)(void *exception, void *type, void (*destructor)(void *));
    void (*destroy_bad_alloc)(void *exception);
    void *bad_alloc_type;
    void *bad_alloc_table;
};

/* Looks up `name` in a library. False: it is not there. */
template <typename Pointer>
bool cxx_find(void *library, const char *name, Pointer *pointer)
{
    *pointer = reinterpret_cast<Pointer>(dlsym(library, name));
    return *pointer != nullptr;
}

/* Finds the runtime of a C++ library that the program has loaded privately. False: there is none.
 */
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
            close(library); /* the library that uses it keeps it loaded */
        }
    }
    return found;
}

/* Throws std::bad_alloc without a bound runtime. The object is one pointer into its virtual table,
 * past the table's offset and type (Itanium C++ ABI, 2.5.2). */
void cxx_throw_by(const cxx_runtime *runtime)
{
    void *exception = runtime->allocate_exception(sizeof(std::bad_alloc));
    *static_cast<void **>(exception) = static_cast<void **>(runtime->bad_alloc_table) + 2;
    runtime->throw_exception(exception, runtime->bad_alloc_type, runtime->destroy_bad_alloc);
}

/* Calls the program's new handler until an allocation succeeds. The handler may free memory, throw,
 * or end the process. nullptr: there is no handler, or it has removed itself. */
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

/* As new_failed, without a bound runtime. */
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

/* The allocation has failed: asks the new handler, or throws std::bad_alloc. */
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

/* As new_failed, but returns nullptr instead of throwing. Without a bound runtime nothing that a
 * handler throws could be caught here, so no handler is called. */
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

/* Off the fast path. The process's malloc comes first, as in the C++ library's new. */
void *new_allocate(size_t size)
{
    void *theirs;
    return hak__family_allocate(OBJECT_ALIGNMENT, size, &theirs) ? theirs : hak__malloc_slow(size);
}

HAK_NOINLINE void *new_slow(size_t size)
{
    void *pointer = new_allocate(size);
    return HAK_LIKELY(pointer != nullptr) ? pointer : new_failed(size, OBJECT_ALIGNMENT);
}

HAK_NOINLINE void *new_slow_nothrow(size_t size) noexcept
{
    void *pointer = new_allocate(size);
    return HAK_LIKELY(pointer != nullptr) ? pointer : new_failed_nothrow(size, OBJECT_ALIGNMENT);
}

HAK_NOINLINE void *new_aligned_slow(size_t size, size_t alignment)
{
    void *pointer = hak__aligned_slow(alignment, size);
    return HAK_LIKELY(pointer != nullptr) ? pointer : new_failed(size, alignment);
}

HAK_NOINLINE void *new_aligned_slow_nothrow(size_t size, size_t alignment) noexcept
{
    void *pointer = hak__aligned_slow(alignment, size);
    return HAK_LIKELY(pointer != nullptr) ? pointer : new_failed_nothrow(size, alignment);
}

/* Calls the program's own throwing form; nullptr if that throws. */
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
    return cxx_from_new(HAK_LIKELY(object != nullptr) ? object
                                                      : new_aligned_slow_nothrow(size, alignment));
}

} // namespace

/* --- new --- */

static HAK_NOINLINE void *cxx_new_slow(size_t size)
{
    return cxx_from_new(new_slow(size));
}

CXX_OPERATOR HAK_FAST_PATH void *operator new(size_t size)
{
    return malloc_fast(size, cxx_new_slow, secure_new_state());
}

CXX_OPERATOR void *operator new(size_t size, std::align_val_t align)
{
    size_t alignment = static_cast<size_t>(align);
    void *object = short_aligned(alignment, size);
    return cxx_from_new(HAK_LIKELY(object != nullptr) ? object : new_aligned_slow(size, alignment));
}

CXX_OPERATOR void *operator new[](size_t size)
{
    return cxx_from_new_array(bound_new(size));
}

CXX_OPERATOR void *operator new[](size_t size, std::align_val_t align)
{
    return cxx_from_new_array(bound_new_aligned(size, align));
}

/* The four operators above under names that no program can replace. */
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
    return cxx_from_new(malloc_fast(size, new_slow_nothrow, SECURE_MALLOC));
}

CXX_OPERATOR void *operator new[](size_t size, const std::nothrow_t &) noexcept
{
    if (HAK_UNLIKELY(bound_new_array != cxx_own_new_array || bound_new != cxx_own_new)) {
        return new_theirs([=] { return bound_new_array(size); });
    }
    return cxx_from_new_array(cxx_from_new(malloc_fast(size, new_slow_nothrow, SECURE_MALLOC)));
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
    return cxx_from_new_array(new_aligned_nothrow(size, align));
}

/* --- delete --- */

CXX_OPERATOR void operator delete[](void *pointer) noexcept
{
    cxx_to_delete_array(pointer);
    bound_delete(pointer);
}

/* Only debug builds and the secure form check the size. Release builds do not need it: the slab
 * knows it. */
extern "C" void cxx_delete_sized(void *pointer, size_t size) noexcept
{
    cxx_check_size(pointer, size, SECURE_NEW);
    if (HAK_LEVEL >= 1 && !HAK_SECURE && bound_delete == hak_free && !hak__family_is_other()) {
        hak_free_sized(pointer, size);
        return;
    }
    bound_delete(pointer);
}

#if HAK_SECURE
/* False: the program has its own new, delete or malloc, which may use hakmem's. Or it started
 * without a C++ library: then it may contain one (-static-libstdc++), whose delete only it sees,
 * and get objects from plug-ins, whose new is this one. */
bool hak__secure_kinds()
{
    return bound_new == cxx_own_new && bound_delete == cxx_own_delete && cxx_throw != nullptr &&
           !hak__family_is_other();
}
#else /* in the secure form it is in libc.c */
CXX_OPERATOR void operator delete(void *pointer, size_t size) noexcept
{
    cxx_delete_sized(pointer, size);
}
#endif

CXX_OPERATOR void operator delete[](void *pointer, size_t size) noexcept
{
    cxx_check_size(pointer, size, SECURE_NEW_ARRAY);
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
    cxx_to_delete_array(pointer);
    bound_delete_aligned(pointer, align);
}

CXX_OPERATOR void operator delete(void *pointer, size_t size, std::align_val_t align) noexcept
{
    cxx_check_size(pointer, size, SECURE_NEW);
    bound_delete_aligned(pointer, align);
}

CXX_OPERATOR void operator delete[](void *pointer, size_t size, std::align_val_t align) noexcept
{
    cxx_check_size(pointer, size, SECURE_NEW_ARRAY);
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
