#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `./hakmem run --secure`: the program runs on the secure form, which ends it at a misuse.
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"

served='^hakmem: [0-9.]+ serves process [0-9]+ \(profile default\) from [^ ]*libhakmem-secure\.so$'
expect 0 hello "$served" "$launcher" run --secure -- /bin/echo hello
expect 0 '' '^$' "$launcher" run --quiet --secure --set purge_delay_ms=5 -- bash -c 'bash -c true'

cat >"$scratch/twice.c" <<'END'
#include <stdlib.h>
#include <string.h>
int main(void)
{
    char *volatile blocks[100];
    char *volatile first = malloc(40);
    free(first);
    for (int i = 0; i < 100; i++) {
        blocks[i] = malloc(100 + i);
    }
    for (int i = 0; i < 100; i++) {
        free(blocks[i]);
    }
    free(first);
    return 0;
}
END
gcc -w -O0 -o "$scratch/twice" "$scratch/twice.c" || fail "no compiler"
expect 134 '' '^hakmem: fatal: double free: pointer 0x[0-9a-f]+, size class 40 bytes' \
    bash -c '"$1" run --quiet --secure -- "$2"; exit $?' _ "$launcher" "$scratch/twice"
finish
