/* SPDX-License-Identifier: MIT */
/* An object is deleted as one of a type with a larger alignment. */
#include "bug.h"

#include <new>

BUG("alignment that the block does not have")
{
    uintptr_t misaligned = 0;
    void *block = nullptr;
    for (int i = 0; i < 100 && misaligned == 0; i++) { /* the others stay */
        block = hide(::operator new(64, std::align_val_t(64)));
        misaligned = reinterpret_cast<uintptr_t>(block) % 4096;
    }
    ::operator delete(block, std::align_val_t(4096));
}
