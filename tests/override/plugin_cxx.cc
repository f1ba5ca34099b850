/* SPDX-License-Identifier: MIT */
/* plugin_cxx.cc: a C++ library for programs that are not C++: test_cxx_plugin loads it. */
#include <cstddef>
#include <cstdint>
#include <map>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int plugin_cxx_catches(int form);
EXPORT int plugin_cxx_handler_calls();
EXPORT int plugin_cxx_handler_exception();
EXPORT int plugin_cxx_works();

namespace
{

template <typename Value>
Value opaque(Value value)
{
    __asm__ volatile("" : "+r"(value));
    return value;
}

int calls_left;

void counting_handler()
{
    if (--calls_left == 0) {
        std::set_new_handler(nullptr);
    }
}

void throwing_handler()
{
    throw std::runtime_error("from the handler");
}

void *fail(int form)
{
    const size_t size = opaque(SIZE_MAX / 2);
    const auto align = static_cast<std::align_val_t>(256);
    switch (form) {
    case 0:
        return ::operator new(size);
    case 1:
        return ::operator new[](size);
    case 2:
        return ::operator new(size, align);
    default:
        return ::operator new[](size, align);
    }
}

} // namespace

/* 1 when a new that cannot succeed throws what a C++ program expects. */
EXPORT int plugin_cxx_catches(int form)
{
    try {
        return opaque(fail(form)) == nullptr ? 0 : -1;
    } catch (const std::bad_alloc &error) {
        return std::string(error.what()).empty() ? 0 : 1;
    } catch (...) {
        return -2;
    }
}

/* How often the new handler is asked before it gives up after 3. */
EXPORT int plugin_cxx_handler_calls()
{
    calls_left = 3;
    std::set_new_handler(counting_handler);
    return plugin_cxx_catches(0) == 1 ? 3 - calls_left : -1;
}

/* 1 when the handler's own exception comes through. */
EXPORT int plugin_cxx_handler_exception()
{
    std::set_new_handler(throwing_handler);
    int result = 0;
    try {
        ::operator delete(opaque(fail(0)));
    } catch (const std::runtime_error &) {
        result = 1;
    }
    std::set_new_handler(nullptr);
    return result;
}

EXPORT int plugin_cxx_works()
{
    std::map<std::string, std::vector<int>> map;
    for (int i = 0; i < 20000; i++) {
        map["key" + std::to_string(i % 500)].push_back(i);
    }
    const size_t huge = opaque(SIZE_MAX / 2);
    bool refused = ::operator new(huge, std::nothrow) == nullptr;
    return map.size() == 500 && map["key7"].size() == 40 && refused ? 1 : 0;
}
