/* SPDX-License-Identifier: MIT */
/* claims.c: see claims.h. */
#include "observe/claims.h"

#include "arena/arena.h"
#include "base/text.h"
#include "core/options.h"
#include "hakmem/profile.h"
#include "observe/samples.h"

struct claim {
    uint64_t number; /* 0: free */
    uint64_t period; /* bytes; 0: the default, which adapts */
    uint64_t began_ms;
    uint32_t left_ms;
    bool by_thread;
};

/* Tools at a time. Doubled: 600 bytes more. Halved: the tools of a team may be refused. */
static struct claim claims[16] HAK_SELDOM;
static bool claims_lent_threads; /* the option is on for tools only */

static void claims_set_threads(bool on)
{
    if (seal_open()) {
        atomic_store_relaxed(&hak__settings.profile_threads, on);
        seal_close();
        claims_lent_threads = on;
    }
}

/* Puts into force what all claims want together. */
static void claims_apply(void)
{
    uint64_t period = 0;
    bool adapts = true, by_thread = false;
    for (uint32_t i = 0; i < HAK_COUNT_OF(claims); i++) {
        const struct claim *claim = &claims[i];
        if (claim->number != 0) {
            uint64_t wanted = claim->period == 0 ? HAK_PROFILE_PERIOD : claim->period;
            period = period == 0 || wanted < period ? wanted : period;
            adapts &= claim->period == 0;
            by_thread |= claim->by_thread;
        }
    }
    if (by_thread && !atomic_load_relaxed(&hak__settings.profile_threads)) {
        claims_set_threads(true);
    } else if (!by_thread && claims_lent_threads) {
        claims_set_threads(false);
    }
    hak__sampling_set(SAMPLING_TOOLS, period, adapts);
}

/* The claim of that number; 0: a free place. NULL: there is none. */
static struct claim *claim_find(uint64_t number)
{
    for (uint32_t i = 0; i < HAK_COUNT_OF(claims); i++) {
        if (claims[i].number == number) {
            return &claims[i];
        }
    }
    return NULL;
}

/* Moves *text behind spaces, and reads a number. */
static uint64_t claim_number(const char **text)
{
    while (**text == ' ') {
        (*text)++;
    }
    return hak__text_number(text);
}

uint64_t hak__claim(const char *argument)
{
    uint64_t number = claim_number(&argument), period = claim_number(&argument);
    struct claim *claim = claim_find(number);
    if (claim == NULL && number != 0 && (claim = claim_find(0)) != NULL) {
        *claim = (struct claim){.number = number,
                                .period = period,
                                .began_ms = hak__samples_clock_ms(),
                                .by_thread = hak__text_equal(argument, " threads")};
        hak__profile_begin();
        claims_apply();
    }
    if (number == 0 || claim == NULL) {
        return 0;
    }
    claim->left_ms = CLAIM_MS;
    return claim->began_ms;
}

void hak__claim_end(const char *argument)
{
    uint64_t number = claim_number(&argument);
    struct claim *claim = claim_find(number);
    if (number != 0 && claim != NULL) {
        claim->number = 0;
        claims_apply();
    }
}

void hak__claims_wait(uint32_t waited_ms)
{
    bool ended = false;
    for (uint32_t i = 0; i < HAK_COUNT_OF(claims); i++) {
        struct claim *claim = &claims[i];
        if (claim->number != 0 && claim->left_ms <= waited_ms) {
            claim->number = 0;
            ended = true;
        }
        claim->left_ms -= waited_ms;
    }
    if (ended) {
        claims_apply();
    }
}

void hak__claims_drop(void)
{
    hak__claims_wait(CLAIM_MS);
}
