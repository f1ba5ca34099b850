/* SPDX-License-Identifier: MIT */
/* span_rests.h: how the slices of freed spans go back, in the secure form after a rest: they are
 * closed, and so serve nobody, until SPANS_RESTING others of the heap were closed. */
#ifndef HAK_LARGE_SPAN_RESTS_H
#define HAK_LARGE_SPAN_RESTS_H

#include "large/span.h"

/* Returns slices of a freed span, all of which may be closed, to their superslab. */
HAK_HIDDEN void hak__span_give(size_t slice, uint32_t slices);
/* Secure form: closes a freed span, if the heap may close one more. False: it did not. */
HAK_HIDDEN bool hak__span_rest(struct span_rests *rests, size_t slice, uint32_t slices);
/* Ends all rests. Returns the number of slices. */
HAK_HIDDEN uint32_t hak__span_end_rests(struct span_rests *rests);

#endif
