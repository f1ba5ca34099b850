/* SPDX-License-Identifier: MIT */
/* test_deepbind_cxx.cc: a C++ library loaded with RTLD_DEEPBIND and its C++ program destroy each
 * other's objects, by all kinds of delete. The secure form knows the kind of each object.
 * ctest: preload-only no-qemu */
#include "override.h"

#include "deepbind_cxx.h"

static void exchange(const deepbind_cxx_calls &theirs)
{
    for (size_t size = 1; size < 1000000; size = size * 3 + 1) {
        for (int kind = 0; kind < DEEPBIND_CXX_KINDS; kind++) {
            const deepbind_cxx_kind &mine = deepbind_cxx_kinds[kind], &other = theirs.kinds[kind];
            mine.destroy(opaque_pointer(other.make(size)), size);
            other.destroy(opaque_pointer(mine.make(size)), size);
        }
    }
    std::vector<std::string> strings = theirs.make_strings(100);
    strings.resize(1000, "a string that needs memory of its own");
    strings.clear();
    strings.shrink_to_fit();
    bool caught = false;
    try {
        theirs.fail();
    } catch (const std::bad_alloc &) {
        caught = true;
    }
    CHECK(caught);
}

int main()
{
    char path[TEST_PATH_SIZE];
    prove_preloaded();
    plugin_path("deepbind_cxx", path);
    uintptr_t calls =
        find_in(loaded(dlopen(path, RTLD_LAZY | RTLD_DEEPBIND)), "plugin_deepbind_cxx");
    exchange(*reinterpret_cast<const deepbind_cxx_calls *>(calls));
    return 0;
}
