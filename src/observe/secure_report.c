/* SPDX-License-Identifier: MIT */
/* secure_report.c: what a fault of the secure form means (observe/guard.h). Only in that form. */

#include "base/bits.h"
#include "control/life.h"
#include "core/diagnose.h"
#include "core/size_class.h"
#include "large/empty.h"
#include "large/huge.h"
#include "large/span.h"
#include "observe/guard.h"
#include "region/secure.h"
#include "region/superslab.h"
#include "region/window.h"

static const char secure_behind[] = "overflow: access beyond the end of a block";
static const char secure_front[] = "underflow: access before the start of a block";
static const char secure_tagged[] = "memory tag: use after free, or access beyond a block";
static const char secure_freed[] = "use after free: access to a freed block";
static const char secure_heap[] = "underflow: access before the first object of a heap";

/* An address in the window, in `slice`. */
static void secure_fault_inside(uintptr_t address, size_t slice)
{
    uint32_t class_index = owner_class(window_owner(slice));
    if (class_index != 0 && class_index < CLASS_COUNT) {
        /* With memory tags it may be any place in a slab. */
        hak__diagnose_report(hak__secure.tags ? secure_tagged : secure_behind,
                             (const void *)address, size_class_usable(class_index), 0);
        return;
    }
    size_t first = bits_align_down(slice, SUPERSLAB_SLICES);
    for (size_t at = slice; at + 1 > first; at--) {
        uint32_t word = window_owner(at);
        if (word == OWNER_SPAN && at + hak__span_slices(at) > slice) {
            const char *block = hak__span_pointer(at);
            size_t bytes = hak__span_bytes(at);
            bool inside = address - (uintptr_t)block < bytes; /* only heaps close such pages */
            bool before = address < (uintptr_t)block;
            hak__diagnose_report(before   ? secure_front
                                 : inside ? secure_heap
                                          : secure_behind,
                                 block, bytes, 0);
            return;
        }
        if (word != OWNER_NOBODY) {
            break;
        }
    }
    hak__diagnose_report(secure_freed, (const void *)address, 0, 0);
}

/* An address beside a huge block, or in a freed one. */
static void secure_fault_outside(uintptr_t address)
{
    uintptr_t page = bits_align_down(address, hak__os_page_size());
    uintptr_t next = page + hak__os_page_size();
    const char *what = secure_front;
    if (hak__huge_contained(address)) {
        hak__diagnose_report(secure_freed, (const void *)address, 0, 0);
        return;
    }
    struct huge block = hak__huge_containing((const void *)(page - 1));
    if (block.address != 0) {
        what = block.address + block.size == page ? secure_behind : secure_heap;
    } else {
        block = hak__huge_containing((const void *)next);
    }
    if (what != secure_front || block.address == next) {
        hak__diagnose_report(what, (const void *)block.address, huge_usable(&block), 0);
    }
}

void hak__secure_fault(const struct os_fault *fault)
{
    size_t slice = window_slice_of((const void *)fault->address);
    if (empty_contains((const void *)fault->address)) {
        hak__diagnose_report("overflow: access to a block of size 0", (const void *)fault->address,
                             0, 0);
    } else if (!window_contains_slice(slice)) {
        secure_fault_outside(fault->address);
    } else if (superslab_has_slice(slice)) {
        secure_fault_inside(fault->address, slice);
    }
}

void hak__secure_watch(void)
{
    if (!hak__os_is_filtered()) {
        hak__os_fault_watch(hak__guard_fault);
    }
}
