/* SPDX-License-Identifier: MIT */
/* silent_program.c: answers each byte with the same byte. */
#include <unistd.h>

int main(void)
{
    char byte;
    while (read(0, &byte, 1) == 1) {
        if (write(1, &byte, 1) != 1) {
            return 1;
        }
    }
    return 0;
}
