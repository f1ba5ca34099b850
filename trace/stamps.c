/* SPDX-License-Identifier: MIT */
/* stamps.c: see stamps.h. The first stamp of a frame was taken between the moments at which the
 * lane's frame before and this one were written. The frames for which these are closest, one early
 * and one late in the run, tell the clock's speed. */
#include "stamps.h"

#include <stdlib.h>

/* A stamp, and about when it was taken. */
struct anchor {
    uint64_t stamp;
    uint32_t ms, width_ms;
};

static bool has_stamp(const struct trace_frame *frame)
{
    return frame->type == FRAME_EVENTS && frame->unstamped < frame->events;
}

/* Sets the early and the late anchor as far as there are such frames; `before_ms` has a number for
 * each lane. */
static void find_anchors(const struct trace_file *file, uint32_t *before_ms, struct anchor best[2])
{
    uint64_t least = UINT64_MAX, most = 0;
    for (size_t i = 0; i < file->frame_count; i++) {
        if (has_stamp(file->frames[i])) {
            uint64_t stamp = file->frames[i]->first_stamp;
            least = least < stamp ? least : stamp;
            most = most > stamp ? most : stamp;
        }
    }
    for (size_t i = 0; i < file->frame_count; i++) {
        const struct trace_frame *frame = file->frames[i];
        if (frame->type != FRAME_EVENTS) {
            continue;
        }
        uint32_t from_ms = before_ms[frame->lane - 1];
        uint32_t width_ms = frame->ms > from_ms ? frame->ms - from_ms : 0;
        bool late = frame->first_stamp > most - (most - least) / 3;
        before_ms[frame->lane - 1] = frame->ms;
        if (has_stamp(frame) && width_ms < best[late].width_ms &&
            (late || frame->first_stamp < least + (most - least) / 3)) {
            best[late] = (struct anchor){frame->first_stamp, from_ms + width_ms / 2, width_ms};
        }
    }
}

void stamps_calibrate(const struct trace_file *file, double *zero_ms, double *stamp_ms)
{
    struct anchor best[2] = {{0, 0, UINT32_MAX}, {0, 0, UINT32_MAX}};
    uint32_t *before_ms = calloc((size_t)file->lanes + 1, sizeof *before_ms);
    *zero_ms = *stamp_ms = 0;
    if (before_ms == NULL) {
        return;
    }
    find_anchors(file, before_ms, best);
    free(before_ms);
    if (best[0].width_ms != UINT32_MAX && best[1].ms > best[0].ms &&
        best[1].stamp > best[0].stamp) {
        *stamp_ms = (best[1].ms - best[0].ms) / (double)(best[1].stamp - best[0].stamp);
        *zero_ms = best[0].ms - *stamp_ms * (double)best[0].stamp;
    }
}
