/* SPDX-License-Identifier: MIT */
/* modules.h: the programs and libraries that the process has mapped, for the names of sites. The
 * caller sees to it that one thread at a time is here. */
#ifndef TRACE_MODULES_H
#define TRACE_MODULES_H

#include <stdbool.h>
#include <stdint.h>

/* Fills the TRACE_MODULES_MAX bytes of `list` with the lines of a MODULES frame, which `maps`, what
 * /proc/self/maps says, becomes. Returns their length. */
uint32_t modules_list(char *list, const char *maps);

/* Whether the site is in a module of the last list. */
bool modules_have(uint64_t site);

void modules_forget(void);

#endif
