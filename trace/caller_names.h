/* SPDX-License-Identifier: MIT */
/* caller_names.h: which functions only pass allocations on, by the names of their symbols. */
#ifndef TRACE_CALLER_NAMES_H
#define TRACE_CALLER_NAMES_H

#include <stdbool.h>

/* Whether the function is one of the standard libraries of C++ and Rust, or has a known form of
 * name, such as my_malloc. The tools know the same ones by demangled names, and say by which rule
 * (python/hakmem/look/owners.py). */
bool caller_name_passes(const char *name);

#endif
