/* SPDX-License-Identifier: MIT */
/* record.h: `hakmem-trace record`. */
#ifndef TRACE_RECORD_H
#define TRACE_RECORD_H

/* Runs `words` with LD_PRELOAD=libraries and writes its trace to `file`, an absolute path. Returns
 * the program's exit status; dies by the signal that the program died by. */
int record_program(const char *file, const char *libraries, char **words);

#endif
