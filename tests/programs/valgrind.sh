#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Programs on hakmem under valgrind, whose answers are not always the kernel's: the ordinary form with guarded blocks and
# the secure form, which closes pages, run to their end and print what they print without valgrind.
. "$(dirname "$0")/lib.sh"
need valgrind python3 gcc
cat >"$work/work.c" <<'END'
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void)
{
    static char *blocks[400];
    unsigned long sum = 0;
    for (unsigned round = 0; round < 4; round++) {
        for (unsigned i = 0; i < 400; i++) {
            size_t size = i * 7919u % (i % 50 == 0 ? 3000000 : 60000 + 40000 * round) + 1;
            blocks[i] = i % 3 == 0 ? calloc(1, size) : malloc(size);
            sum += i % 3 == 0 && blocks[i][size - 1] != 0;
            memset(blocks[i], (int)i, size);
        }
        for (unsigned i = 0; i < 400; i++) {
            sum += (unsigned char)blocks[i][0];
            free(blocks[i]);
        }
        malloc_trim(0); // blocks of the next round lie across the ends of these
    }
    printf("%lu\n", sum);
    return 0;
}
END
gcc -O1 -fno-builtin "$work/work.c" -o "$work/work" || fail "the program does not build"
"$work/work" >"$work/reference"
for form in "" --secure HAKMEM_GUARD=1; do # the address space is valgrind's own, whatever the tool
    said=("$HAKMEM" run --quiet)
    [[ $form == --secure ]] && said+=(--secure)
    [[ $form == HAKMEM_GUARD=1 ]] && guard=1 || guard=0
    HAKMEM_GUARD=$guard "${said[@]}" -- valgrind -q --tool=none "$work/work" >"$work/actual" 2>"$work/said"
    status=$?
    ((status == 0)) || fail "$form: status $status: $(tail -3 "$work/said")"
    alike "$form" "$work/reference" "$work/actual"
done
say "alike"
