/* SPDX-License-Identifier: MIT */
/* test_cxx_plugin.c: a C program (as python or nginx) that loads a C++ library, which brings the
 * C++ runtime along after hakmem has been bound without it, and privately: new throws bad_alloc and
 * calls the new handler there as in any C++ program. */
#include "override.h"

typedef int plugin_function(void);
typedef int plugin_form_function(int form);

static void *find(void *library, const char *name)
{
    void *found = dlsym(library, name);
    CHECK(found != NULL);
    return found;
}

static int call(void *library, const char *name)
{
    return ((plugin_function *)(uintptr_t)find(library, name))();
}

int main(void)
{
    prove_served();
    char path[TEST_PATH_SIZE];
    plugin_path("cxx", path);
    CHECK(dlsym(RTLD_DEFAULT, "__cxa_throw") == NULL); /* else this program proves nothing */
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        dprintf(2, "%s\n", dlerror());
    }
    CHECK(library != NULL);
    CHECK_EQUAL(call(library, "plugin_cxx_works"), 1);
    for (int form = 0; form < 4; form++) {
        plugin_form_function *catches =
            (plugin_form_function *)(uintptr_t)find(library, "plugin_cxx_catches");
        CHECK_EQUAL(catches(form), 1);
    }
    CHECK_EQUAL(call(library, "plugin_cxx_handler_calls"), 3);
    CHECK_EQUAL(call(library, "plugin_cxx_handler_exception"), 1);
    CHECK_EQUAL(call(library, "plugin_cxx_works"), 1);
    CHECK(dlclose(library) == 0);
    return 0;
}
