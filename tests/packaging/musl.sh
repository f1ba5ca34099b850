#!/usr/bin/env bash
# A static program on musl, as Alpine builds them: malloc is hakmem's, and the differential model finds no difference.
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
flags=(-std=gnu11 -O2 -g -D_GNU_SOURCE -DHAK_LEVEL=0 -Iinclude -Itests -Isrc "${headers[@]}")
musl-gcc "${flags[@]}" -Wall -Wextra -Werror -DHAK_OVERRIDE=1 -fno-builtin-malloc -fvisibility=hidden \
    -c src/hakmem.c -o "$scratch/hakmem.o"
musl-gcc "${flags[@]}" -static tests/model/test_model.c "$scratch/hakmem.o" -o "$scratch/model"
"$scratch/model" --seconds 5

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
