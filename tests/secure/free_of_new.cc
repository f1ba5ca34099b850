/* SPDX-License-Identifier: MIT */
/* Memory from new is freed. */
#include "bug.h"

BUG("free or realloc of memory from new")
{
    long *value = static_cast<long *>(hide(new long(1)));
    free(value);
}
