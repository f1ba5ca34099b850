/* SPDX-License-Identifier: MIT */
/* secure_end.c: the looks of the secure form, while the program runs and when it exits: at blocks
 * that nobody freed, and so nobody has looked at, and at freed ones that rest (cache/cache.h).
 *
 *   in use    slabs and spans: a canary that has changed is reported
 *   resting   slabs: a byte that is not zero is reported
 *
 * It runs if the process has had one thread since its start or the fork that made it, and no parent
 * with several threads: else a block may be on its way between two states. A signal handler that
 * exits may have interrupted the thread itself anywhere, so the states are written first or last as
 * region/secure.h says. No lock. Only in the secure form. */
#include "control/life.h"

#include <stdio.h>
#include <string.h>

#include "base/alone.h"
#include "base/bits.h"
#include "core/seal.h"
#include "large/span.h"
#include "os/os.h"
#include "region/secure.h"
#include "region/superslab.h"

static bool end_is_forgotten;
static uintptr_t end_page; /* that was readable in this look. There is one thread */
static bool end_is_there;  /* the program exits: what it has printed must be written */

void hak__secure_fork_child(bool had_threads)
{
    hak__seal_fork_child();
    hak__secure_renew();
    atomic_store_relaxed(&hak__secure_forked, true);
    end_is_forgotten = end_is_forgotten || had_threads;
}

/* What the program has printed would be lost: a report ends the process before the C library writes
 * it. */
static HAK_COLD void end_flush(void)
{
    if (end_is_there) {
        fflush(NULL);
    }
}

/* False: a page is closed or missing. Asks once for neighbours on one page. */
static bool end_can_read(const void *start, size_t bytes)
{
    uintptr_t at = bits_align_down((uintptr_t)start, ARCH_PAGE_SIZE_MIN);
    for (; at < (uintptr_t)start + bytes; at += ARCH_PAGE_SIZE_MIN) {
        if (at != end_page && !hak__os_is_readable(at)) {
            return false;
        }
        end_page = at;
    }
    return true;
}

/* Programs protect the pages of a block up to the end of its last page, where the canary is. */
static bool end_span_is_whole(size_t slice)
{
    const char *block = hak__span_pointer(slice);
    return !end_can_read(block - SECURE_FRONT, SECURE_FRONT) ||
           !end_can_read(block + hak__span_bytes(slice) - 1, 1) || hak__span_is_whole(slice);
}

static void end_look_object(void *object, uint32_t class_index, unsigned char byte)
{
    size_t bytes = size_class_bytes(class_index);
    enum secure_state state = (enum secure_state)(byte & SECURE_STATE_MASK);
    bool asks = hak__secure_forked || bytes > ARCH_PAGE_SIZE_MIN;
    if (secure_state_is_used(state)) {
        size_t slack = secure_slack(object, byte, bytes);
        if (asks && (!end_can_read((uint64_t *)object - 1, sizeof(uint64_t)) ||
                     !end_can_read((char *)object + bytes - slack, slack))) {
            return;
        }
        if (HAK_UNLIKELY(!secure_is_whole(object, bytes, slack))) {
            end_flush();
            hak__secure_overrun(object, bytes, slack);
        }
    } else if (state == SECURE_QUARANTINED && (!asks || end_can_read(object, bytes)) &&
               HAK_UNLIKELY(*(const uintptr_t *)object != 0 ||
                            !secure_is_clean(object, bytes, secure_mark(object), true))) {
        end_flush();
        hak__secure_written(object);
    }
}

/* Returns the number of objects. */
static uint32_t end_look_slice(size_t slice, uint32_t class_index)
{
    unsigned char *start = window_slice_address(slice);
    const unsigned char *states = secure_state_at(start);
    uint32_t count = 0;
    for (size_t i = 0; i < SECURE_STATES_SIZE; i++) {
        uint64_t eight;
        memcpy(&eight, states + i - i % 8, sizeof eight);
        if (eight == 0) {
            i |= 7; /* the next eight */
        } else if ((states[i] & SECURE_STATE_MASK) != SECURE_NOTHING) {
            end_look_object(start + i * OBJECT_ALIGNMENT, class_index, states[i]);
            count++;
        }
    }
    return count;
}

/* Looks at a slice if a slab or span begins there. Returns the number of objects. */
static uint32_t end_look(size_t slice)
{
    uint32_t code = superslab_has_slice(slice) ? window_owner(slice) & OWNER_CODE_MASK : 0;
    uint32_t class_index = owner_class(code);
    if (code == OWNER_SPAN) {
        if (!end_span_is_whole(slice)) {
            end_flush();
            hak__span_report(slice);
        }
        return 1;
    }
    return class_index != 0 && class_index < CLASS_COUNT ? end_look_slice(slice, class_index) : 0;
}

static bool end_may_look(void)
{
    end_page = 0;
    return alone() && !end_is_forgotten && !(HAK_TAGS && hak__secure.tags);
}

void hak__secure_look_around(void)
{
    static size_t next_slice; /* there is one thread */
    size_t limit = window_limit_seen();
    if (!end_may_look() || hak__secure_forked) { /* a child would ask for each page */
        return;
    }
    /* 10 us at most. Twice: twice that. Half: half as much is seen. */
    for (uint32_t looks = 0, objects = 0; looks < 256 && objects < 512; looks++) {
        next_slice = next_slice + 1 < limit ? next_slice + 1 : 0;
        objects += end_look(next_slice);
    }
}

void hak__secure_look_at_end(void)
{
    size_t limit = window_limit_seen();
    /* 10 to 50 ms at most, and a program with fewer live blocks takes less. Twice: twice that.
     * Half: the look covers half as large heaps. */
    limit = limit < (1u << 15) ? limit : (1u << 15);
    end_is_there = true;
    limit = end_may_look() ? limit : 0;
    for (size_t slice = 0, objects = 0; slice < limit && objects < (1u << 20); slice++) {
        objects += end_look(slice);
    }
}
