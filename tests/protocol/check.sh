#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Model-checks the lock-free protocol of remote frees with spin: each instance in its full state space without an error,
# each planted bug found, each line of the source that the model quotes still there. Exit status 77: spin is not installed.
# `check.sh INSTANCE BUG` prints the steps that lead to a planted bug (remote_free.pml has their names).
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
# instance, bugs that it finds
bugs='
one_freer     BUG_N_AFTER_A1 BUG_A1_STORE BUG_A1_LINK_LATE BUG_A2_STORE BUG_A2_LINK_LATE BUG_GIVE_BACK_NOTIFIED
one_freer     BUG_B2_BEFORE_B1 BUG_B2_STORE BUG_B2_WITHOUT_LIST BUG_LINK_READ_AFTER_B2 BUG_B3_STORE BUG_B3_CLEARS_N
one_slab      BUG_UNLIST_BLIND
help          BUG_DRAIN_UNLOCKED BUG_PART_WITHOUT_COLLECT BUG_PATIENCE_AFTER_COLLECT BUG_END_WITHOUT_HELP BUG_PART_KEEPS
help          BUG_KEEP_PARKED
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

# search [DEFINE...]: runs the model with `sizes`; the report is in `report`. Fails when it cannot run. To optimise, or to
# compress a state, takes longer than it saves.
search() {
    local words
    read -r -a words <<<"$sizes"
    rm -f -- pan* ./*.trail
    if ! spin -a "${words[@]}" "$@" "$model" >generated 2>&1 || grep -q 'Error' generated ||
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

check_bug() {
    local instance=$1 bug=$2
    find_instance "$instance" || return
    search "-D$bug" || { fail "$bug cannot be run"; return; }
    if [[ $report == *'errors: 1'* && -s ${model##*/}.trail ]]; then
        printf '%-27s found by %s: %s\n' "$bug" "$instance" "$(sed -n 's/^pan:1: \(.*\) (at depth.*/\1/p' report)"
        found+=("$bug")
    else
        fail "$bug was not found by $instance"
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

# True when check_quotes refuses a quote: it is tried on what the source has not.
refuses_quote() {
    printf '/*= %s */\n' "$@" >stale.pml
    ! (failures=0 && check_quotes stale.pml 2>/dev/null && ((failures == 0)))
}

command -v spin >/dev/null || { echo "skipped: spin is not installed (Debian: apt-get install spin)"; exit 77; }
scratch=$(mktemp -d) || exit 1
trap 'rm -rf -- "$scratch"' EXIT
cd -- "$scratch" || exit 1
failures=0 checked=0 quotes=0 found=() report='' sizes=''

if (($# > 0)); then
    find_instance "$1" || exit 1
    search ${2:+"-D$2"} || exit 1
    read -r -a words <<<"$sizes"
    [[ -s ${model##*/}.trail ]] || { echo "$*: no error"; exit 0; }
    spin -k "${model##*/}.trail" -g -l -p "${words[@]}" ${2:+"-D$2"} "$model"
    grep '^pan:1:' report
    exit 1
fi

check_quotes "$model"
((quotes >= quotes_least)) || fail "the model quotes the source only $quotes times"
for step in A1 A2 B1 B2 B3; do
    grep -q "/\*= slab/slab_remote.c [a-z_]*: $step, " "$model" || fail "no quote of step $step"
done
clear='slab/slab.c hak__slab_drain: hak__slab_clear_notified(slab);'
refuses_quote 'slab/slab.c hak__slab_drain: no_such_call(slab);' || fail "a quote of nothing is accepted"
refuses_quote 'slab/slab.c no_such_function: slab' || fail "a quote of a function that is not there is accepted"
refuses_quote "$clear" 'slab/slab.c hak__slab_drain: hak__slab_next_notified(slab);' || fail "any order is accepted"
refuses_quote "$clear" && fail "a good quote is refused"
echo "$quotes quotes of the source"

wanted=0
while read -r instance _; do
    [[ -n $instance ]] || continue
    check_instance "$instance"
    wanted=$((wanted + 1))
done <<<"$instances"
((wanted > 0 && checked == wanted)) || fail "$checked of $wanted instances were checked"
[[ -e unreached && ! -s unreached ]] || fail "no instance reaches: $(<unreached)"

while read -r instance names; do
    for bug in $names; do
        check_bug "$instance" "$bug"
    done
done <<<"$bugs"
planted=$(grep -ohE 'BUG_[A-Z0-9_]*[A-Z0-9]' "$model" | sort -u)
[[ -n $planted && $planted == "$(printf '%s\n' "${found[@]}" | sort)" ]] || fail "not every planted bug was found"

((failures == 0)) || { echo "$failures failures" >&2; exit 1; }
echo "$checked instances without an error, ${#found[@]} planted bugs found, in $SECONDS s"
