/* SPDX-License-Identifier: MIT */
/* whale_canary.h: the canary behind a whale, up to the closed page, in the secure form
 * (region/secure.h). */
#ifndef HAK_LARGE_WHALE_CANARY_H
#define HAK_LARGE_WHALE_CANARY_H

#include "large/whale.h"
#include "region/secure.h"

/* Secure form: notes the size of the request and writes the canary behind its end. */
HAK_INLINE void whale_begin_use(struct whale *whale, size_t size)
{
    if (HAK_SECURE && whale->address != 0) {
        *whale->slack = whale->size - size;
        hak__secure_put_gap((void *)whale->address, size, whale->size);
    }
}

/* Secure form: reports a whale whose canary has changed. */
HAK_INLINE void whale_check_canary(const struct whale *whale)
{
    if (HAK_SECURE && HAK_UNLIKELY(!hak__secure_gap_is_whole((const void *)whale->address,
                                                             whale_usable(whale), whale->size))) {
        hak__secure_overflow((const void *)whale->address, whale_usable(whale));
    }
}

#endif
