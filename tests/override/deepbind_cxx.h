/* SPDX-License-Identifier: MIT */
/* deepbind_cxx.h: what test_deepbind_cxx.cc and its library both have: each makes objects by all
 * kinds of new, and destroys those of the other. */
#ifndef TESTS_DEEPBIND_CXX_H
#define TESTS_DEEPBIND_CXX_H

#include <cstddef>
#include <new>
#include <string>
#include <vector>

struct deepbind_cxx_kind {
    void *(*make)(size_t size);
    void (*destroy)(void *object, size_t size);
};

enum { DEEPBIND_CXX_KINDS = 6 };

struct deepbind_cxx_calls {
    const deepbind_cxx_kind *kinds;
    std::vector<std::string> (*make_strings)(size_t count);
    void (*fail)();
};

static const std::align_val_t deepbind_cxx_alignment{256};

/* static: each side uses the operators that its own names are bound to. */
static const deepbind_cxx_kind deepbind_cxx_kinds[DEEPBIND_CXX_KINDS] = {
    {[](size_t size) { return ::operator new(size); },
     [](void *object, size_t size) { ::operator delete(object, size); }},
    {[](size_t size) { return ::operator new[](size); },
     [](void *object, size_t) { ::operator delete[](object); }},
    {[](size_t size) { return ::operator new(size, std::nothrow); },
     [](void *object, size_t) { ::operator delete(object, std::nothrow); }},
    {[](size_t size) { return ::operator new[](size, std::nothrow); },
     [](void *object, size_t) { ::operator delete[](object, std::nothrow); }},
    {[](size_t size) { return ::operator new(size, deepbind_cxx_alignment); },
     [](void *object, size_t size) { ::operator delete(object, size, deepbind_cxx_alignment); }},
    {[](size_t size) { return ::operator new[](size, deepbind_cxx_alignment); },
     [](void *object, size_t) { ::operator delete[](object, deepbind_cxx_alignment); }},
};

#endif
