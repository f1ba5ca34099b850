/* SPDX-License-Identifier: MIT */
/* stamps.h: what the stamps of a trace are in milliseconds since the recorder's start. */
#ifndef TRACE_STAMPS_H
#define TRACE_STAMPS_H

#include "decode.h"

/* Milliseconds are *zero_ms + *stamp_ms * stamp. Unknown: both 0. */
void stamps_calibrate(const struct trace_file *file, double *zero_ms, double *stamp_ms);

#endif
