/* SPDX-License-Identifier: MIT */
/* test_cxx.cc: operator new and delete in all forms, and what they do when memory runs out.
 *
 * ctest: no-qemu
 */
#include "override.h"

#include <malloc.h>
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

const size_t huge_size = static_cast<size_t>(PTRDIFF_MAX);

bool is_aligned(const void *pointer, size_t alignment)
{
    return (reinterpret_cast<uintptr_t>(pointer) & (alignment - 1)) == 0;
}

/* --- each form with its partner ------------------------------------------------------------ */

void check_block(void *block, size_t size, size_t alignment)
{
    CHECK(block != nullptr);
    CHECK(is_aligned(block, alignment));
    CHECK(malloc_usable_size(block) >= size);
    memset(opaque_pointer(block), 0x77, size);
}

void test_plain_forms(size_t size)
{
    const size_t natural = __STDCPP_DEFAULT_NEW_ALIGNMENT__;
    void *block = ::operator new(opaque_size(size));
    check_block(block, size, natural);
    ::operator delete(block);
    block = ::operator new(opaque_size(size));
    check_block(block, size, natural);
    ::operator delete(block, size);
    block = ::operator new(opaque_size(size), std::nothrow);
    check_block(block, size, natural);
    ::operator delete(block, std::nothrow);
    block = ::operator new[](opaque_size(size));
    check_block(block, size, natural);
    ::operator delete[](block);
    block = ::operator new[](opaque_size(size));
    check_block(block, size, natural);
    ::operator delete[](block, size);
    block = ::operator new[](opaque_size(size), std::nothrow);
    check_block(block, size, natural);
    ::operator delete[](block, std::nothrow);
}

void test_aligned_forms(size_t size, size_t alignment)
{
    const auto align = static_cast<std::align_val_t>(alignment);
    void *block = ::operator new(opaque_size(size), align);
    check_block(block, size, alignment);
    ::operator delete(block, align);
    block = ::operator new(opaque_size(size), align);
    check_block(block, size, alignment);
    ::operator delete(block, size, align);
    block = ::operator new(opaque_size(size), align, std::nothrow);
    check_block(block, size, alignment);
    ::operator delete(block, align, std::nothrow);
    block = ::operator new[](opaque_size(size), align);
    check_block(block, size, alignment);
    ::operator delete[](block, align);
    block = ::operator new[](opaque_size(size), align);
    check_block(block, size, alignment);
    ::operator delete[](block, size, align);
    block = ::operator new[](opaque_size(size), align, std::nothrow);
    check_block(block, size, alignment);
    ::operator delete[](block, align, std::nothrow);
}

void test_null_deletes()
{
    const auto none = [] { return opaque_pointer(nullptr); };
    const auto align = static_cast<std::align_val_t>(64);
    ::operator delete(none());
    ::operator delete (none(), size_t{16});
    ::operator delete(none(), std::nothrow);
    ::operator delete(none(), align);
    ::operator delete (none(), size_t{16}, align);
    ::operator delete (none(), size_t{0}, align); /* zero-size aligned delete: jemalloc PR #2991 */
    ::operator delete(none(), align, std::nothrow);
    ::operator delete[](none());
    ::operator delete[](none(), size_t{16});
    ::operator delete[](none(), std::nothrow);
    ::operator delete[](none(), align);
    ::operator delete[](none(), size_t{16}, align);
    ::operator delete[](none(), size_t{0}, align);
    ::operator delete[](none(), align, std::nothrow);
}

void test_all_forms()
{
    const size_t sizes[] = {0,    1,     16,    24,     100,     1024,   1025,
                            9000, 65664, 65665, 800000, 2097153, 9000000};
    for (size_t size : sizes) {
        test_plain_forms(size);
        for (size_t alignment = 1; alignment <= (size_t{1} << 23); alignment *= 4) {
            test_aligned_forms(size, alignment);
        }
    }
    void *first = ::operator new(opaque_size(0));
    void *second = ::operator new(opaque_size(0));
    CHECK(first != second);
    ::operator delete (first, size_t{0});
    ::operator delete (second, size_t{0});
    test_null_deletes();
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

void test_failures_without_handler(enum served served)
{
    const auto align = static_cast<std::align_val_t>(256);
    for (size_t impossible : {huge_size, huge_size + 1, SIZE_MAX - 64, SIZE_MAX}) {
        if (impossible > SIZE_MAX - 256 && served == SERVED_BY_OTHER) {
            continue; /* libstdc++ 12 rounds the size up to the alignment, past zero */
        }
        const size_t size = opaque_size(impossible);
        CHECK(throws_bad_alloc([=] { return ::operator new(size); }));
        CHECK(throws_bad_alloc([=] { return ::operator new[](size); }));
        CHECK(throws_bad_alloc([=] { return ::operator new(size, align); }));
        CHECK(throws_bad_alloc([=] { return ::operator new[](size, align); }));
        CHECK(::operator new(size, std::nothrow) == nullptr);
        CHECK(::operator new[](size, std::nothrow) == nullptr);
        CHECK(::operator new(size, align, std::nothrow) == nullptr);
        CHECK(::operator new[](size, align, std::nothrow) == nullptr);
    }
    CHECK(throws_bad_alloc([] { return new char[opaque_size(huge_size)]; }));
    bool thrown = false;
    try {
        std::vector<char> vector(opaque_size(huge_size - 4096));
        CHECK(opaque_pointer(vector.data()) == nullptr); /* or clang drops the vector */
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    CHECK(thrown);
}

int handler_calls;

void counting_handler()
{
    /* A handler that never helps, for a while; then it takes itself away. */
    if (++handler_calls == 5) {
        std::set_new_handler(nullptr);
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

template <typename Call>
int calls_until_gone(Call call)
{
    handler_calls = 0;
    std::set_new_handler(counting_handler);
    call();
    CHECK(std::get_new_handler() == nullptr);
    return handler_calls;
}

void test_handler_is_called_in_a_loop()
{
    const auto align = static_cast<std::align_val_t>(256);
    const size_t size = opaque_size(huge_size);
    CHECK_EQUAL(
        calls_until_gone([=] { CHECK(throws_bad_alloc([=] { return ::operator new(size); })); }),
        5);
    CHECK_EQUAL(calls_until_gone([=] {
                    CHECK(throws_bad_alloc([=] { return ::operator new[](size, align); }));
                }),
                5);
    CHECK_EQUAL(calls_until_gone([=] { CHECK(::operator new(size, std::nothrow) == nullptr); }), 5);
    CHECK_EQUAL(
        calls_until_gone([=] { CHECK(::operator new[](size, align, std::nothrow) == nullptr); }),
        5);
}

void test_handler_may_throw()
{
    const size_t size = opaque_size(huge_size);
    handler_calls = 0;
    std::set_new_handler(throwing_handler);
    int caught = 0;
    try {
        ::operator delete(::operator new(size));
    } catch (const out_of_patience &patience) {
        caught = patience.calls;
    }
    CHECK_EQUAL(caught, 3);
    /* The nothrow forms turn the handler's exception into a null pointer. */
    std::set_new_handler(throwing_bad_alloc_handler);
    handler_calls = 0;
    CHECK(::operator new(size, std::nothrow) == nullptr);
    CHECK(::operator new[](size, std::nothrow) == nullptr);
    CHECK(::operator new(size, static_cast<std::align_val_t>(64), std::nothrow) == nullptr);
    CHECK_EQUAL(handler_calls, 3);
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

const size_t large = size_t{40} << 20;

void run_with_limit()
{
    std::vector<void *> blocks;
    blocks.reserve(100000);
    ballast = new char[2 * large];
    ballast[0] = 1;
    for (;;) {
        void *block = ::operator new(opaque_size(large), std::nothrow);
        if (block == nullptr) {
            break;
        }
        blocks.push_back(block);
    }
    CHECK(!blocks.empty()); /* else the limit left no room for the experiment */
    std::set_new_handler(releasing_handler);
    handler_calls = 0;
    void *block = ::operator new(opaque_size(large));
    CHECK(block != nullptr);
    CHECK_EQUAL(handler_calls, 1);
    memset(block, 1, large);
    ::operator delete(block);
    for (void *one : blocks) {
        ::operator delete(one);
    }
    /* After all that an ordinary program goes on. */
    std::string text;
    for (int i = 0; i < 100000; i++) {
        text += 'x';
    }
    CHECK_EQUAL(text.size(), 100000);
}

void test_handler_may_release(const char *self)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        char command[TEST_PATH_SIZE + 100];
        snprintf(command, sizeof command, "ulimit -v 1000000; exec '%s' with-limit", self);
        execl("/bin/sh", "sh", "-c", command, static_cast<char *>(nullptr));
        _exit(126);
    }
    wait_for_success(child, "new under ulimit -v");
}

} // namespace

int main(int argc, char **argv)
{
    const enum served served = prove_served();
    if (argc > 1 && strcmp(argv[1], "with-limit") == 0) {
        run_with_limit();
        return 0;
    }
    char self[TEST_PATH_SIZE];
    own_path(self);
    test_all_forms();
    test_failures_without_handler(served);
    test_handler_is_called_in_a_loop();
    test_handler_may_throw();
    test_handler_may_release(self);
    return 0;
}
