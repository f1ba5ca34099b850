/* SPDX-License-Identifier: MIT */
/* deepbind_cxx.h: what test_deepbind_cxx.cc and its library both have: each makes objects by all
 * kinds of new, and destroys those of the other. */
#ifndef TESTS_DEEPBIND_CXX_H
#define TESTS_DEEPBIND_CXX_H

#include <cstddef>
#include <new>
#include <string>
#include <vector>

enum { DEEPBIND_CXX_KINDS = 6 };

struct deepbind_cxx_calls {
    void *(*make)(int kind, size_t size);
    void (*destroy)(int kind, void *object, size_t size);
    std::vector<std::string> (*make_strings)(size_t count);
    void (*fail)();
};

/* static: each side uses the operators that its own names are bound to. */
static inline void *deepbind_cxx_make(int kind, size_t size)
{
    switch (kind) {
    case 0:
        return ::operator new(size);
    case 1:
        return ::operator new[](size);
    case 2:
        return ::operator new(size, std::nothrow);
    case 3:
        return ::operator new[](size, std::nothrow);
    case 4:
        return ::operator new(size, std::align_val_t(256));
    default:
        return ::operator new[](size, std::align_val_t(256));
    }
}

static inline void deepbind_cxx_destroy(int kind, void *object, size_t size)
{
    switch (kind) {
    case 0:
        ::operator delete(object, size);
        break;
    case 1:
        ::operator delete[](object);
        break;
    case 2:
        ::operator delete(object, std::nothrow);
        break;
    case 3:
        ::operator delete[](object, std::nothrow);
        break;
    case 4:
        ::operator delete(object, size, std::align_val_t(256));
        break;
    default:
        ::operator delete[](object, std::align_val_t(256));
    }
}

#endif
