#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs clang-tidy (.clang-tidy names the checks) over src/. Usage: check_tidy.sh [FILE...]
# Status 77: the pinned version cannot be had here.
set -u
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." || exit 1
source tools/pinned_tool.sh

tidy=$(pinned_tool clang-tidy) || exit 77
# A wheel's has no headers of the compiler, and finds them only where that clang is installed.
probe=$(mktemp --suffix=.c) && echo '#include <stdbool.h>' >"$probe"
"$tidy" --quiet "$probe" -- >/dev/null 2>&1 || { rm -f "$probe" && echo "skipped: $tidy finds no headers of its clang" && exit 77; }
rm -f "$probe"
files=("$@")
((${#files[@]} > 0)) || mapfile -t files < <(find src -type f \( -name '*.c' -o -name '*.cc' \) ! -path src/hakmem.c | sort)
((${#files[@]} > 0)) || { echo "check_tidy: no sources found" >&2; exit 1; }

# Level 2 shows the analyser every assertion. No compile_commands.json: gcc's flags would confuse clang. With max-nodes
# the analyser leaves a function after a seventh of its usual steps: of null pointers planted at the end of 179 functions
# it finds 97, as with more steps; with half as many it finds fewer.
check() {
    local standard=-std=gnu17
    [[ $2 == *.cc ]] && standard=-std=c++17
    "$1" --quiet "$2" -- "$standard" -Isrc -Iinclude -DHAK_LEVEL=2 -DHAK_OVERRIDE=1 -D_GNU_SOURCE -Wall -Wextra \
        -fno-builtin-malloc -Xclang -analyzer-config -Xclang max-nodes=30000 2> >(grep -vE '^[0-9]+ warnings? generated|^Suppressed|^Use -header-filter' >&2)
}
export -f check
jobs=$(nproc)
printf '%s\0' "${files[@]}" | xargs -0 -P "$((jobs < 2 ? 1 : 2))" -I{} bash -c 'check "$@"' _ "$tidy" {}
