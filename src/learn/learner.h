/* SPDX-License-Identifier: MIT */
/* learner.h: lets a running program find the setting of the knobs that serves it best
 * (HAKMEM_LEARN, docs/learning.md).
 *
 * The learner runs at the ticks of the program's threads (arena/heartbeat.c): it has no thread of
 * its own, and the fast paths do not know it. It measures one stretch of time after the other
 * (learn/tournament.h) and turns the knobs between them. What a stretch costs is the processor time
 * of the process for each byte that it allocates, and the mean of its resident memory.
 *
 * A tick that finds the learner busy in another thread only adds its bytes. */
#ifndef HAK_LEARN_LEARNER_H
#define HAK_LEARN_LEARNER_H

#include "base/text.h"
#include "learn/tournament.h"

/* The latest decisions that are kept. Twice: a state file of twice the size. Half: a run of an hour
 * may have forgotten its first ones. */
#define LEARN_DECISIONS_MAX 64u

/* Bytes of the longest one as text, with its zero (below): all its numbers and gains have some
 * 700. */
#define LEARN_DECISION_SIZE 768u

/* Names of sites whose objects lie apart (observe/sites.h). Twice: a state file that is 2 KiB
 * longer. */
#define LEARN_SITES_MAX 32u
/* Bytes of such a name, with its zero: HAK_SITE_NAME_MAX and 1. Also of the name of the program; a
 * longer one is cut. */
#define SITE_NAME_SIZE 64u

/* What is kept from run to run. */
struct learn_state {
    char program[SITE_NAME_SIZE]; /* without its directory */
    struct learn_point options;   /* the setting that the options ask for */
    struct learn_point champion;
    uint32_t memory_percent;                     /* the weight of memory */
    char sites[LEARN_SITES_MAX][SITE_NAME_SIZE]; /* "": free */
    uint64_t seed;
    uint32_t runs;
    uint32_t decisions_count; /* of all runs; the last LEARN_DECISIONS_MAX are kept */
    char decisions[LEARN_DECISIONS_MAX][LEARN_DECISION_SIZE];
};

/* Starts to learn for the program of this name, with what an earlier run learned if `state` is not
 * NULL. Before there are other threads. False: there is no memory for it. */
HAK_HIDDEN bool hak__learner_start(const char *program, const struct learn_state *state);
/* True if the site was found long-lived. Under SAMPLES. */
HAK_HIDDEN bool hak__learn_knows_site(const char *name);
/* Notes that the site is long-lived, or is not; the next tick saves it. Waits for nobody. False:
 * nothing was noted, because a tick is under way in another thread, or LEARN_SITES_MAX names are.
 * The process learns. Under SAMPLES. */
HAK_HIDDEN bool hak__learn_note_site(const char *name, bool apart);
/* True if this process learns. Any thread. */
HAK_HIDDEN bool hak__learner_runs(void);
/* Writes what it knows. The caller is alone here: at the start, or as the learner. */
HAK_HIDDEN void hak__learner_save(void);
/* Writes what is known to the file of HAKMEM_LEARN, if it names one (learn_file.c). The caller is
 * the only thread at work with the state. No lock, no cancellation point. */
HAK_HIDDEN void hak__learn_save(const struct learn_state *state);

/* --- learn_file.c: what was learned, as a small text file (docs/learning.md) ---
 *
 *   hakmem-learn 1
 *   program redis-server
 *   runs 2
 *   memory_percent 100
 *   options purge_delay_ms=1000 bin_bytes=262144 cache_bytes=33554432 huge_cache_bytes=never ...
 *   champion purge_delay_ms=1000 bin_bytes=65536 ...
 *   apart sessions
 *   decision adopted smaller_bins run=1 s=31 purge_delay_ms=1000 ... time=-12,3,... memory=-99,...
 *   checksum 0x...
 *
 * `apart` names a long-lived site (observe/sites.h), at most LEARN_SITES_MAX times. `time` and
 * `memory` have the differences of each pair (learn/tournament.h). Decisions are kept as they are,
 * for people: only `./hakmem learn` reads what they say. A damaged file is not read. */

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
