/* SPDX-License-Identifier: MIT */
/* state_file.h: what was learned, as a small text file (docs/learning.md describes the format).
 *
 *   hakmem-learn 1
 *   program redis-server
 *   runs 2
 *   memory_percent 100
 *   options purge_delay_ms=1000 bin_bytes=262144 cache_bytes=33554432 whale_cache_bytes=never ...
 *   champion purge_delay_ms=1000 bin_bytes=65536 ...
 *   apart sessions
 *   decision adopted smaller_bins run=1 s=31 purge_delay_ms=1000 ... time=-12,3,... memory=-99,...
 *   checksum 0x...
 *
 * `apart` names a long-lived site (observe/placement.h), at most LEARN_SITES_MAX times. `time` and
 * `memory` have the differences of each pair (learn/tournament.h). Decisions are kept as they are,
 * for people: only `./hakmem learn` reads what they say. The reader takes nothing from a file that
 * is damaged. */
#ifndef HAK_LEARN_STATE_FILE_H
#define HAK_LEARN_STATE_FILE_H

#include "base/text.h"
#include "learn/learner.h"

/* Largest file that is read. Twice: nothing, because LEARN_DECISIONS_MAX decisions fit. */
#define LEARN_FILE_MAX ((size_t)64 << 10)

/* Notes a decision, `s` seconds after the start of the present run. */
HAK_HIDDEN void hak__learn_state_add(struct learn_state *state, enum learn_verdict verdict,
                                     const struct learn_test *test, uint32_t s);
/* Appends the file to an empty text of LEARN_FILE_MAX bytes. */
HAK_HIDDEN void hak__learn_state_write(const struct learn_state *state, struct text *text);
/* Reads `size` bytes of text. False: damaged, or of another version; *state is then undefined. */
HAK_HIDDEN bool hak__learn_state_parse(const char *text, size_t size, struct learn_state *state);

#endif
