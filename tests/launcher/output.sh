#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Output that cannot be written is one sentence and a status, whatever prints it: the launcher itself, the tools that look
# into processes, and those that read traces.
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
cd -- "$scratch" || exit 1

# full STATUS COMMAND [ARGUMENT...]: to a device on which there is never room.
full() {
    local wanted=$1
    shift
    "$launcher" "$@" >/dev/full 2>errors </dev/null
    status=$?
    errors=$(<errors)
    [[ $status == "$wanted" && $errors =~ (^|$'\n')'hakmem: cannot write '[^$'\n']*$ ]] ||
        fail "$* >/dev/full: status $status: '$errors'"
}

"$launcher" record -o trace true 2>/dev/null # builds it if need be
"$launcher" record -o trace pwd >/dev/null 2>&1
for words in help version 'version --help' 'help run' 'run --help' 'record --help' 'replay --help' \
    'build --help' 'test --help' 'replay trace --summary' 'replay trace --runs 1'; do
    full 125 $words
done

if type -P python3 >/dev/null; then
    for words in 'stat --help' 'top --help' 'profile --help' 'metrics --help' 'heap --help' 'help stat'; do
        "$launcher" $words >/dev/full 2>errors
        status=$?
        [[ $status != 0 && $(<errors) == 'hakmem: cannot write the output'* ]] || fail "$words: status $status: $(<errors)"
    done
    HAKMEM_OBSERVE=1 "$launcher" run --quiet sleep 1000 &
    process=$!
    for ((i = 0; i < 600; i++)); do
        "$launcher" stat "$process" >/dev/null 2>&1 && break
        sleep 0.1
    done
    "$launcher" stat "$process" >/dev/null || fail "the process cannot be observed"
    for words in stat 'stat --full' 'stat --json' 'metrics --once' 'top --once' observe heap 'profile --seconds 1' \
        'profile --seconds 1 --output /dev/full'; do
        full 126 $words "$process"
    done
    full 126 heap --output /dev/full "$process"
    full 126 profile --seconds 1 --folded /dev/full "$process"
    "$launcher" stat "$process" >&- 2>errors
    status=$?
    [[ $status == 126 && $(<errors) == 'hakmem: standard output is closed' ]] || fail "stat >&-: status $status: $(<errors)"
    "$launcher" stat --full "$process" 2>errors | head -n 1 >/dev/null
    [[ ! -s errors ]] || fail "stat | head: $(<errors)"
    kill "$process"
    wait "$process" 2>/dev/null
fi
finish
