/* SPDX-License-Identifier: MIT */
/* wrappers.h: what the C++ operators share with the C library's names. */
#ifndef TRACE_WRAPPERS_H
#define TRACE_WRAPPERS_H

#include "large.h"
#include "recorder.h"

void *wrap_malloc(size_t size, unsigned kind, uint64_t site);
void *wrap_memalign(size_t alignment, size_t size, unsigned kind, uint64_t site);
void wrap_free(void *pointer, unsigned kind, uint64_t site);

#endif
