/* SPDX-License-Identifier: MIT */
/* remarks.h: what the tools say of a trace that is not whole. */
#ifndef TRACE_REMARKS_H
#define TRACE_REMARKS_H

#include <stdio.h>

#include "walk.h"

/* Says how the trace ends, one sentence a line; nothing if the process ended in order. `before`:
 * how each line begins. */
void remarks_print_end(FILE *stream, const char *before, const struct trace_file *file);

/* One line about what the walk mended; nothing if that was nothing. */
void remarks_print_repairs(FILE *stream, const struct trace_file *file,
                           const struct walk_repairs *repairs);

/* One line on standard error, without what a terminal obeys: a file's name may hold anything. */
void remarks_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Prints what is still to be printed on standard output. Returns `status`, or 125 after a sentence
 * on standard error if some of the output could not be written. */
int remarks_finish_output(int status);

#endif
