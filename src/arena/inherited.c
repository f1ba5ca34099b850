/* SPDX-License-Identifier: MIT */
/* inherited.c: in fork's child, what the parent's threads had cached.
 *
 * The child's threads take structs of their own, and the parent's stay as they are. Their free
 * objects are counted (slab/slab_inherited.h) one struct at a time, at the ticks of the child: fork
 * itself is as cheap as without them, and so is a child that soon calls exec. Then the struct is
 * emptied and parked, for a thread of the child.
 *
 *   bins             of all threads. No lock guards them, but each thread stopped between two
 *                    instructions, and the objects of a bin are in no other list. An object that
 *                    its thread was just taking out is free in the child.
 *   remote buffer    of the thread that forked only. Another one may have been sending it: then its
 *                    objects are in the slab's remote word, too.
 *
 * A list ends at the first object that is not marked, or was counted before. So a list that its
 * thread was just changing is cut off, and its rest stays unused. */
#include "arena/arena.h"

#include "slab/slab_inherited.h"

static void inherited_count_list(struct object *object, uint32_t count, uint32_t class_index,
                                 uintptr_t mark)
{
    for (struct object *next; count != 0 && object != NULL; count--, object = next) {
        if (!hak__slab_count_inherited(object, class_index, mark, &next)) {
            break;
        }
    }
}

static void inherited_count_remote(const struct cache *cache)
{
    for (uint32_t i = 0; cache->remote_waiting != 0 && i < REMOTE_ENTRIES; i++) {
        const struct remote_entry *entry = &cache->remote[i];
        if (entry->link != 0) {
            uint32_t word = window_owner(entry->link - 1);
            inherited_count_list(entry->head, remote_count(entry), owner_class(word),
                                 object_mark_of(word));
        }
    }
}

/* Secure form: ends the quarantine of the objects. */
static void inherited_count_quarantine(const struct quarantine *quarantine)
{
    for (uint32_t i = 0; i < OBJECTS_QUARANTINED + LARGE_OBJECTS_QUARANTINED; i++) {
        struct object *object = quarantine->objects[i];
        if (object != NULL && secure_state_of(object) == SECURE_QUARANTINED) {
            secure_leave_quarantine(object);
            object_set_free(object, NULL, 0);
            inherited_count_list(object, 1, owner_class(window_owner(window_slice_of(object))), 0);
        }
    }
}

/* What remains when all structs are counted: spans that the parent's arenas kept, and slabs that
 * others had freed into. */
static void inherited_collect(void)
{
    for (struct arena *arena = hak__arena_first(); arena != NULL; arena = arena->next) {
        if (arena_is_inherited(arena)) {
            hak__arena_collect(arena, true);
        }
    }
}

bool hak__inherited_settle_one(uint32_t objects_max)
{
    bool last;
    struct thread *thread = hak__thread_take_inherited(objects_max, &last);
    if (last) {
        inherited_collect();
    }
    if (thread == NULL) {
        return false;
    }
    const struct cache *cache = &thread->cache;
    for (uint32_t class_index = 1; class_index < CLASS_COUNT; class_index++) {
        const struct bin *bin = &cache->bins[class_index];
        inherited_count_list(bin->head, bin_count(bin) + 1, class_index, cache->mark);
    }
    if (HAK_SECURE) {
        inherited_count_quarantine(cache->quarantine);
    }
    if (thread->forked) {
        inherited_count_remote(cache);
    }
    hak__thread_park_inherited(thread);
    return true;
}

void hak__inherited_settle(void)
{
    while (hak__inherited_settle_one(UINT32_MAX)) {
    }
}
