#!/usr/bin/env bash
# Replays do the calls and have the live bytes of the trace, which the tool itself compares, under each allocator. Files
# that are no whole trace get one sentence.
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
arms=(hakmem "$hakmem" '' libc '' '')

# peak_of FILE: the live bytes that the summary states.
peak_of() {
    summarise "$1"
    [[ $summary =~ Peak:\ ([0-9]+)\ bytes ]] && echo "${BASH_REMATCH[1]}"
}

for mode in entries exchange failing late large; do
    record 0 "$recorder:$hakmem" "$mode"
    try "$tracer" replay "$trace" 2 "${arms[@]}"
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
        [[ $status == 125 && $errors =~ ^'hakmem: '[^$'\n']+$ ]] || fail "$verb $1: status $status: '$errors'"
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
head -c 3000 "$trace" >"$scratch/cut"
summarise "$scratch/cut"
expect_text 'The file is cut'
try "$tracer" replay "$scratch/cut" 1 "${arms[@]}"
((status == 0)) || fail "replay of a cut trace: $errors"
finish
