#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Replays do the calls and have the live bytes of the trace, which the tool itself compares, under each allocator. Files
# that are no whole trace get one sentence.
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
arms=(hakmem "$hakmem" '' libc '' '')

# peak_of FILE: the live bytes that the summary states.
peak_of() {
    summarise "$1"
    [[ $summary =~ Peak:\ ([0-9]+)\ bytes ]] && echo "${BASH_REMATCH[1]}"
}

for mode in entries exchange tight crowd failing large; do
    if [[ $mode == crowd ]] && ! "$program" crowd 2>/dev/null; then
        echo "replay: no trace of a thousand threads, which cannot be started here"
        continue
    fi
    record 0 "$recorder:$hakmem" "$mode"
    try timeout 800 "$tracer" replay "$trace" 1 "${arms[@]}"
    ((status == 0)) || fail "replay of $mode: status $status: $errors"
    peak=$(peak_of "$trace")
    (($(grep -cE "^(hakmem|libc) .* $peak\$" <<<"$output") == 2)) || fail "replay of $mode: not $peak bytes: $output"
done
# A block of 64 MiB with one page in use.
[[ $output =~ libc\ +[0-9.]+\ +[0-9.]+\ +0\.[0-9] ]] || fail "the replay touches what the program did not: $output"

record 0 "$recorder" fork
for child in "$trace".*; do
    try "$tracer" replay "$child" 1 "${arms[@]}"
    ((status == 0)) || fail "replay of a fork's child: $errors"
done

# lose_frames FILE: leaves out two of three frames of events, as if their lanes had been lost. Frames know nothing of
# each other. The header of a frame has its magic number, the type at 4 and the payload's length at 8; trace/format.h.
lose_frames() {
    python3 - "$1" <<'END'
import struct, sys
data = open(sys.argv[1], "rb").read()
at, kept, events = 64, [data[:64]], 0
while at < len(data):
    end = at + 128 + struct.unpack_from("<I", data, at + 8)[0]
    is_events = data[at + 4] == 1
    if not is_events or events % 3 == 0:
        kept.append(data[at:end])
    events += is_events
    at = end
open(sys.argv[1], "wb").write(b"".join(kept))
END
}

# Calls are missing: of a program that was killed, and as many as can be.
record 137 "$recorder:$hakmem" killed
[[ $errors == *'died by signal 9 '* ]] || fail "record of a killed program says '$errors'"
for lost in no yes; do
    if [[ $lost == yes ]]; then
        type -P python3 >/dev/null || break
        lose_frames "$trace"
    fi
    try timeout 800 "$tracer" replay "$trace" 1 "${arms[@]}"
    ((status == 0)) || fail "replay of a killed program: status $status: $errors"
    [[ $output == *'did not end in order'* ]] || fail "replay of a killed program says '$output'"
    [[ $lost == no || $output == *'The trace lacks calls: '[1-9]* ]] || fail "replay of a trace with holes says '$output'"
    summarise "$trace"
    peak=$(peak_of "$trace")
    (($(grep -cE "^(hakmem|libc) .* $peak\$" <<<"$output") == 2)) || fail "replay with holes: not $peak bytes: $output"
    [[ $lost == no || $summary == *'The trace lacks calls: '[1-9]* ]] || fail "summary of a trace with holes: ${summary:0:600}"
done

# Output that cannot be written.
record 0 "$recorder" entries
for words in "summary $trace" "replay $trace 1 libc '' ''"; do
    eval "set -- $words"
    "$tracer" "$@" >/dev/full 2>"$scratch/errors"
    status=$?
    [[ $status == 125 && $(<"$scratch/errors") == 'hakmem: cannot write the output'* ]] ||
        fail "$1 >/dev/full: status $status: $(<"$scratch/errors")"
done

# What does not serve is not measured.
try "$tracer" replay "$trace" 1 other "$(ldd "$program" | awk '/libm\.so/ {print $3}')" ''
[[ $status == 125 && $errors == *'is served by'* ]] || fail "a library without malloc: status $status: $errors"

# refuse FILE: a sentence, no crash.
refuse() {
    local verb
    for verb in summary replay; do
        if [[ $verb == summary ]]; then
            try "$tracer" summary "$1"
        else
            try "$tracer" replay "$1" 1 "${arms[@]}"
        fi
        [[ $status == 126 && $errors =~ ^'hakmem: '[^$'\n']+$ ]] || fail "$verb $1: status $status: '$errors'"
    done
}
head -c 5000 /dev/urandom >"$scratch/garbage"
refuse "$scratch/garbage"
: >"$scratch/empty"
refuse "$scratch/empty"
refuse "$scratch"
refuse "$scratch/nothing"
record 0 "$recorder" entries
cp "$trace" "$scratch/damaged"
printf 'damage' | dd of="$scratch/damaged" bs=1 seek=3000 conv=notrunc 2>/dev/null
refuse "$scratch/damaged"
head -c -10 "$trace" >"$scratch/cut"
summarise "$scratch/cut"
expect_text 'The file is cut'
try "$tracer" replay "$scratch/cut" 1 "${arms[@]}"
((status == 0)) || fail "replay of a cut trace: $errors"
finish
