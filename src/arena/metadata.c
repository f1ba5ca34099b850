/* SPDX-License-Identifier: MIT */
/* metadata.c: memory for arenas and thread structs, which are never freed. It comes in chunks of
 * METADATA_CHUNK_SIZE, or near a limit of a struct's size. The first chunk is the room beside the
 * window's tables, if there is one. Structs fill a chunk from the start, what most threads never
 * touch from the end: so the structs of many threads share OS pages. */
#include "arena/arena.h"

#include "base/bits.h"
#include "os/os.h"
#include "region/window.h"

/* State, under ARENAS. */
static unsigned char *metadata_chunk;                /* the free rest of the newest chunk */
static size_t metadata_left;                         /* bytes of that rest */
static size_t shared_metadata_bytes;                 /* mapped for chunks, without the first */
static struct metadata_head *shared_metadata_newest; /* read without the lock */

/* At the start of each chunk but the first. Constant once the chunk is listed. */
struct metadata_head {
    struct metadata_head *before;
    size_t size; /* of the chunk, with the head */
};

size_t hak__metadata_bytes(void)
{
    return hak__window_room_bytes() + atomic_load_relaxed(&shared_metadata_bytes);
}

const void *hak__metadata_before(const void *chunk, size_t *size)
{
    /* acquire: pairs with the release in metadata_list */
    const struct metadata_head *found = chunk == NULL
                                            ? atomic_load_acquire(&shared_metadata_newest)
                                            : ((const struct metadata_head *)chunk)->before;
    *size = found == NULL ? 0 : found->size;
    return found;
}

/* Under ARENAS. */
static void metadata_list(void *chunk, size_t size)
{
    struct metadata_head *head = chunk;
    head->before = shared_metadata_newest;
    head->size = size;
    metadata_chunk = (unsigned char *)chunk + HAK_CACHE_LINE;
    metadata_left = size - HAK_CACHE_LINE;
    atomic_store_relaxed(&shared_metadata_bytes, shared_metadata_bytes + size);
    /* release: pairs with the acquire in hak__metadata_before */
    atomic_store_release(&shared_metadata_newest, head);
}

static void *metadata_take(size_t size, size_t far_size, void **far)
{
    void *memory = NULL;
    lock_acquire(&hak__arenas_lock);
    if (metadata_chunk == NULL) {
        metadata_chunk = hak__window_room();
        metadata_left = hak__window_room_bytes();
    }
    if (metadata_left >= size + far_size) {
        memory = metadata_chunk;
        *far = metadata_chunk + metadata_left - far_size;
        metadata_chunk += size;
        metadata_left -= size + far_size;
    }
    lock_release(&hak__arenas_lock);
    return memory;
}

/* False: another thread has added a chunk meanwhile, and this one is not needed. */
static bool metadata_add_chunk(void *chunk, size_t chunk_size, size_t size)
{
    lock_acquire(&hak__arenas_lock);
    bool wanted = metadata_left < size;
    if (wanted) {
        metadata_list(chunk, chunk_size);
    }
    lock_release(&hak__arenas_lock);
    return wanted;
}

void *hak__metadata_allocate_far(size_t size, size_t far_size, void **far)
{
    size = bits_align_up(size, HAK_CACHE_LINE);
    far_size = bits_align_up(far_size, HAK_CACHE_LINE);
    HAK_ASSERT(size + far_size <= METADATA_CHUNK_SIZE - HAK_CACHE_LINE);
    for (;;) {
        void *memory = metadata_take(size, far_size, far);
        if (memory != NULL) {
            return memory;
        }
        void *chunk;
        size_t page = hak__os_page_size(), chunk_size = METADATA_CHUNK_SIZE;
        if (hak__os_map(chunk_size, page, &chunk) != 0) { /* near a limit: only what is needed */
            chunk_size = bits_align_up(size + far_size + HAK_CACHE_LINE, page);
            if (hak__os_map(chunk_size, page, &chunk) != 0) {
                return NULL;
            }
        }
        if (!metadata_add_chunk(chunk, chunk_size, size + far_size)) {
            hak__os_discard(chunk, chunk_size);
        }
    }
}

void *hak__metadata_allocate(size_t size)
{
    void *far;
    return hak__metadata_allocate_far(size, 0, &far);
}
