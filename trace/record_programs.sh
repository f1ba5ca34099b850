#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Records the programs of bench/programs under the C library's malloc. Usage: record_programs.sh [NAME...]
# NAME: a script of bench/programs; python, gxx, sqlite, redis and lua when none is given. The traces are
# $XDG_CACHE_HOME/hakmem/traces/NAME.trace, and are made again each time.
set -u
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/hakmem
names=("$@")
((${#names[@]} > 0)) || names=(python gxx sqlite redis lua)
failures=0

# inputs_of NAME: a directory that the laboratory has prepared by this version of the script, else one beside the traces.
inputs_of() {
    local version directory
    version=$(cat "$root/bench/programs/common.sh" "$root/bench/programs/$1.sh" | cksum)
    for directory in "$cache/programs/$1-"*; do
        [[ -e $directory/prepared && $(<"$directory/prepared") == "$version" ]] && echo "$directory" && return
    done
    echo "$cache/traces/inputs/$1"
}

for name in "${names[@]}"; do
    script=$root/bench/programs/$name.sh
    if [[ ! -e $script || $name == common ]]; then
        echo "record_programs: there is no program '$name' in bench/programs" >&2
        exit 2
    fi
    inputs=$(inputs_of "$name")
    mkdir -p -- "$inputs" "$cache/traces"
    if ! bash "$script" prepare "$inputs" ||
        ! "$root/hakmem" record --output "$cache/traces/$name.trace" --alloc libc -- bash "$script" run "$inputs"; then
        echo "record_programs: no trace of $name" >&2
        failures=$((failures + 1))
    fi
    rm -f -- "$cache/traces/$name.trace".[0-9]* # of the shells beside it
done
((failures == 0))
