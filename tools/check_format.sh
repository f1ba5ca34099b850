#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Checks that the C and C++ files are as clang-format writes them. Usage: check_format.sh [--fix]
# One version formats for all: the machine's when it is that one, else the wheel of the same number.
# And that no table in a comment has lost its columns, as when a tool reflows it, and no line is longer than 100 columns.
# Status 77: that version cannot be had here.
set -u
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." || exit 1
source tools/pinned_tool.sh

formatter=$(pinned_tool clang-format) || exit 77
mapfile -t files < <(find src include attach run bench lab trace tests tools docs -type f \( -name '*.c' -o -name '*.h' -o -name '*.hpp' -o -name '*.cc' \) | sort)
((${#files[@]} > 0)) || { echo "check_format: no sources found" >&2; exit 1; }

if [[ ${1:-} == --fix ]]; then
    exec "$formatter" -i "${files[@]}"
fi
# A row's text in the middle of a line, or a row that goes on at the left edge.
if grep -HPzo '(?m)^ \* (?! {2}).*\S {3,}\S.*|^ \* {3,}\S+ {2,}\S.*\n \* \S.*' "${files[@]}" | tr '\0' '\n' | grep . ||
    grep -nP '^.{101}' "${files[@]}"; then
    echo "check_format: a table in a comment has lost its columns, or a line is longer than 100 columns"
    exit 1
fi
said=$("$formatter" --dry-run -Werror --ferror-limit=1 "${files[@]}" 2>&1) && exit 0
grep ' error: ' <<<"$said" || printf '%s\n' "$said"
echo "check_format: these differ from clang-format's form; tools/check_format.sh --fix rewrites them"
exit 1
