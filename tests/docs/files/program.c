/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

int main(void)
{
    char *block = malloc(100);
    block[0] = 'x';
    free(block);
    return 0;
}
