/* SPDX-License-Identifier: MIT */
/* timeline.h: memory over time, as JSON: live bytes and resident memory at TIMELINE_MOMENTS
 * moments, and for each call site and thread how much was allocated and freed between which of
 * them. Returns an exit status. */
#ifndef TRACE_TIMELINE_H
#define TRACE_TIMELINE_H

#include "decode.h"

/* Twice as many: tables of four times the size. Half: short events are lost between two moments. */
#define TIMELINE_MOMENTS 64u

int timeline_print(const struct trace_file *file);

#endif
