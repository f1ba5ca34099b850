/* SPDX-License-Identifier: MIT */
/* static_cxx.cc: a program that contains its C++ library (-static-libstdc++) deletes what a plug-in
 * has made. Its delete calls free, and the plug-in's new is hakmem's: that is no mistake. The
 * library is preloaded. Usage: static_cxx PLUGIN */
#include <cstdio>
#include <dlfcn.h>

int main(int count, char **arguments)
{
    void *plugin = count == 2 ? dlopen(arguments[1], RTLD_NOW) : nullptr;
    auto *make =
        plugin != nullptr ? reinterpret_cast<char *(*)()>(dlsym(plugin, "plugin_make")) : nullptr;
    if (make == nullptr) {
        std::fputs("static_cxx: no plug-in\n", stderr);
        return 1;
    }
    for (int i = 0; i < 1000; i++) {
        delete[] make();
    }
    return 0;
}
