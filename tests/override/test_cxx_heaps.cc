/* SPDX-License-Identifier: MIT */
/* test_cxx_heaps.cc: hakmem.hpp: containers with its allocators and memory resources, on hakmem and
 * in heaps; failures throw. site.h in C++: scopes nest, and exceptions leave them.
 * ctest: static-only */
#include "override.h"

#include <hakmem/hakmem.hpp>
#include <hakmem/site.h>
#include <hakmem/stats.h>

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace
{

struct alignas(128) wide {
    int values[40];
};

template <typename Vector>
void fill(Vector &numbers)
{
    for (int i = 0; i < 10000; i++) {
        numbers.push_back(i);
    }
    for (int i = 0; i < 10000; i++) {
        CHECK_EQUAL(numbers[static_cast<size_t>(i)], i);
    }
}

void allocators()
{
    std::vector<int, hak::allocator<int>> numbers;
    fill(numbers);
    CHECK(hak_owns(numbers.data()));
    auto copy = numbers;
    copy.swap(numbers);
    std::map<int, std::string, std::less<int>, hak::allocator<std::pair<const int, std::string>>>
        names;
    names[3] = "three";
    CHECK(hak_owns(&names[3]));
    std::vector<wide, hak::allocator<wide>> wides(5);
    CHECK_EQUAL(reinterpret_cast<uintptr_t>(wides.data()) % 128, 0);
    CHECK(hak::allocator<int>() == hak::allocator<char>());
    CHECK(!(hak::allocator<int>() != hak::allocator<char>()));
}

void resources()
{
    hak::memory_resource resource, same;
    CHECK(resource == same && !(resource == *std::pmr::new_delete_resource()));
    std::pmr::vector<wide> wides(5, &resource);
    CHECK_EQUAL(reinterpret_cast<uintptr_t>(wides.data()) % 128, 0);
    CHECK(hak_owns(wides.data()));
}

void heaps()
{
    hak::heap heap, other;
    CHECK(heap == heap);
    CHECK(!(heap == other));
    {
        std::pmr::vector<int> numbers(&heap);
        fill(numbers);
        CHECK(hak_heap_owns(heap.get(), numbers.data()));
        std::pmr::unordered_map<int, std::pmr::string> names(&heap);
        for (int i = 0; i < 1000; i++) {
            names[i] = std::pmr::string(100, 'x');
        }
        std::pmr::vector<wide> wides(5, &heap);
        CHECK_EQUAL(reinterpret_cast<uintptr_t>(wides.data()) % 128, 0);
        std::list<int, hak::heap_allocator<int>> list{hak::heap_allocator<int>(heap)};
        std::deque<int, hak::heap_allocator<int>> deque{hak::heap_allocator<int>(heap)};
        std::thread worker([&] {
            for (int i = 0; i < 1000; i++) {
                list.push_back(i);
            }
        });
        worker.join();
        fill(deque);
        CHECK(list.get_allocator() == deque.get_allocator());
        std::list<int, hak::heap_allocator<int>> elsewhere{hak::heap_allocator<int>(other)};
        CHECK(list.get_allocator() != elsewhere.get_allocator());
        elsewhere = list; /* copies into the other heap */
        CHECK(hak_heap_owns(other.get(), &elsewhere.front()));
        elsewhere = std::move(list); /* takes over nodes and allocator */
        CHECK(hak_heap_owns(heap.get(), &elsewhere.front()));
        CHECK(heap.stats().objects_in_use_count > 3000);
    }
    hak_heap_trim(heap.get());
    CHECK_EQUAL(heap.stats().objects_in_use_count, 0);
    CHECK_EQUAL(other.stats().objects_in_use_count, 0);
}

/* Objects that nobody destroys are freed by the heap's destructor. */
void arena()
{
    struct hak_stats before, after;
    hak_stats_get(&before);
    {
        hak::heap heap;
        hak::heap_allocator<char>(heap).allocate(100);
    }
    hak_stats_get(&after);
    CHECK_EQUAL(after.bytes_in_use, before.bytes_in_use);
}

template <typename Action>
bool throws(Action action)
{
    try {
        action();
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

void failures()
{
    static char memory[64 * 1024 + 3];
    hak::heap heap(memory + 3, sizeof memory - 3);
    CHECK(throws([&] { std::pmr::vector<int>(100000, &heap); }));
    CHECK(throws([&] { hak::heap_allocator<int>(heap).allocate(SIZE_MAX / 2); }));
    CHECK(throws([&] { hak::allocator<int>().allocate(SIZE_MAX / 2); }));
    volatile size_t much = SIZE_MAX / 2 + 1; /* no warning about it */
    CHECK(throws([&] { hak::allocator<char>().allocate(much); }));
    CHECK(throws([&] { hak::heap small(memory, 100); }));
    hak_heap_options options = {};
    CHECK(throws([&] { hak::heap none(options); }));
    std::pmr::vector<char> bytes(20000, 'x', &heap);
    CHECK(bytes.data() >= memory && bytes.data() + 20000 <= memory + sizeof memory);
}

uintptr_t current_site()
{
    uintptr_t site = hak_site_enter(0);
    hak_site_leave(site);
    return site;
}

/* Each instance of a template has its own kept id, of the same name. */
template <int>
uintptr_t site_of_template()
{
    return HAK_SITE("template");
}

void sites()
{
    const hak::site_scope outer(HAK_SITE("outer"));
    try {
        HAK_SITE_SCOPE("macro");
        CHECK_EQUAL(current_site(), hak_site_register("macro"));
        throw std::bad_alloc();
    } catch (const std::bad_alloc &) {
    }
    CHECK_EQUAL(current_site(), hak_site_register("outer"));
    std::thread([] { CHECK_EQUAL(current_site(), 0); }).join();
    CHECK_EQUAL(site_of_template<1>(), site_of_template<2>());
    CHECK(site_of_template<1>() != hak_site_register("outer"));
}

} // namespace

int main()
{
    prove_served();
    allocators();
    resources();
    heaps();
    arena();
    failures();
    sites();
    return 0;
}
