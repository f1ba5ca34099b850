/* SPDX-License-Identifier: MIT */
/* loaded.h: tells apart the modules (programs and libraries) that lie at one address one after the
 * other. After dlclose another library may take the place of the closed one, and the addresses in
 * stored stacks must not get its names.
 *
 * A frame of a stored stack, and the key of a site, is an address with a number in its upper 16
 * bits. The number is 0 for the first module at a place, and for code of no module where none was.
 * Each further module at the place has a number of its own. So two stacks differ if their modules
 * do, and nearly all frames are plain addresses.
 *
 * A module is known by its first bytes, where linkers put the build id, and by its place and path.
 * A program with holes between its segments is several modules, and those of code may be short.
 * Its entry is made with the first sample that has a frame in it, and stays. A file that is loaded
 * again at another place has an entry more.
 *
 * Bound: LOADED_MAX entries. Frames in further modules have the number LOADED_UNKNOWN and no names,
 * and the tools say so.
 * Without _dl_find_object (glibc before 2.35, other C libraries) all numbers are 0. */
#ifndef HAK_OBSERVE_LOADED_H
#define HAK_OBSERVE_LOADED_H

#include "observe/modules.h"

#include <link.h>

/* Bytes at a module's start by which it is known: headers and notes end before. Half: of a program
 * with many segments the build id lies behind. */
#define LOADED_HEAD_SIZE 1024u
/* Where the number begins in a frame: user space ends below it. */
#define LOADED_SHIFT 48
#define LOADED_UNKNOWN UINT64_C(0xffff)

struct loaded {
    const struct loaded *older, *next; /* of all; of those whose starts have the same bucket */
    uintptr_t start, end;              /* all its segments */
    uintptr_t base;                    /* tools count addresses from here */
    uint64_t number;
    bool is_library; /* the C or C++ library, or part of it */
    char
        path[TEXT_LINE_SIZE / 2]; /* as the loader has it; "": the program, or the path is longer */
    size_t head_size;             /* of the module, if it is shorter than LOADED_HEAD_SIZE */
    unsigned char head[LOADED_HEAD_SIZE];
};

HAK_INLINE uintptr_t loaded_address(uintptr_t frame)
{
    return frame & ((UINT64_C(1) << LOADED_SHIFT) - 1);
}

/* What _dl_find_object tells: glibc's struct dl_find_object, which older headers lack. */
struct loader_answer {
    unsigned long long flags;
    void *start, *end;
    struct link_map *link_map;
    void *tables; /* .eh_frame_hdr; NULL: none */
    unsigned long long reserved[8];
};
/* Looks for the loader's function. False: there is none. */
HAK_HIDDEN bool hak__loaded_start(void);
/* False: the address lies in no module, or there is no such function. No lock; also in a signal
 * handler. */
HAK_HIDDEN bool hak__loaded_ask(uintptr_t address, struct loader_answer *answer);
/* Adds the numbers to return addresses of the calling thread's own stack. Returns the index of the
 * innermost one that is not in the C or C++ library, or 0: the site. Under SAMPLES. */
HAK_HIDDEN uint32_t hak__loaded_mark(uintptr_t *frames, uint32_t depth);

/* The first of all entries, newest first; follow `older`. Any thread, no lock. */
HAK_HIDDEN const struct loaded *hak__loaded_first(void);
/* False: the module was closed, as far as can be seen. Any thread. */
HAK_HIDDEN bool hak__loaded_is_there(const struct loaded *loaded);
/* Finds the call before a frame's return address as hak__modules_find does an address. Of a module
 * that was closed the offset is the address in the file, and `closed` is true. */
HAK_HIDDEN bool hak__loaded_find(const struct modules *modules, uintptr_t frame,
                                 struct module_place *place, bool *closed);

#endif
