#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Model-checks the lock-free protocol of remote frees with spin: each instance in its full state space without an error, and
# each line of the source that the model quotes still there. Exit status 77: spin is not installed.
# `check.sh INSTANCE` prints the steps that lead to an error.
set -u
export LC_ALL=C
root=${TEST_ROOT:-$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." && pwd)}
model=$root/tests/protocol/remote_free.pml
states_least=10000 # an instance with fewer does not do what it was made for
quotes_least=20
compiler=$(type -P clang || echo cc) # which takes half as long as gcc

# instance, sizes
instances='
one_freer     -DREFILLS=3
two_slabs     -DFREERS=2 -DREFILLS=2
one_slab      -DFREERS=2 -DSLABS=1 -DCAPACITY=3 -DREFILLS=2
help          -DHELP -DREFILLS=2
two_help      -DHELP -DFREERS=2 -DSLABS=1 -DREFILLS=2
two_owners    -DHELP -DOWNERS=2 -DSLABS=1 -DREFILLS=2
purge         -DPURGE -DREFILLS=2
'

fail() {
    echo "FAILED: $*" >&2
    failures=$((failures + 1))
}

# find_instance NAME: sets `sizes`.
find_instance() {
    local name
    while read -r name sizes; do
        [[ $name == "$1" ]] && return
    done <<<"$instances"
    echo "there is no instance '$1'" >&2
    return 1
}

# search: runs the model with `sizes`; the report is in `report`. Fails when it cannot run. To optimise, or to
# compress a state, takes longer than it saves.
search() {
    local words
    read -r -a words <<<"$sizes"
    rm -f -- pan* ./*.trail
    if ! spin -a "${words[@]}" "$model" >generated 2>&1 || grep -q 'Error' generated ||
        ! "$compiler" -w -O0 -DSAFETY -o pan pan.c >>generated 2>&1; then
        cat generated >&2
        return 1
    fi
    ./pan -m10000 -w24 >report 2>&1
    report=$(<report)
}

# The statements that were never reached: kind of thread, line, text. That a purger ends, that the last pass leaves
# something behind, and that a slab is kept when the last owner has ended (the second help of a freer, the last pass)
# cannot happen.
unreached() {
    local keeps
    keeps=$(grep -n 'd_step { /\* keeps it' "$model")
    awk '/^unreached in / { where = $NF }
        match($0, /\.pml:[0-9]+, state [0-9]+, /) {
            split(substr($0, RSTART + 5), line, ",")
            print where, line[1], substr($0, RSTART + RLENGTH)
        }' report | grep -vxE "Purger [0-9]+ \"-end-\"|init [0-9]+ \"(word|kept\\[0\\]) = 0\"|(Freer|init) [0-9]+ \"D_STEP${keeps%%:*}\"" | sort -u
}

check_instance() {
    local instance=$1 start=$SECONDS states
    find_instance "$instance" || return
    search || { fail "$instance cannot be run"; return; }
    states=$(sed -n 's/^ *\([0-9]*\) states, stored.*/\1/p' report)
    if [[ $report != *'errors: 0'* || $report == *'errors: 0'[0-9]* ]]; then
        fail "$instance has an error: $(grep -m1 '^pan:1:' report); see $0 $instance"
    elif [[ $report =~ 'max search depth too small'|'not completed'|'out of memory'|'memory limit' ]]; then
        fail "$instance was not searched in full: $(grep -iE 'depth too small|completed|memory' report)"
    elif ((${states:-0} < states_least)); then
        fail "$instance has only ${states:-no} states"
    else
        printf '%-11s %9d states, no error, %d s\n' "$instance" "$states" $((SECONDS - start))
        checked=$((checked + 1))
    fi
    # What no instance reaches is not checked.
    if [[ -e unreached ]]; then
        unreached | comm -12 - unreached >both && mv both unreached
    else
        unreached >unreached
    fi
}

# The function's text in one line, blanks as one each.
body_of() {
    awk -v name="$2" '
        !inside && $0 ~ "^[^ \t/#*].*" && match(" " $0, "[^A-Za-z0-9_]" name "[(]") && !/;$/ { inside = 1 }
        inside { print }
        inside && /^}/ { exit }' "$root/src/$1" | tr -s ' \t\n' ' '
}

# check_quotes FILE: the quotes of one function stand in it in the order in which the file has them.
check_quotes() {
    local line file name text key count=0
    local quote='^ *\/\*= ([a-z_/.]+) ([a-z_]+): (.+) \*\/$'
    local -A rest=()
    while IFS= read -r line; do
        count=$((count + 1))
        if [[ ! $line =~ $quote ]]; then
            fail "${1##*/} quotes the source in a way that cannot be read: $line"
            continue
        fi
        file=${BASH_REMATCH[1]} name=${BASH_REMATCH[2]} text=${BASH_REMATCH[3]} key=$file:$name
        [[ -n ${rest[$key]+set} ]] || rest[$key]=$(body_of "$file" "$name")
        if [[ ${rest[$key]} == *"$text"* ]]; then
            rest[$key]=$text${rest[$key]#*"$text"}
        else
            fail "${1##*/} stands for other code than $name in src/$file, which has not, or not in this order: $text"
        fi
    done < <(grep -F '/*=' "$1")
    quotes=$((quotes + count))
}

command -v spin >/dev/null || { echo "skipped: spin is not installed (Debian: apt-get install spin)"; exit 77; }
scratch=$(mktemp -d) || exit 1
trap 'rm -rf -- "$scratch"' EXIT
cd -- "$scratch" || exit 1
failures=0 checked=0 quotes=0 report='' sizes=''

if (($# > 0)); then
    find_instance "$1" || exit 1
    search || exit 1
    read -r -a words <<<"$sizes"
    [[ -s ${model##*/}.trail ]] || { echo "$*: no error"; exit 0; }
    spin -k "${model##*/}.trail" -g -l -p "${words[@]}" "$model"
    grep '^pan:1:' report
    exit 1
fi

check_quotes "$model"
((quotes >= quotes_least)) || fail "the model quotes the source only $quotes times"
for step in A1 A2 B1 B2 B3; do
    grep -q "/\*= slab/slab_remote.c [a-z_]*: $step, " "$model" || fail "no quote of step $step"
done
echo "$quotes quotes of the source"

wanted=0
while read -r instance _; do
    [[ -n $instance ]] || continue
    check_instance "$instance"
    wanted=$((wanted + 1))
done <<<"$instances"
((wanted > 0 && checked == wanted)) || fail "$checked of $wanted instances were checked"
[[ -e unreached && ! -s unreached ]] || fail "no instance reaches: $(<unreached)"

((failures == 0)) || { echo "$failures failures" >&2; exit 1; }
echo "$checked instances without an error, in $SECONDS s"
