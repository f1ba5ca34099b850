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

/* What is thrown is a C++ program's, and the handler has been asked as often as it wished. */
template <typename Exception, typename Call>
bool throws(std::new_handler handler, Call call)
{
    calls_left = 3;
    std::set_new_handler(handler);
    try {
        call();
    } catch (const Exception &error) {
        std::set_new_handler(nullptr);
        return !std::string(error.what()).empty() &&
               (handler != counting_handler || calls_left == 0);
    }
    return false;
}

} // namespace

EXPORT int plugin_cxx_works()
{
    const size_t huge = opaque(SIZE_MAX / 2);
    const auto align = static_cast<std::align_val_t>(256);
    std::map<std::string, std::vector<int>> map;
    for (int i = 0; i < 20000; i++) {
        map["key" + std::to_string(i % 500)].push_back(i);
    }
    const std::new_handler none = nullptr;
    return map.size() == 500 && map["key7"].size() == 40 &&
           ::operator new(huge, std::nothrow) ==
               nullptr &&throws<std::bad_alloc>(none, [=] { opaque(::operator new(huge)); }) &&
           throws<std::bad_alloc>(none, [=] { opaque(::operator new[](huge)); }) &&
           throws<std::bad_alloc>(none, [=] { opaque(::operator new(huge, align)); }) &&
           throws<std::bad_alloc>(none, [=] { opaque(::operator new[](huge, align)); }) &&
           throws<std::bad_alloc>(counting_handler, [=] { opaque(::operator new(huge)); }) &&
           throws<std::runtime_error>(throwing_handler, [=] { opaque(::operator new(huge)); });
}
