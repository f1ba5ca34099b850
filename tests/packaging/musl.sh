#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Programs on musl, as Alpine builds them: malloc is hakmem's, the differential model finds no difference, and options
# are read although musl hands constructors no arguments.
set -eu
if ! command -v musl-gcc >/dev/null; then
    echo "skipped: no musl-gcc here (Debian: musl-tools)"
    exit 77
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$TEST_ROOT"

# The kernel's headers are where the other C library's are, behind musl's own.
headers=()
for directory in /usr/include "/usr/include/$(uname -m)-linux-gnu"; do
    headers+=(-idirafter "$directory")
done
flags=(-std=gnu11 -O0 -D_GNU_SOURCE -DHAK_LEVEL=0 -Iinclude -Itests -Isrc "${headers[@]}")
musl-gcc "${flags[@]}" -Wall -Wextra -Werror -DHAK_OVERRIDE=1 -fno-builtin-malloc -fvisibility=hidden \
    -c src/hakmem.c -o "$scratch/hakmem.o"
musl-gcc "${flags[@]}" -static tests/model/test_model.c "$scratch/hakmem.o" -o "$scratch/model"
"$scratch/model" --seconds 1

cat >"$scratch/program.c" <<'END'
#include <hakmem/hakmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    char *block = strdup("block");
    void *aligned = NULL;
    int failed = posix_memalign(&aligned, 256, 1000);
    printf("%d %d %d\n", hak_owns(block), failed, hak_owns(aligned));
    free(block);
    free(aligned);
    return 0;
}
END
musl-gcc "${flags[@]}" -fno-builtin -static "$scratch/program.c" "$scratch/hakmem.o" -o "$scratch/program"
said=$("$scratch/program")
[[ $said == '1 0 1' ]] || { echo "FAILED: musl's malloc served: '$said'" >&2; exit 1; }

# The program's own constructor comes first, and leaves something in the registers in which glibc hands over main's
# arguments.
cat >"$scratch/start.c" <<'END'
#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor(100))) static void come_first(void)
{
#if defined(__x86_64__)
    __asm__ volatile("mov $1, %%rdi; mov $3, %%rsi; mov $5, %%rdx" : : : "rdi", "rsi", "rdx");
#endif
}

int main(int argc, char **argv)
{
    void *block = malloc(100);
    printf("%d %s %d\n", block != NULL, argv[1], argc);
    free(block);
    return 0;
}
END
for form in static dynamic; do
    program=$scratch/start-$form
    [[ $form == static ]] && link=(-static) || link=()
    musl-gcc "${flags[@]}" -w -fno-builtin "${link[@]}" "$scratch/start.c" "$scratch/hakmem.o" -o "$program"
    said=$("$program" one 2>&1) || { echo "FAILED: $form: status $?: '$said'" >&2; exit 1; }
    [[ $said == '1 one 2' ]] || { echo "FAILED: $form: '$said'" >&2; exit 1; }
    said=$(HAKMEM_PROFILE=small HAKMEM_STATS=json HAKMEM_ARENAS=many bash -c 'HAKMEM_ANNOUNCE=$$ exec "$0" one' \
        "$program" 2>&1 >/dev/null)
    for wanted in 'hakmem: HAKMEM_ARENAS=many ignored: must be a number' '"profile": "small"' \
        "serves process [0-9]* (profile small) from $program"; do
        grep -q -- "$wanted" <<<"$said" || { echo "FAILED: $form says no '$wanted': '$said'" >&2; exit 1; }
    done
done
