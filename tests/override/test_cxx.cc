/* SPDX-License-Identifier: MIT */
/* test_cxx.cc: operator new and delete in all forms, and what they do when memory runs out.
 *
 * ctest: no-qemu
 */
#include "override.h"

#include <new>
#include <string>
#include <vector>

#ifndef __cpp_sized_deallocation
/* clang declares them only when told to use them itself. */
void operator delete(void *pointer, size_t size) noexcept;
void operator delete[](void *pointer, size_t size) noexcept;
void operator delete(void *pointer, size_t size, std::align_val_t alignment) noexcept;
void operator delete[](void *pointer, size_t size, std::align_val_t alignment) noexcept;
#endif

namespace
{

using std::align_val_t;
using std::nothrow;

const size_t huge_size = static_cast<size_t>(PTRDIFF_MAX);
const size_t natural = __STDCPP_DEFAULT_NEW_ALIGNMENT__;

/* Each form of new, which throws or returns a null pointer, with its partner. */
struct form {
    void *(*make)(size_t size, align_val_t alignment);
    void (*destroy)(void *block, size_t size, align_val_t alignment);
    bool aligned, throws;
};

#define FORM(make, destroy, aligned, throws)                                                       \
    {                                                                                              \
        [](size_t n, align_val_t a) { return ::operator make; },                                   \
            [](void *p, size_t n, align_val_t a) { ::operator destroy; }, aligned, throws          \
    }

const form forms[] = {
    FORM(new (n), delete (p), false, true),
    FORM(new (n), delete (p, n), false, true),
    FORM(new (n, nothrow), delete (p, nothrow), false, false),
    FORM(new[](n), delete[](p), false, true),
    FORM(new[](n), delete[](p, n), false, true),
    FORM(new[](n, nothrow), delete[](p, nothrow), false, false),
    FORM(new (n, a), delete (p, a), true, true),
    FORM(new (n, a), delete (p, n, a), true, true),
    FORM(new (n, a, nothrow), delete (p, a, nothrow), true, false),
    FORM(new[](n, a), delete[](p, a), true, true),
    FORM(new[](n, a), delete[](p, n, a), true, true),
    FORM(new[](n, a, nothrow), delete[](p, a, nothrow), true, false),
};

void test_form(const form &form, size_t size, size_t alignment)
{
    const auto align = static_cast<align_val_t>(alignment);
    void *block = opaque_pointer(form.make(opaque_size(size), align));
    CHECK(block != nullptr);
    CHECK_EQUAL(reinterpret_cast<uintptr_t>(block) % (form.aligned ? alignment : natural), 0);
    CHECK(malloc_usable_size(block) >= size);
    memset(block, 0x77, size);
    void *other = form.make(opaque_size(size), align);
    CHECK(other != block);
    form.destroy(block, size, align);
    form.destroy(other, size, align);
    /* zero-size aligned delete: jemalloc PR #2991 */
    form.destroy(static_cast<void *>(opaque_pointer(nullptr)), size, align);
}

void test_all_forms()
{
    const size_t sizes[] = {0,    1,     16,    24,     100,     1024,   1025,
                            9000, 65664, 65665, 800000, 2097153, 9000000};
    for (const form &form : forms) {
        for (size_t size : sizes) {
            for (size_t alignment = 1; alignment <= (size_t{1} << 23); alignment *= 4) {
                test_form(form, size, alignment);
            }
        }
    }
}

/* --- out of memory ------------------------------------------------------------------------- */

template <typename Call>
bool throws_bad_alloc(Call call)
{
    try {
        void *block = opaque_pointer(call());
        CHECK(block == nullptr); /* never: prints that memory came back */
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

bool fails_as_it_should(const form &form, size_t size)
{
    const auto call = [=] { return form.make(opaque_size(size), align_val_t{256}); };
    return throws_bad_alloc(call) == form.throws;
}

void test_failures_without_handler()
{
    for (size_t impossible : {huge_size, huge_size + 1, SIZE_MAX - 64, SIZE_MAX}) {
        for (const form &form : forms) {
            CHECK(fails_as_it_should(form, impossible));
        }
    }
    CHECK(throws_bad_alloc([] { return new char[opaque_size(huge_size)]; }));
}

int handler_calls;

void counting_handler()
{
    /* A handler that never helps, for a while; then it takes itself away. */
    if (++handler_calls == 5) {
        std::set_new_handler(nullptr);
    }
}

void test_handler_is_called_in_a_loop()
{
    for (const form &form : forms) {
        handler_calls = 0;
        std::set_new_handler(counting_handler);
        CHECK(fails_as_it_should(form, huge_size));
        CHECK(std::get_new_handler() == nullptr);
        CHECK_EQUAL(handler_calls, 5);
    }
}

struct out_of_patience {
    int calls;
};

void throwing_handler()
{
    if (++handler_calls == 3) {
        throw out_of_patience{handler_calls};
    }
}

void throwing_bad_alloc_handler()
{
    handler_calls++;
    throw std::bad_alloc();
}

void test_handler_may_throw()
{
    handler_calls = 0;
    std::set_new_handler(throwing_handler);
    int caught = 0;
    try {
        ::operator delete(::operator new(opaque_size(huge_size)));
    } catch (const out_of_patience &patience) {
        caught = patience.calls;
    }
    CHECK_EQUAL(caught, 3);
    /* The nothrow forms turn the handler's exception into a null pointer. */
    std::set_new_handler(throwing_bad_alloc_handler);
    for (const form &form : forms) {
        handler_calls = 0;
        CHECK(fails_as_it_should(form, huge_size));
        CHECK_EQUAL(handler_calls, 1);
    }
    std::set_new_handler(nullptr);
}

/* Under a limit on the address space the handler gives memory back and new succeeds. */
char *ballast;

void releasing_handler()
{
    handler_calls++;
    CHECK(ballast != nullptr);
    delete[] ballast;
    ballast = nullptr;
}

void test_handler_may_release()
{
    const size_t large = size_t{40} << 20;
    /* Half a block more than whole ones take: else a page that a failed malloc gives back decides
     * whether the next one fails. */
    const rlim_t bytes = proc_bytes("/proc/self/status", "\nVmSize:") + 10 * large + large / 2;
    const struct rlimit limit = {bytes, bytes};
    std::vector<void *> blocks;
    blocks.reserve(100000);
    ballast = new char[2 * large];
    ballast[0] = 1;
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    for (void *block; (block = ::operator new(opaque_size(large), nothrow)) != nullptr;) {
        blocks.push_back(block);
    }
    CHECK(!blocks.empty()); /* else the limit left no room for the experiment */
    std::set_new_handler(releasing_handler);
    handler_calls = 0;
    void *block = ::operator new(opaque_size(large));
    CHECK_EQUAL(handler_calls, 1);
    memset(block, 1, large);
    ::operator delete(block);
    for (void *one : blocks) {
        ::operator delete(one);
    }
}

} // namespace

int main()
{
    prove_served();
    test_all_forms();
    test_failures_without_handler();
    test_handler_is_called_in_a_loop();
    test_handler_may_throw();
    test_handler_may_release();
    return 0;
}
