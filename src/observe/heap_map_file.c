/* SPDX-License-Identifier: MIT */
/* heap_map_file.c: writes the heap map to the file of HAKMEM_HEAP_MAP_FILE when the process ends.
 *
 * "%p" in the name becomes the process id, so that each process of a tree has a file of its own.
 * Without it, HAKMEM_STATS_PID may name the only process that writes. */
#include "control/exit_file.h"
#include "control/life.h"
#include "core/options.h"

static struct exit_file map_file = {
    .name = &hak__settings.heap_map_file, .what = "heap map", .replaces = true, .kept = {-1, 0, 0}};

static void map_file_write(void *context, hak_report_sink *sink, void *sink_argument)
{
    (void)context;
    hak_heap_map(sink, sink_argument);
}

void hak__heap_map_at_end(void)
{
    uint64_t process = hak__settings.stats_process;
    bool all = process == 0 || process == hak__os_process_id();
    if (hak__settings.heap_map_file != NULL && (all || hak__exit_file_varies(&map_file))) {
        hak__exit_file_write(&map_file, map_file_write, NULL);
    }
}
