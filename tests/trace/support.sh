# SPDX-License-Identifier: MIT
# support.sh: sourced by the tests of traces: the tools, a scratch directory, checks of what a summary says.
set -u
source "$(dirname -- "${BASH_SOURCE[0]}")/../launcher/support.sh"
tracer=$TEST_BUILD/hakmem-trace recorder=$TEST_BUILD/libhakmem-recorder.so hakmem=$TEST_BUILD/libhakmem.so
program=$TEST_BUILD/tests/trace/program_calls
trace=$scratch/trace

# record STATUS LIBRARIES MODE: records a mode of program_calls, which ends with that status.
record() {
    try "$tracer" record "$trace" "$2" "$program" "$3"
    [[ $status == "$1" ]] || fail "record $3: status $status instead of $1: $errors"
}

# summarise FILE: sets `summary`, without what belongs to one run.
summarise() {
    summary=$("$tracer" summary "$1") || fail "summary of $1: status $?"
}

# kind NAME: how often the summary counts that kind of call.
kind() {
    [[ $summary =~ [\ \;]$1\ ([0-9]+)\; ]] && echo "${BASH_REMATCH[1]}" || echo 0
}

# expect_kind NAME COUNT: that many, or a few more by the libraries.
expect_kind() {
    local found
    found=$(kind "$1")
    ((found >= $2 && found <= $2 + 200)) || fail "$found calls of $1 instead of $2"
}

# expect_text REGEX: somewhere in the summary.
expect_text() {
    [[ $summary =~ $1 ]] || fail "the summary does not say '$1': ${summary:0:600}"
}

# expect_sound: each end was found, no address was given out twice.
expect_sound() {
    [[ $summary != *'lacks calls'* && $summary != *'from before the fork'* && $summary != *'Not recorded'* ]] || fail "the order is lost: $summary"
}
