/* SPDX-License-Identifier: MIT */
/* build_ids.h: the build ids of the mapped programs and libraries, for the frames of modules. */
#ifndef TRACE_BUILD_IDS_H
#define TRACE_BUILD_IDS_H

#include <stdint.h>

/* Appends a line "build-id ID PATH" for each file with code to the `length` bytes of `text`, which
 * has `room` bytes. Returns the new length. By the headers in memory: the file of that path may be
 * another one by now. */
uint32_t build_ids_append(char *text, uint32_t length, uint32_t room);

#endif
