/* SPDX-License-Identifier: MIT */
/* Ends with status 0 if the processor and the kernel have memory tags, else with 77, which is
 * "skipped". An emulator may have the processor's part alone. */
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/prctl.h>

/* Older headers lack them; the values are part of the kernel's ABI. */
#define TAGS_IN_HWCAP2 (1UL << 18)
#define SET_TAGGED_ADDRESSES 55
#define TAGGED_ADDRESSES_ON 1UL
#define TAGS_FAULT_AT_ONCE 2UL

int main(void)
{
    if ((getauxval(AT_HWCAP2) & TAGS_IN_HWCAP2) == 0 ||
        prctl(SET_TAGGED_ADDRESSES, TAGGED_ADDRESSES_ON | TAGS_FAULT_AT_ONCE, 0, 0, 0) != 0) {
        fprintf(stderr, "skipped: this emulator has no memory tags\n");
        return 77;
    }
    return 0;
}
