/* SPDX-License-Identifier: MIT */
/* loaded.c: see loaded.h.
 *
 * Locks: a thread may come here out of malloc with any lock of the C library, as dlopen's, and a
 * fork waits for the holder of SAMPLES. So nothing here takes a lock of the C library: not dladdr,
 * nor dl_iterate_phdr, but _dl_find_object. It takes none: dlopen and dlclose write a second table
 * and then raise a version, whose low bit says which table is in use; readers begin again if the
 * version has changed. fork's child has no second thread that could change it. The list of entries
 * is whole there, because a fork waits for the threads inside the gate.
 *
 * Lifetimes: what _dl_find_object says of an address is true while its module stays. A frame of the
 * calling thread's stack will run on, so its module stays: dlclose unmaps it after its destructors
 * have returned. Frames that were read by frame pointers may be anything: see unwind.h. Later, when
 * the module may be gone, its memory and its link_map are not touched: the kernel copies the first
 * bytes. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "observe/loaded.h"

#include "arena/arena.h"
#include "base/atomics.h"
#include "base/text.h"
#include "observe/stacks.h"
#include "os/os.h"

#include <dlfcn.h>
#include <string.h>

#pragma weak dlsym

typedef int loader_find(void *address, struct loader_answer *answer);
/* NULL: there is none. Relaxed: several threads may look it up, and find the same. The release with
 * which hak__stacks_start says that walks may begin comes after it. */
static loader_find *shared_loader_find;

static struct loaded *shared_loaded; /* the newest; written under SAMPLES */
/* Under SAMPLES. */
static uint32_t loaded_count;
static uint64_t loaded_numbers;
static uintptr_t strange_low = UINTPTR_MAX, strange_high; /* frames in no module so far */
static const struct loaded loaded_unknown = {.number = LOADED_UNKNOWN};
/* Entries by their starts, under SAMPLES. Half the buckets: a program that loads 8,192 times looks
 * at 64 entries for a frame instead of 32. */
static const struct loaded *loaded_buckets[256] HAK_SELDOM;

/* The libraries of C, C++ and Rust, whose functions are not the program's own: the names of their
 * files up to a version or a hash, each with its end. The tools know the same
 * (python/hakmem/look/owners.py). */
static const char library_names[] =
    "libc\0libm\0libpthread\0libdl\0librt\0libutil\0libresolv\0libanl\0libnsl\0libnss_dns\0"
    "libnss_files\0libnss_compat\0libstdc++\0libc++\0libc++abi\0libgcc_s\0libunwind\0libstd\0ld\0"
    "ld-linux-x86-64\0ld-linux\0ld-musl-x86_64\0ld-linux-aarch64\0ld-musl-aarch64\0"
    "libc.musl-x86_64\0libc.musl-aarch64\0";

/* True: as the end of "libc-2.31.so", "libgcc_s-a04fdf82.so.1" or "libm.so.6" behind the name. */
static bool loaded_is_end_of_library(const char *end)
{
    if (*end == '-') {
        do {
            end++;
        } while ((*end >= '0' && *end <= '9') || (*end >= 'a' && *end <= 'f') ||
                 (*end == '.' && end[1] != 's'));
    }
    const char *version = hak__text_after(end, ".so");
    if (version == NULL || (*version != '.' && *version != '\0')) {
        return false;
    }
    while (*version == '.' || (*version >= '0' && *version <= '9')) {
        version++;
    }
    return *version == '\0';
}

static bool loaded_is_of_library(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    for (const char *library = library_names; *library != '\0'; library += strlen(library) + 1) {
        const char *end = hak__text_after(name, library);
        if (end != NULL && loaded_is_end_of_library(end)) {
            return true;
        }
    }
    return false;
}

bool hak__loaded_start(void)
{
    loader_find *found = NULL;
    if (dlsym != NULL) {
        *(void **)&found = dlsym(RTLD_DEFAULT, "_dl_find_object");
    }
    atomic_store_relaxed(&shared_loader_find, found);
    return found != NULL;
}

bool hak__loaded_ask(uintptr_t address, struct loader_answer *answer)
{
    loader_find *find = atomic_load_relaxed(&shared_loader_find);
    return find != NULL && find((void *)address, answer) == 0;
}

const struct loaded *hak__loaded_first(void)
{
    return atomic_load_acquire(&shared_loaded); /* pairs with the release in loaded_add */
}

static bool loaded_has(const struct loaded *loaded, uintptr_t address)
{
    return address - loaded->start < loaded->end - loaded->start;
}

/* "" if it is too long. */
static void loaded_copy_path(char path[TEXT_LINE_SIZE / 2], const struct link_map *link_map)
{
    size_t length = strlen(link_map->l_name);
    if (length < TEXT_LINE_SIZE / 2) {
        memcpy(path, link_map->l_name, length);
    }
}

/* True: frames at these addresses may be of something else. */
static bool loaded_is_taken(uintptr_t start, uintptr_t end)
{
    for (const struct loaded *other = shared_loaded; other != NULL; other = other->older) {
        if (start < other->end && other->start < end) {
            return true;
        }
    }
    return start <= strange_high && strange_low < end;
}

static size_t loaded_head_size(const struct loader_answer *answer)
{
    size_t size = (uintptr_t)answer->end - (uintptr_t)answer->start;
    return size < LOADED_HEAD_SIZE ? size : LOADED_HEAD_SIZE;
}

static const struct loaded **loaded_bucket(uintptr_t start)
{
    return &loaded_buckets[start / ARCH_PAGE_SIZE_MIN % HAK_COUNT_OF(loaded_buckets)];
}

static const struct loaded *loaded_add(const struct loader_answer *answer)
{
    uintptr_t start = (uintptr_t)answer->start, end = (uintptr_t)answer->end;
    const struct loaded **bucket = loaded_bucket(start);
    struct loaded *loaded = NULL;
    uint64_t number = loaded_is_taken(start, end) ? loaded_numbers + 1 : 0;
    /* Entries, of 1.3 KiB each. Half: programs that load plugins again and again, each time at
     * another place, lose names sooner. */
    if (loaded_count < 8192 && number < LOADED_UNKNOWN && hak__os_is_readable(start)) {
        loaded = hak__metadata_allocate(sizeof *loaded);
    }
    if (loaded == NULL) {
        return &loaded_unknown;
    }
    *loaded = (struct loaded){.older = shared_loaded, .next = *bucket, .start = start, .end = end};
    loaded->base = answer->link_map->l_addr;
    loaded->number = number;
    loaded_copy_path(loaded->path, answer->link_map);
    loaded->is_library = loaded_is_of_library(loaded->path);
    loaded->head_size = loaded_head_size(answer);
    memcpy(loaded->head, answer->start, loaded->head_size);
    loaded_numbers += number != 0;
    loaded_count++;
    *bucket = loaded;
    atomic_store_release(&shared_loaded, loaded);
    return loaded;
}

static bool loaded_is(const struct loaded *loaded, const struct loader_answer *answer)
{
    return loaded->start == (uintptr_t)answer->start && loaded->end == (uintptr_t)answer->end &&
           (loaded->path[0] == '\0' || hak__text_equal(loaded->path, answer->link_map->l_name)) &&
           memcmp(loaded->head, answer->start, loaded->head_size) == 0;
}

/* The entry of code that runs, so nobody unmaps its module. NULL: it lies in none. */
static const struct loaded *loaded_of_running(uintptr_t address)
{
    struct loader_answer answer;
    if (!hak__loaded_ask(address, &answer)) {
        return NULL;
    }
    const struct loaded *loaded = *loaded_bucket((uintptr_t)answer.start);
    while (loaded != NULL && !loaded_is(loaded, &answer)) {
        loaded = loaded->next;
    }
    return loaded != NULL ? loaded : loaded_add(&answer);
}

/* The number of code in no module. */
static uint64_t loaded_number_of_strange(uintptr_t address)
{
    strange_low = address < strange_low ? address : strange_low;
    strange_high = address > strange_high ? address : strange_high;
    for (const struct loaded *loaded = shared_loaded; loaded != NULL; loaded = loaded->older) {
        if (loaded_has(loaded, address)) {
            return LOADED_UNKNOWN;
        }
    }
    return 0;
}

uint32_t hak__loaded_mark(uintptr_t *frames, uint32_t depth)
{
    const struct loaded *last = NULL;
    uint32_t site = depth;
    if (atomic_load_relaxed(&shared_loader_find) == NULL) {
        return 0;
    }
    for (uint32_t i = 0; i < depth && frames[i] != STACK_CUT; i++) {
        uintptr_t address = frames[i] - 1; /* in the call */
        if (last == NULL || !loaded_has(last, address)) {
            last = loaded_of_running(address);
        }
        uint64_t number = last != NULL ? last->number : loaded_number_of_strange(address);
        frames[i] = loaded_address(frames[i]) | number << LOADED_SHIFT;
        if (site == depth && (last == NULL || !last->is_library)) {
            site = i;
        }
    }
    return site < depth ? site : 0;
}

/* --- later --- */

/* True: another entry came to its place. */
static bool loaded_is_followed(const struct loaded *loaded)
{
    const struct loaded *other = hak__loaded_first();
    for (; other != loaded; other = other->older) {
        if (loaded->start < other->end && other->start < loaded->end) {
            return true;
        }
    }
    return false;
}

bool hak__loaded_is_there(const struct loaded *loaded)
{
    unsigned char head[LOADED_HEAD_SIZE];
    struct loader_answer answer;
    if (!hak__loaded_ask(loaded->start, &answer) || (uintptr_t)answer.start != loaded->start ||
        (uintptr_t)answer.end != loaded->end) {
        return false;
    }
    size_t size = loaded->head_size;
    long copied = hak__os_read_memory(loaded->start, head, size);
    return copied < 0 ? !loaded_is_followed(loaded)
                      : copied == (long)size && memcmp(head, loaded->head, size) == 0;
}

/* NULL: no entry has the frame. */
static const struct loaded *loaded_of_frame(uintptr_t frame)
{
    const struct loaded *loaded = hak__loaded_first();
    while (loaded != NULL && (loaded->number != frame >> LOADED_SHIFT ||
                              !loaded_has(loaded, loaded_address(frame) - 1))) {
        loaded = loaded->older;
    }
    return loaded;
}

bool hak__loaded_find(const struct modules *modules, uintptr_t frame, struct module_place *place,
                      bool *closed)
{
    const struct loaded *loaded = loaded_of_frame(frame);
    uintptr_t call = loaded_address(frame) - 1;
    *closed = false;
    if (frame >> LOADED_SHIFT == LOADED_UNKNOWN) {
        return false;
    }
    if (loaded == NULL || hak__loaded_is_there(loaded)) {
        return hak__modules_find(modules, call, place);
    }
    *closed = true;
    *place = (struct module_place){.start = call, .end = call + 1, .offset = call - loaded->base};
    place->path = loaded->path;
    place->path_length = strlen(loaded->path);
    return place->path_length != 0;
}
