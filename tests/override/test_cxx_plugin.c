/* SPDX-License-Identifier: MIT */
/* test_cxx_plugin.c: a C program (as python or nginx) that loads a C++ library, which brings the
 * C++ runtime along after hakmem has been bound without it, and privately: new throws bad_alloc and
 * calls the new handler there as in any C++ program. */
#include "override.h"

int main(void)
{
    prove_served();
    char path[TEST_PATH_SIZE];
    plugin_path("cxx", path);
    CHECK(dlsym(RTLD_DEFAULT, "__cxa_throw") == NULL); /* else this program proves nothing */
    void *library = loaded(dlopen(path, RTLD_NOW | RTLD_LOCAL));
    int (*works)(void) = (int (*)(void))find_in(library, "plugin_cxx_works");
    CHECK_EQUAL(works(), 1);
    CHECK(dlclose(library) == 0);
    return 0;
}
