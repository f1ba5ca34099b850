/* SPDX-License-Identifier: MIT */
/* plugin_deepbind_cxx.cc: a C++ library as test_deepbind_cxx loads it, with RTLD_DEEPBIND: all
 * kinds of new and delete, and an exception. */
#include "deepbind_cxx.h"

#include <cstdlib>
#include <new>
#include <string>
#include <vector>

extern "C" __attribute__((visibility("default"))) const deepbind_cxx_calls plugin_deepbind_cxx = {
    deepbind_cxx_kinds,
    [](size_t size) { return std::vector<std::string>(size, std::string(100, 'x')); },
    [] { throw std::bad_alloc(); },
};
