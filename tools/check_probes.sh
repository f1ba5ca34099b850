#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Checks the notes of the probes in built files against the table in src/base/probe.h: names, number and form of the
# arguments, and a nop at each place. Usage: check_probes.sh STRIP FILE...
# A stripped copy of each file, made by the tool STRIP, must have the same notes.
set -u
strip=("$1")
shift
[[ $("${strip[0]}" --version) != *LLVM* ]] || strip+=(--keep-section=.note.stapsdt) # it keeps no other note by itself
table=$(dirname -- "${BASH_SOURCE[0]}")/../src/base/probe.h
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0

fail() {
    printf '%s: %s\n' "${file##*/}" "$1" >&2
    failures=$((failures + 1))
}

# A line "PROVIDER NAME PLACE BASE SEMAPHORE ARGUMENT..." for each note of the file.
notes() {
    readelf -n -- "$1" | awk '
        $1 == "Provider:" { provider = $2 }
        $1 == "Name:" { name = $2 }
        $1 == "Location:" { gsub(",", ""); at = $2 " " $4 " " $6 }
        $1 == "Arguments:" { $1 = ""; print provider, name, at $0 }'
}

# The bytes of an instruction at an address of the file, in hexadecimal: through the loadable part that holds it.
instruction_at() {
    local type offset address size rest
    while read -r type offset address rest size _; do
        if [[ $type == LOAD ]] && (($1 >= address && $1 < address + size)); then
            od -An -v -tx1 -j $(($1 - address + offset)) -N "$2" -- "$file" | tr -d ' \n'
            return
        fi
    done < <(readelf -l -W -- "$file")
}

wanted=$(sed -nE 's/^ *X([0-9]+)\((\w+), (\w+),.*/\2 \3 \1/p' "$table" | sort)
[[ -n $wanted ]] || { echo "no probe in $table" >&2; exit 1; }
for file in "$@"; do
    case $(readelf -h -- "$file" | sed -n 's/^ *Machine: *//p') in
    *X86-64*) register='%r[0-9a-z]+' nop=90 ;;
    *AArch64*) register='x[0-9]+' nop=1f2003d5 ;;
    *) fail "a machine that has no probes" && continue ;;
    esac
    found=$(notes "$file")
    have=$(while read -r provider name _ _ _ arguments; do
        echo "$provider $name $(wc -w <<<"$arguments")"
    done <<<"$found" | sort -u)
    [[ $have == "$wanted" ]] || fail "other probes than in the table: $(diff <(echo "$wanted") <(echo "$have"))"
    while read -r _ name place base semaphore arguments; do
        [[ $arguments =~ ^8@$register(\ 8@$register)*$ ]] || fail "$name has arguments in another form: $arguments"
        ((base != 0 && semaphore == 0)) || fail "$name has base $base and semaphore $semaphore"
        [[ $(instruction_at "$place" $((${#nop} / 2))) == "$nop" ]] || fail "$name has no nop at $place"
    done <<<"$found"
    "${strip[@]}" -o "$scratch/stripped" -- "$file" && [[ $(notes "$scratch/stripped") == "$found" ]] ||
        fail "loses notes when it is stripped"
    ((failures != 0)) || printf '%s: %d probes in %d places\n' "${file##*/}" "$(wc -l <<<"$have")" "$(wc -l <<<"$found")"
done
((failures == 0))
