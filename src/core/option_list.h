/* SPDX-License-Identifier: MIT */
/* option_list.h: the list of run options (core/options.c). tools/write_lists.py writes
 * the tables of docs/options.md from it. */
#ifndef HAK_CORE_OPTION_LIST_H
#define HAK_CORE_OPTION_LIST_H

/* X(kind, name, when, place, help, advice): HAKMEM_NAME sets `place`. In the order of a report,
 * which prints `help`. `when` says when the option may change (core/option_table.h).
 * tools/write_lists.py writes it, `help` and `advice`, when to change the option, to
 * docs/options.md; the launcher's help comes from there. */
#define OPTIONS(X)                                                                                 \
    X(PROFILE, profile, START, hak__settings.profile,                                              \
      "Set of values that the other options start from: default, fast, small or debug.",           \
      "Use fast if memory is plentiful, small if it is scarce, and debug to find invalid "         \
      "frees.")                                                                                    \
    X(MILLISECONDS, purge_delay_ms, UNLEARNED, hak__knobs.purge_delay_ms,                          \
      "Free memory unused for this long, in milliseconds, is returned to the OS; never: keep "     \
      "it.",                                                                                       \
      "Lower it if the process must shrink soon after a burst of work. Raise it if bursts "        \
      "that need the same memory are further apart than the delay.")                               \
    X(BYTES_32, bin_bytes, UNLEARNED, hak__knobs.bin_bytes_max,                                    \
      "Bytes of free objects that one thread may keep of one size. For sizes up to 1 KiB the "     \
      "threads of an arena share this amount.",                                                    \
      "Lower it if the threads cache too much memory. Raise it if the counter "                    \
      "free_overflow grows fast.")                                                                 \
    X(BYTES, cache_bytes, UNLEARNED, hak__knobs.cache_bytes,                                       \
      "Bytes of free objects that one thread may keep in all (a bin in use counts 32 KiB more).",  \
      "Lower it if the program has many threads and little memory. Raise it together with "        \
      "bin_bytes.")                                                                                \
    X(BYTES, cache_bytes_total, ANY, hak__knobs.cache_bytes_total,                                 \
      "Bytes of free objects that all threads may keep together; 0: 1/64 of RAM or of a "          \
      "container's limit.",                                                                        \
      "Lower it if the program shares the machine with others. Raise it if hundreds of "           \
      "threads are busy at the same time.")                                                        \
    X(BYTES_OR_NEVER, huge_cache_bytes, UNLEARNED, hak__knobs.huge_cache_bytes,                    \
      "Limit on freed huge blocks (over 2 MiB) kept for reuse, in bytes; never: no fixed "         \
      "limit.",                                                                                    \
      "Lower it if resident memory matters more than speed. Without a fixed limit, kept "          \
      "memory stays within the recent peak, or 1.5 times that.")                                   \
    X(BYTES_OR_NEVER, huge_threshold, UNLEARNED, hak__knobs.huge_threshold,                        \
      "Heap size, in bytes, from which hakmem may use transparent huge pages (in the secure "      \
      "form 16 times that); never: use none.",                                                     \
      "Set it to never if resident memory matters more than speed.")                               \
    X(BYTES_OR_NEVER, limit, ANY, hak__knobs.limit,                                                \
      "Soft limit, in bytes mapped by hakmem: above it, free memory is returned after 10 ms; "     \
      "never: none.",                                                                              \
      "Set it below the memory limit of a container or service.")                                  \
    X(BYTES_OR_NEVER, limit_hard, ANY, hak__knobs.limit_hard,                                      \
      "Hard limit, in bytes mapped by hakmem, not by the program: beyond it, allocations fail; "   \
      "never: none.",                                                                              \
      "Set it if the program handles failed allocations, or to test how it does.")                 \
    X(NUMBER, arenas, START, hak__knobs.arenas_max,                                                \
      "Number of arenas that threads share; 0: one per CPU, or fewer under a container's CPU "     \
      "quota.",                                                                                    \
      "Lower it to save memory if few threads allocate at the same time. hakmem uses up "          \
      "to twice this number while threads wait for locks.")                                        \
    X(SWITCH, numa, START, hak__knobs.numa,                                                        \
      "1: a thread gets memory of the memory node (NUMA) on which it runs; 0: of any node.",       \
      "Set 0 if threads move between nodes all the time, or use mostly what threads of other "     \
      "nodes allocate.")                                                                           \
    X(NUMBER, guard, START, hak__knobs.guard,                                                      \
      "One of this many allocations, on average, gets pages of its own between closed pages; 0: "  \
      "none.",                                                                                     \
      "Set 1000 to find rare memory errors in production, and 1 to check a short run. See "        \
      "docs/guard.md.")                                                                            \
    X(PATH, guard_file, START, hak__settings.guard_file,                                           \
      "File to which reports of the guard are appended as well; %p is the process id.",            \
      "The launcher sets it, to print the names of functions below a report.")                     \
    X(SWITCH, abort_on_foreign, ANY, hak__knobs.abort_on_foreign,                                  \
      "1: freeing memory that hakmem did not allocate ends the process (the secure form's "        \
      "default); 0: hakmem reports it.",                                                           \
      "Set 1 to find the wrong call to free. With 0, hakmem names the first ten pointers.")        \
    X(SWITCH, abort_on_size, ANY, hak__knobs.abort_on_size,                                        \
      "1: in the secure form, a sized free or delete with another size than that of the request "  \
      "ends the process; 0: the size does not matter.",                                            \
      "Set 0 for a program that deletes objects through a base class without a virtual "           \
      "destructor.")                                                                               \
    X(SWITCH, keep_deepbind, ANY, hak__settings.keep_deepbind,                                     \
      "1: a library loaded with RTLD_DEEPBIND uses the C library's malloc; 0: it uses hakmem.",    \
      "Set 1 if hakmem says that it leaves the flag out, and a plug-in needs it. Memory must "     \
      "then be freed on the side that allocated it: in the plug-in or in the program.")            \
    X(SWITCH, scavenger, START, hak__settings.scavenger,                                           \
      "1: a background thread returns free memory to the OS while the program is idle; 0: none.",  \
      "Set 1 for a server whose threads all sleep between bursts. Keep 0 if the program "          \
      "must have a single thread.")                                                                \
    X(SWITCH, observe, START, hak__settings.observe,                                               \
      "1: a background thread lets ./hakmem top and stat look into the process; 0: none.",         \
      "Set 1 if tools may not attach, as in containers. Keep 0 if the program must have a "        \
      "single thread.")                                                                            \
    X(STATS, stats, START, hak__settings.stats,                                                    \
      "Report that the process writes when it exits: none, summary, full or json.",                \
      "text is another name for full, 1 for summary.")                                             \
    X(PATH, stats_file, START, hak__settings.stats_file,                                           \
      "File that the report is appended to, opened at start; %p: process id; not set: standard "   \
      "error.",                                                                                    \
      "Set it to keep the report apart from the program's own messages. With %p in the "           \
      "name, each process has a file of its own; write %% for a percent sign.")                    \
    X(BYTES_OR_NEVER, sample_bytes, ANY, hak__settings.sample_bytes,                               \
      "Average number of bytes from one sampled allocation to the next; never: sample none.",      \
      "Set 512k to have a heap profile. A smaller value shows smaller leaks and costs more time.") \
    X(PATH, profile_file, START, hak__settings.profile_file,                                       \
      "File that the heap profile is appended to when the process exits; %p: process id; not "     \
      "set: no profile.",                                                                          \
      "Set it to find the call stacks that hold memory. sample_bytes is then 512k if not set.")    \
    X(SWITCH, profile_threads, ANY, hak__settings.profile_threads,                                 \
      "1: the heap profile keeps the stacks of each thread apart; 0: it does not.",                \
      "Set 1 to find the thread that allocates or grows: ./hakmem profile --threads shows "        \
      "it.")                                                                                       \
    X(SIGNAL, profile_signal, START, hak__settings.profile_signal,                                 \
      "Number of a signal at which the heap profile is appended to profile_file, too; 0: none.",   \
      "Set 12 (SIGUSR2) for a service that runs for long: each kill -USR2 adds a profile. "        \
      "A handler of the program takes the signal's place.")                                        \
    X(DUMP, profile_dump, START, hak__settings.profile_dump,                                       \
      "When the process writes heap profiles by itself, beside profile_file: none, or a list of "  \
      "peak=PERCENT, above=BYTES, every_s=SECONDS, limit=PERCENT.",                                \
      "Set peak,limit for a service that may run out of memory or be killed. See "                 \
      "docs/observability/profile.md.")                                                            \
    X(PROCESS, stats_pid, START, hak__settings.stats_process,                                      \
      "Process id of the only process that reports; 0: every process reports.",                    \
      "The launcher sets it. Pass --all-processes to the launcher instead of changing it.")        \
    X(SWITCH, stats_signal, START, hak__settings.stats_signal,                                     \
      "1: SIGHUP, SIGINT, SIGPIPE, SIGALRM, SIGTERM and SIGXCPU write the report, the profile "    \
      "and the heap map before they end the process; 0: they do not.",                             \
      "Set 1 for a server that has no handler for SIGTERM. Some programs notice the new "          \
      "handlers.")                                                                                 \
    X(PATH, learn, START, hak__settings.learn,                                                     \
      "on: hakmem tries other settings while the program runs and keeps what is better; a "        \
      "file: the same, and remembers it there; off: neither.",                                     \
      "Name a file for a long-running program whose work is the same each time. See "              \
      "docs/learning.md.")                                                                         \
    X(NUMBER, learn_memory_percent, START, hak__settings.learn_memory_percent,                     \
      "What memory is worth to learn. 100: 1 % of memory is worth 1 % of time; 400: it is worth "  \
      "4 %.",                                                                                      \
      "Raise it if time may pay for memory, lower it if memory may pay for time.")                 \
    X(SWITCH, ignore_filter, START, hak__settings.ignore_filter,                                   \
      "1: hakmem makes all its system calls although a filter (seccomp) watches the process; 0: "  \
      "it makes fewer.",                                                                           \
      "Set 1 in a container whose filter refuses calls instead of ending the process, as "         \
      "those of Docker and Kubernetes do: hakmem then uses huge pages.")                           \
    X(PATH, heap_map_file, START, hak__settings.heap_map_file,                                     \
      "File that the heap map is written to when the process exits; %p in it becomes the "         \
      "process id.",                                                                               \
      "./hakmem heap FILE makes a page of the map.")                                               \
    X(INPUT, config_file, START, hak__settings.config_file,                                        \
      "File of options for all programs or for some, read when the process starts; only the "      \
      "environment sets it.",                                                                      \
      "Name another file to try settings before they go into /etc/hakmem.conf, or /dev/null to "   \
      "ignore that file.")                                                                         \
    X(PROCESS, announce, START, hak__settings.announce_process,                                    \
      "Process id of the process that says at start that hakmem serves it; 0: none.",              \
      "The launcher sets it. Pass --quiet to the launcher instead of changing it.")

#endif
