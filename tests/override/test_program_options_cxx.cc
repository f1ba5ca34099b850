/* SPDX-License-Identifier: MIT */
/* test_program_options_cxx.cc: a C++ program's hakmem_options: the header gives it the name that
 * the library looks for.
 *
 * ctest: exports
 */
#include "override.h"

#include "hakmem/control.h"

const char hakmem_options[] = "purge_delay_ms=345";

typedef int get_function(const char *name, char *value, size_t size);

int main()
{
    char value[16] = "";
    prove_served();
    get_function *get = reinterpret_cast<get_function *>(dlsym(RTLD_DEFAULT, "hak_option_get"));
    CHECK(get != nullptr && get("purge_delay_ms", value, sizeof value) == 0);
    CHECK(strcmp(value, "345") == 0);
    return 0;
}
