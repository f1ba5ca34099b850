/* SPDX-License-Identifier: MIT */
/* object.c: see object.h. */
#include "region/object.h"

#include "core/diagnose.h"
#include "core/size_class.h"

void hak__object_is_wrong(const struct object *object)
{
    size_t slice = window_slice_of(object);
    uint32_t class_index = window_contains_slice(slice) ? owner_class(window_owner(slice)) : 0;
    bool in_slab = class_index != 0 && class_index < CLASS_COUNT;
    hak__diagnose_fatal("corrupted free list (double free, or written after free)", object,
                        in_slab ? size_class_usable(class_index) : 0, 0);
}
