/* SPDX-License-Identifier: MIT */
/* A variable is freed. */
#include "bug.h"

BUG("foreign pointer")
{
    long variable[4] = {1, 2, 3, 4};
    work(32);
    free(hide(variable));
}
