/* SPDX-License-Identifier: MIT */
/* An array is deleted as one object. */
#include "bug.h"

BUG("delete of memory from new[]")
{
    long *values = static_cast<long *>(hide(new long[10]));
    delete values;
}
