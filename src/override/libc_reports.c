/* SPDX-License-Identifier: MIT */
/* libc_reports.c: functions of glibc that report about memory or tune malloc: malloc_stats,
 * malloc_info, mallinfo, mallopt, malloc_trim. Their figures mean what they mean in glibc, as far
 * as hakmem has the thing: superslabs stand for glibc's main arena, huge blocks for its mapped
 * chunks. Other C libraries (musl) lack these functions. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <limits.h>
#include <malloc.h>

#include "base/atomics.h"
#include "base/text.h"
#include "control/census.h"
#include "core/knobs.h"
#include "core/seal.h"
#include "hakmem/hakmem.h"
#include "hakmem/stats.h"
#include "os/os.h"
#include "region/superslab.h"

#if defined(__GLIBC__)

HAK_API int malloc_trim(size_t keep)
{
    return hak_trim(keep) ? 1 : 0;
}

static void libc_write_error(void *argument, const char *piece, size_t size)
{
    (void)argument;
    hak__os_write(2, piece, size); /* to whatever descriptor 2 is: the program asks for it */
}

HAK_API void malloc_stats(void)
{
    hak_report(HAK_REPORT_SUMMARY, libc_write_error, NULL);
}

/* --- malloc_info: XML as glibc writes it; all arenas count as one heap --- */

/* One element with its type, its size and, if `with_count`, its count. */
static void libc_put_element(FILE *stream, const char *name, const char *type, uint64_t count,
                             uint64_t size, bool with_count)
{
    char line[160], counted[32] = "";
    if (with_count) {
        hak__text_make(counted, sizeof counted, " count=\"%lu\"", count);
    }
    fputs(hak__text_make(line, sizeof line, "<%s type=\"%s\"%s size=\"%lu\"/>\n", name, type,
                         counted, size),
          stream);
}

/* One element for the free objects of one size class. */
static void libc_put_size(FILE *stream, uint32_t class_index, uint64_t count)
{
    char line[160];
    uint64_t to = size_class_bytes(class_index), from = to;
    if (class_index < ROUND_CLASS_FIRST) {
        from = size_class_bytes(class_index - 1) + 1;
    }
    fputs(hak__text_make(line, sizeof line,
                         "  <size from=\"%lu\" to=\"%lu\" total=\"%lu\" count=\"%lu\"/>\n", from,
                         to, count * to, count),
          stream);
}

static uint64_t libc_free_objects(const struct class_census *of_class)
{
    return of_class->cached_count + of_class->in_slabs_count;
}

/* What malloc_info and mallinfo tell. */
struct libc_info {
    size_t arena;      /* superslabs */
    size_t free_count; /* free objects */
    size_t huge_count;
    size_t huge_bytes;
    size_t cached_count; /* those of the free objects that are in thread caches */
    size_t cached_bytes;
    size_t in_slabs_bytes; /* of the other free objects */
    size_t in_use_bytes;   /* huge blocks not included */
    size_t free_bytes;     /* arena - in_use_bytes */
    size_t releasable;     /* free dirty slices, which malloc_trim gives back */
};

static struct libc_info libc_info_take(struct census *census)
{
    hak__census_take(census);
    struct libc_info info = {.arena = hak__superslab_bytes_claimed()};
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        const struct class_census *of_class = &census->classes[class_index];
        info.free_count += libc_free_objects(of_class);
        info.cached_count += of_class->cached_count;
        info.cached_bytes += of_class->cached_count * size_class_bytes(class_index);
        info.in_slabs_bytes += of_class->in_slabs_count * size_class_bytes(class_index);
    }
    info.huge_count = census->huge.live_count;
    info.huge_bytes = census->huge.live_bytes;
    info.in_use_bytes = census->bytes_in_use - info.huge_bytes;
    info.free_bytes = info.arena > info.in_use_bytes ? info.arena - info.in_use_bytes : 0;
    info.releasable = hak__superslab_bytes_dirty();
    return info;
}

/* The totals that end a heap, or, if `whole`, the document. */
static void libc_put_totals(FILE *stream, const struct libc_info *info, bool whole)
{
    size_t in_slabs_count = info->free_count - info->cached_count;
    libc_put_element(stream, "total", "fast", info->cached_count, info->cached_bytes, true);
    libc_put_element(stream, "total", "rest", in_slabs_count, info->in_slabs_bytes, true);
    if (whole) {
        libc_put_element(stream, "total", "mmap", info->huge_count, info->huge_bytes, true);
    }
    libc_put_element(stream, "system", "current", 0, info->arena, false);
    libc_put_element(stream, "system", "max", 0, info->arena, false);
    libc_put_element(stream, "aspace", "total", 0, info->arena, false);
    libc_put_element(stream, "aspace", "mprotect", 0, info->arena, false);
}

HAK_API int malloc_info(int options, FILE *stream)
{
    if (options != 0) {
        return EINVAL;
    }
    struct census census;
    struct libc_info info = libc_info_take(&census);
    /* The stream may allocate, so no lock is held here. */
    fputs("<malloc version=\"1\">\n<heap nr=\"0\">\n<sizes>\n", stream);
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        uint64_t count = libc_free_objects(&census.classes[class_index]);
        if (count != 0) {
            libc_put_size(stream, class_index, count);
        }
    }
    fputs("</sizes>\n", stream);
    libc_put_totals(stream, &info, false);
    fputs("</heap>\n", stream);
    libc_put_totals(stream, &info, true);
    fputs("</malloc>\n", stream);
    return 0;
}

/* --- mallinfo --- */

#define LIBC_INFO(info, as)                                                                        \
    {                                                                                              \
        .arena = as((info).arena), .ordblks = as((info).free_count),                               \
        .smblks = as((info).cached_count), .hblks = as((info).huge_count),                         \
        .hblkhd = as((info).huge_bytes), .fsmblks = as((info).cached_bytes),                       \
        .uordblks = as((info).in_use_bytes), .fordblks = as((info).free_bytes),                    \
        .keepcost = as((info).releasable)                                                          \
    }

#if defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 33)
HAK_API struct mallinfo2 mallinfo2(void)
{
    struct census census;
    struct libc_info info = libc_info_take(&census);
    return (struct mallinfo2)LIBC_INFO(info, );
}
#endif
#endif

/* The fields of the old struct are ints. Larger values become INT_MAX. */
static int libc_saturate(size_t value)
{
    return value > INT_MAX ? INT_MAX : (int)value;
}

HAK_API struct mallinfo mallinfo(void)
{
    struct census census;
    struct libc_info info = libc_info_take(&census);
    return (struct mallinfo)LIBC_INFO(info, libc_saturate);
}

/* --- mallopt --- */

/* Returns 1 if the parameter is accepted, else 0. Programs that tune glibc treat 0 as an error, so
 * parameters without effect on hakmem are accepted. A parameter is refused if a program would rely
 * on an effect that hakmem does not have. */
HAK_API int mallopt(int parameter, int value)
{
    switch (parameter) {
    case M_TRIM_THRESHOLD: /* negative: free memory is never returned to the OS */
        if (value < 0 && seal_open()) {
            atomic_store_relaxed(&hak__knobs.purge_delay_ms, UINT32_MAX);
            seal_close();
        }
        return 1;
    case M_MXFAST: /* here and below glibc's own limits: malloc(3) */
        return value >= 0 && value <= (int)(80 * sizeof(size_t) / 4);
    case M_MMAP_THRESHOLD:
        return value >= 0 && value <= 4 * 1024 * 1024 * (int)sizeof(long);
    case M_TOP_PAD:
    case M_MMAP_MAX:
    case M_ARENA_TEST:
    case M_ARENA_MAX:
    case M_CHECK_ACTION:
        return value >= 0;
    case M_PERTURB: /* hakmem does not fill objects */
        return value == 0;
    default:
        return 0;
    }
}

#endif
