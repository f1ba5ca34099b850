/* SPDX-License-Identifier: MIT */
/* An object is deleted as one of another type, which is larger. */
#include "bug.h"

#include <new>

BUG("delete with another size than that of new")
{
    void *block = hide(::operator new(40));
    ::operator delete(block, static_cast<size_t>(400));
}
