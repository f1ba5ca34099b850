#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The examples of docs/heaps.md, compiled against the installed headers and run: as C and C++, shared and static.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cmake --install "$TEST_BUILD" --prefix "$scratch/installed" >/dev/null
libraries=$(dirname "$(find "$scratch/installed" -name libhakmem.so)")
include=$scratch/installed/include

# The fenced block of a language.
block() {
    awk -v fence="\`\`\`$1" '$0 == fence {inside = 1; next} /^```/ {inside = 0} inside' "$TEST_ROOT/docs/heaps.md"
}
block c >"$scratch/example.c"
block cpp >"$scratch/example.cc"

gcc -std=c11 -Wall -Wextra -Werror -pedantic -I"$include" "$scratch/example.c" -o "$scratch/c" -L"$libraries" -lhakmem
g++ -std=c++17 -Wall -Wextra -Werror -pedantic -I"$include" "$scratch/example.cc" -o "$scratch/cxx" -L"$libraries" \
    -lhakmem
gcc -std=c11 -I"$include" "$scratch/example.c" -o "$scratch/c-static" "$libraries/libhakmem.a" -pthread
g++ -std=c++17 -fno-exceptions -fno-rtti -Wall -Wextra -Werror -I"$include" "$scratch/example.cc" \
    -o "$scratch/cxx-static" "$libraries/libhakmem.a" -pthread

expect() {
    local said
    said=$(LD_LIBRARY_PATH=$libraries "$scratch/$1")
    [[ $said == "$2" ]] || { printf 'FAILED: %s said:\n%s\n' "$1" "$said" >&2; exit 1; }
}
for program in c c-static; do
    expect "$program" $'112000 bytes alive\nrequest: event 2 for 1048576 bytes\nthe limit holds'
done
for program in cxx cxx-static; do
    expect "$program" '102 objects'
done
