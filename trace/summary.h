/* SPDX-License-Identifier: MIT */
/* summary.h: prints what is in a trace. Returns an exit status. */
#ifndef TRACE_SUMMARY_H
#define TRACE_SUMMARY_H

#include "decode.h"

int summary_print(const struct trace_file *file);

#endif
