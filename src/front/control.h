/* SPDX-License-Identifier: MIT */
/* control.h: the names of hak_control. */
#ifndef HAK_FRONT_CONTROL_H
#define HAK_FRONT_CONTROL_H

#include "base/compiler.h"

/* An answer that grows in the caller's buffer. */
struct control_answer {
    char *data;
    size_t size;
    size_t length; /* that the answer would have, if it is longer than the buffer */
};

/* What an action does with `value`, which may be NULL. Returns 0 or an errno value. */
typedef int control_action(const char *value, struct control_answer *answer);

/* X(name, function, value, help): an action. `value` says what it takes, "" for nothing. Actions
 * that take nothing are refused with a value. tools/write_lists.py writes
 * them to docs/options.md. */
#define CONTROL_ACTIONS(X)                                                                         \
    X("trim", control_trim, "BYTES",                                                               \
      "returns free memory to the OS now, if more than BYTES could be returned; answers 1 if "     \
      "memory was returned, else 0")                                                               \
    X("purge", control_purge, "",                                                                  \
      "returns the free memory that is due, of all arenas, as the scavenger does")                 \
    X("reset_peaks", control_reset_peaks, "", "lets the peaks count from the present values")      \
    X("report.summary", control_report_summary, "FILE",                                            \
      "answers what the resident memory is used for, or appends it to FILE")                       \
    X("report.text", control_report_text, "FILE", "the summary and all figures, for people")       \
    X("report.json", control_report_json, "FILE", "all figures as one line of JSON")               \
    X("heap_map", control_heap_map, "FILE",                                                        \
      "answers the heap map, or writes it to FILE, for ./hakmem heap FILE")                        \
    X("profile.start", control_profile_start, "BYTES",                                             \
      "starts sampling, one allocation in BYTES (512k), for the heap profile")                     \
    X("profile.stop", control_profile_stop, "", "stops sampling")                                  \
    X("profile.write", control_profile_write, "FILE",                                              \
      "answers the heap profile, or appends it to FILE, for ./hakmem profile FILE")                \
    X("observe.start", control_observe_start, "",                                                  \
      "starts the thread that answers ./hakmem stat and top")                                      \
    X("observe.stop", control_observe_stop, "", "stops that thread")                               \
    X("version", control_version, "", "answers hakmem's version")                                  \
    X("list", control_list, "PREFIX",                                                              \
      "answers all names that begin with PREFIX: name, what it takes, and help, with tabs "        \
      "between them")

#endif
