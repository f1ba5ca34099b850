/* SPDX-License-Identifier: MIT */
/* silent.c: a library that says that it is hakmem, and never comes back when its program is
 * attached to: see silent_program.c. */
#include <unistd.h>

char hak_observe_stack[65536] __attribute__((visibility("hidden")));

/* struct hak_observe_note */
__asm__(".pushsection .note.hakmem, \"a\", %note\n\t.balign 4\n\t"
        ".long 8, 24, 1\n\t.asciz \"hakmem!\"\n"
        "1:\t.quad hak_observe_enter - 1b, hak_observe_stack - 1b, 65536\n\t.popsection");

__attribute__((visibility("hidden"))) void hak_observe_enter(void);
void hak_observe_enter(void)
{
    for (volatile unsigned turn = 0;; turn++) {
        if (turn > 1u << 28) { /* a processor is not to be busy for half a minute */
            usleep(100000);
        }
    }
}
