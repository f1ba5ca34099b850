/* SPDX-License-Identifier: MIT */
/* One object is deleted as an array. */
#include "bug.h"

BUG("delete[] of memory from new")
{
    long *value = static_cast<long *>(hide(new long(1)));
    delete[] value;
}
