/* SPDX-License-Identifier: MIT */
/* claims.h: the tools that sample this process now, each for a time of its own.
 *
 * Each tool has a claim: a number that it has drawn, and the period that it wants. The shortest
 * period of all claims and of the process itself is in force. When the last claim ends, sampling is
 * as the process wants it. A tool renews its claim every second. The claim of a tool that was
 * killed ends when the observer has waited CLAIM_MS for it; time in which the observer answers
 * others, or in which the process is stopped, does not count.
 *
 * State: the observer's thread has all of it. In fork's child, which no tool knows, the only thread
 * has it. */
#ifndef HAK_OBSERVE_CLAIMS_H
#define HAK_OBSERVE_CLAIMS_H

#include "base/compiler.h"

/* Doubled: after `kill -9` of a tool, samples are taken twice as long. Halved: a tool that waits
 * for a processor for some seconds loses samples. */
#define CLAIM_MS 5000u

/* Begins or renews a claim. `argument`: "NUMBER PERIOD", both decimal, PERIOD in bytes, 0: the
 * default; behind it " threads" if samples shall belong to their threads. Returns when the claim
 * began, on the clock of hak__samples_clock_ms; 0: there is no room for it, or no number. */
HAK_HIDDEN uint64_t hak__claim(const char *argument);
/* `argument`: "NUMBER". */
HAK_HIDDEN void hak__claim_end(const char *argument);
/* The observer has waited so long. */
HAK_HIDDEN void hak__claims_wait(uint32_t waited_ms);
/* Ends all claims. */
HAK_HIDDEN void hak__claims_drop(void);

#endif
