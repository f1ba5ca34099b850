/* SPDX-License-Identifier: MIT */
/* callers.h: whose an allocation is. Call sites in the standard libraries of C++ and Rust, which
 * are compiled into the program, say nothing of it: the first caller outside them is the site. */
#ifndef TRACE_CALLERS_H
#define TRACE_CALLERS_H

#include "recorder.h"

/* At the start of the process. */
void callers_start(void);
void callers_forked(void);

/* The site of a call from `caller`; looks at the stack. Called inside a lane. */
uint64_t callers_find(struct lane *lane, uint64_t caller);

static inline uint64_t callers_site(struct lane *lane, uint64_t caller)
{
    return LIKELY(lane->callers[(caller ^ caller >> 10) % LANE_CALLERS] == caller)
               ? caller
               : callers_find(lane, caller);
}

#endif
