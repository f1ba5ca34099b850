/* SPDX-License-Identifier: MIT */
/* secure_report.h: says what an access to a closed page was, in the secure form of the library. */
#ifndef HAK_OBSERVE_SECURE_REPORT_H
#define HAK_OBSERVE_SECURE_REPORT_H

#include "os/os.h"

/* Writes a report if the address is one of a closed page: behind a live block, or in a freed one.
 * Does nothing otherwise. In the signal's handler; it allocates nothing and waits at most
 * WHALE_LOOKS_MAX milliseconds for a lock. */
HAK_HIDDEN void hak__secure_fault(const struct os_fault *fault);

#endif
