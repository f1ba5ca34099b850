#!/usr/bin/env bash
# emulated.sh REPORT EMULATOR ARGUMENT... PROGRAM: passes if the program's bug (bug.h) ends it by a signal, with this
# report, under an emulator that plays a processor with memory tags.
set -u
report=$1
shift
output=$("$@" --bug 2>&1)
status=$?
if ((status <= 128)) || [[ $output != *"$report"* ]]; then
    printf 'expected a signal and "%s"; status %d, and\n%s\n' "$report" "$status" "$output" >&2
    exit 1
fi
echo "$report"
