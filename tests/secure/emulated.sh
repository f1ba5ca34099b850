#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# emulated.sh REPORT HAS_TAGS BUG EMULATOR ARGUMENT... PROGRAM: passes if that bug (bugs.cc) ends it by a signal, with
# this report, under an emulator that plays a processor with memory tags. Skips if HAS_TAGS (has_tags.c) says that
# the emulator has none.
set -u
report=$1
has_tags=$2
bug=$3
shift 3
program=${!#}
emulator=("${@:1:$#-1}")
ulimit -c 0
"${emulator[@]}" "$has_tags" || exit
output=$("${emulator[@]}" "$program" --bug "$bug" 2>&1)
status=$?
if ((status <= 128)) || [[ $output != *"$report"* ]]; then
    printf 'expected a signal and "%s"; status %d, and\n%s\n' "$report" "$status" "$output" >&2
    exit 1
fi
echo "$report"
