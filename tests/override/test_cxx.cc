/* SPDX-License-Identifier: MIT */
/* test_cxx.cc: operator new and delete in all forms, what they do when memory runs out, and the
 * standard containers on top of them.
 *
 * ctest: no-qemu
 */
#include "override.h"

#include <algorithm>
#include <list>
#include <malloc.h>
#include <map>
#include <memory>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
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

/* --- workouts ------------------------------------------------------------------------------ */

struct alignas(128) wide {
    unsigned char bytes[128];
};

struct thrower {
    std::string text;
    explicit thrower(int number) : text(static_cast<size_t>(number % 500), 't')
    {
        if (number % 7 == 3) {
            throw std::runtime_error("constructor of number " + std::to_string(number));
        }
    }
};

void test_exceptions()
{
    int caught = 0;
    for (int i = 0; i < 20000; i++) {
        try {
            auto first = std::make_unique<thrower>(i);
            auto second = std::make_shared<thrower>(i + 1);
            CHECK(first->text.size() < 500 && second->text.size() < 500);
        } catch (const std::runtime_error &error) {
            caught++;
            CHECK(strstr(error.what(), "number") != nullptr);
        }
    }
    CHECK_EQUAL(caught, 5714);
}

size_t workout(uint64_t seed, int rounds)
{
    std::map<std::string, std::vector<uint32_t>> tree;
    std::unordered_map<uint64_t, std::unique_ptr<std::string>> table;
    std::list<std::string> queue;
    std::vector<wide> wides;
    size_t sum = 0;
    for (int i = 0; i < rounds; i++) {
        uint64_t number = random_next(&seed);
        std::ostringstream name;
        name << "key" << number % 400;
        auto &vector = tree[name.str()];
        vector.push_back(static_cast<uint32_t>(number));
        if (vector.size() > 300) {
            tree.erase(name.str());
        }
        table[number % 1000] = std::make_unique<std::string>(number % 3000, 'x');
        queue.push_back(*table[number % 1000]);
        if (queue.size() > 200) {
            sum += queue.front().size();
            queue.pop_front();
        }
        wides.emplace_back();
        CHECK(is_aligned(&wides.back(), 128));
        if (wides.size() > 5000) {
            std::vector<wide>().swap(wides);
        }
    }
    return sum + tree.size();
}

void test_containers()
{
    size_t expected = workout(1, 10000);
    std::vector<std::thread> threads;
    std::vector<size_t> sums(8);
    for (size_t i = 0; i < sums.size(); i++) {
        threads.emplace_back([&sums, i] { sums[i] = workout(1, 10000); });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    CHECK(std::all_of(sums.begin(), sums.end(), [=](size_t sum) { return sum == expected; }));
}

/* Containers built by one thread and destroyed by another. */
void test_handed_over()
{
    std::vector<std::unique_ptr<std::map<int, std::string>>> maps(16);
    for (int round = 0; round < 20; round++) {
        std::thread builder([&maps] {
            for (auto &map : maps) {
                map = std::make_unique<std::map<int, std::string>>();
                for (int i = 0; i < 100; i++) {
                    (*map)[i] = std::string(static_cast<size_t>(i * 10), 'm');
                }
            }
        });
        builder.join();
        std::thread breaker([&maps] {
            for (auto &map : maps) {
                CHECK_EQUAL(map->at(99).size(), 990);
                map.reset();
            }
        });
        breaker.join();
    }
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
    test_exceptions();
    test_containers();
    test_handed_over();
    return 0;
}
