# SPDX-License-Identifier: MIT
# lib.sh: what the probe tests share; sourced by each of them, as its first step.
#
# A tool listens to a small program that is linked with libhakmem.a. What it counted at each probe is held against the
# report that the program writes at its end.
#
# In $work, a directory that is removed at the end:
#   worked   the program        counted  lines "PROBE HITS SUM" of the tool
#   said     its report, and the tool's words
# Exit status: 0 passed, 1 failed, 77 what the test needs is not here.
set -u
export LC_ALL=C
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# What to sum at each probe: the argument's number.
declare -A summed=([refill]=2 [flush]=2 [remote_send]=1 [purge]=1 [map]=1 [map_failed]=0 [unmap]=1 [allocation_failed]=0
    [limit_exceeded]=1)

# The bytes that a remap adds, for gdb and bpftrace: with MREMAP_FIXED (2) the target was mapped before, with
# MREMAP_DONTUNMAP (4) the source stays. Called with the names of the arguments without their numbers.
added() {
    echo "($1""4 & 2) == 0 ? (int64)$1""3 - (int64)$1""1 : (($1""4 & 4) == 0 ? -(int64)$1""1 : 0)"
}

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

skip() {
    echo "skipped: $*"
    exit 77
}

compile() {
    gcc -std=gnu17 -O1 -Wall -Wextra -Werror -fno-builtin -I "$TEST_ROOT/include" "$TEST_ROOT/tests/probes/worked.c" -o "$work/worked" \
        -Wl,--whole-archive "$TEST_BUILD/libhakmem.a" -Wl,--no-whole-archive -pthread || fail "the program does not build"
}

# The first figure of that name in the report.
reported() {
    grep -o "\"$1\": [0-9]*" "$work/said" | head -n 1 | cut -d ' ' -f 2
}

# same WHAT COUNTED REPORTED
same() {
    [[ $2 == "$3" ]] || fail "$1: the probes say $2, the report $3"
    echo "$1: $2"
}

compare() {
    local probe hit sum
    local -A hits=() sums=()
    while read -r probe hit sum; do
        hits[$probe]=$hit sums[$probe]=$sum
    done <"$work/counted"
    for probe in "${!summed[@]}" remap; do
        ((${hits[$probe]:-0} > 0)) || fail "$probe was never hit"
    done
    same refills "${hits[refill]}" $(($(reported refill_free_list) + $(reported refill_remote) + \
        $(reported refill_carve) + $(reported refill_borrowed)))
    same "objects flushed" "${sums[flush]}" "$(reported free_flushed_objects)"
    same "remote batches" "${hits[remote_send]}" "$(reported remote_batches)"
    same "objects sent" "${sums[remote_send]}" "$(reported free_remote)"
    same purges "${hits[purge]}" "$(reported madvise_dontneed)"
    same "calls of mmap" $((hits[map] + hits[map_failed])) "$(reported mmap)"
    same "calls of munmap" "${hits[unmap]}" "$(reported munmap)"
    # The probe shows no mremap that fails because the next addresses are taken.
    ((hits[remap] <= $(reported mremap))) || fail "${hits[remap]} mappings changed in $(reported mremap) calls"
    same "bytes mapped" $((sums[map] - sums[unmap] + sums[remap])) $(($(reported bytes_mapped) + $(reported bytes_metadata)))
    same "failed allocations" "${hits[allocation_failed]}" "$(reported allocation_failed)"
    same "exceeded limits" "${hits[limit_exceeded]} ${sums[limit_exceeded]}" "1 1"
}
