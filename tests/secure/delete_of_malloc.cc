/* SPDX-License-Identifier: MIT */
/* Memory from malloc is deleted. */
#include "bug.h"

BUG("delete of memory from malloc")
{
    unsigned char *block = make(40);
    delete static_cast<long *>(hide(block));
}
