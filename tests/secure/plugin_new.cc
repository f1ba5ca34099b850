/* SPDX-License-Identifier: MIT */
/* plugin_new.cc: what static_cxx.cc loads. */
extern "C" char *plugin_make();
extern "C" char *plugin_make()
{
    return new char[100];
}
