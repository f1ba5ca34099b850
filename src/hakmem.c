/* hakmem.c: the unity build: all sources as one file, lower layers first (tools/check_layers.py).
 * hakmem is shipped in this form: the C library's names can be aliases in it, and the compiler can
 * optimise slow paths across files. */
#define HAK_UNITY 1
#define _GNU_SOURCE 1

#include "base/exponential.c"
#include "base/text.c"

#include "os/cgroup.c"
#include "os/os_clock.c"
#include "os/os_discard.c"
#include "os/os_file.c"
#include "os/os_machine.c"
#include "os/os_map.c"
#include "os/os_memory.c"
#include "os/os_pages.c"
#include "os/os_remap.c"
#include "os/os_share.c"
#include "os/os_signal.c"
#include "os/os_threads.c"
#include "os/vdso.c"

#include "core/diagnose.c"
#include "core/gate.c"
#include "core/lock.c"
#include "core/options.c"
#include "core/options_view.c"
#include "core/size_class.c"

#include "region/huge.c"
#include "region/purge.c"
#include "region/superslab.c"
#include "region/superslab_index.c"
#include "region/superslab_pages.c"
#include "region/superslab_run.c"
#include "region/window.c"

#include "slab/slab.c"
#include "slab/slab_remote.c"

#include "large/emergency.c"
#include "large/sampled.c"
#include "large/span.c"
#include "large/whale.c"
#include "large/whale_cache.c"
#include "large/whale_join.c"
#include "large/whale_list.c"
#include "large/whale_registry.c"

#include "cache/flush.c"
#include "cache/refill.c"
#include "cache/remote.c"

#include "heap/collect.c"
#include "heap/fork.c"
#include "heap/heap.c"
#include "heap/heartbeat.c"
#include "heap/limit.c"
#include "heap/metadata.c"
#include "heap/sampling.c"
#include "heap/start.c"
#include "heap/thread.c"

#include "control/background.c"
#include "control/census.c"
#include "control/exit_file.c"
#include "control/last_report.c"
#include "control/life.c"
#include "control/scavenger.c"

#include "learn/learn_file.c"
#include "learn/learner.c"
#include "learn/point.c"
#include "learn/state_file.c"
#include "learn/tournament.c"

#include "observe/heap_look.c"
#include "observe/heap_map.c"
#include "observe/heap_map_file.c"
#include "observe/observer.c"
#include "observe/profile.c"
#include "observe/prometheus.c"
#include "observe/report.c"
#include "observe/report_writer.c"
#include "observe/resident.c"
#include "observe/samples.c"
#include "observe/stacks.c"
#include "observe/summary.c"
#include "observe/summary_text.c"
#include "observe/totals.c"

#include "front/aligned.c"
#include "front/free.c"
#include "front/free_slow.c"
#include "front/malloc.c"
#include "front/malloc_slow.c"
#include "front/query.c"
#include "front/realloc.c"

#if HAK_OVERRIDE
#include "override/libc.c"
#include "override/libc_reports.c"
#endif
