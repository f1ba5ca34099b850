/* SPDX-License-Identifier: MIT */
/* output.h: the file that the recorder writes. Calls the kernel only by syscall(2), which is no
 * cancellation point and leaves errno to the caller. */
#ifndef TRACE_OUTPUT_H
#define TRACE_OUTPUT_H

#include "encode.h"

/* Where the trace goes (docs/observability/trace.md): FILE for the last program that the process
 * PID becomes, FILE.<pid> for others. */
#define OUTPUT_FILE_VARIABLE "HAKMEM_TRACE_FILE"
#define OUTPUT_PID_VARIABLE "HAKMEM_TRACE_PID"

/* Whether the environment names a file. */
bool output_is_wanted(void);

/* Reads the start of a file. Returns the number of bytes, or -1. */
long output_read_file(const char *name, char *buffer, size_t room);

/* Appends a frame. The first makes the file. False: it was not written. */
bool output_append(const void *frame, size_t bytes);

/* Whether nothing can be written any more. The file's header then says why, if it can be reached.
 */
bool output_has_failed(void);

/* Whether something was appended. */
bool output_has_file(void);

/* Writes a frame of modules if one of the encoder's shapes has a site in no module that the file
 * names. True: it did so, and the encoder's output is gone. */
bool output_modules(struct encoder *encoder);

/* This is a fork's child: its file is another one. */
void output_forked(void);

/* Before the first fork. */
void output_start(void);

/* Whether this process shares no memory with the one that the file belongs to: it is the child of
 * a fork that told nobody. */
bool output_is_foreign(void);

/* Anonymous resident memory of the process in bytes; 0: unknown. */
uint64_t output_resident(void);

#endif
