# SPDX-License-Identifier: MIT
# lib.sh: what the program tests share; sourced by each of them, as its first step.
#
# A test runs a real program on hakmem, several times, and holds what it prints against the same run
# without hakmem. HAKMEM names the launcher (default: the one of this tree). TEST_LONG=1 (or
# HAKMEM_TEST_LONG=1) makes the work larger. TEST_SERVED_BY is what the serving library's file name
# starts with (default libhakmem), for holding a test against another allocator's launcher.
#
# In $work, a directory that is removed at the end:  reference, actual   output of the last runs
# Servers listen on loopback or in $work, and are stopped by their own process id.
# Exit status: 0 passed, 1 failed, 77 what the test needs is not installed here.
set -u
export LC_ALL=C

HAKMEM=${HAKMEM:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/hakmem}
served_by=${TEST_SERVED_BY:-libhakmem}
long=${TEST_LONG:-${HAKMEM_TEST_LONG:-0}}
name=$(basename "$0" .sh)
work=$(mktemp -d "${TMPDIR:-/tmp}/hakmem-$name-XXXXXX") || exit 1
server_pids=()

# What surrounds the test is no part of the runs.
unset HAKMEM_TEST_LONG TEST_LONG TEST_SERVED_BY LD_PRELOAD MALLOC_ARENA_MAX

say() {
    printf '%s: %s\n' "$name" "$*"
}

fail() {
    say "FAILED: $*" >&2
    exit 1
}

skip() {
    say "skipped: $*"
    exit 77
}

# need PROGRAM...: skips the test when one is missing.
need() {
    local program
    for program in "$@"; do
        command -v "$program" >/dev/null || skip "$program is not installed"
    done
}

# scale QUICK LONG: the size of the work.
scale() {
    if [[ $long == 1 ]]; then echo "$2"; else echo "$1"; fi
}

# As a command prefix: "${on_hakmem[@]}" PROGRAM ARGUMENT... is one process, the program's.
on_hakmem=("$HAKMEM" run --quiet ${TEST_SECURE:+--secure} --) # TEST_SECURE=1: on the secure form
on_hakmem() {
    "${on_hakmem[@]}" "$@"
}

# alike WHAT FILE FILE: ends the test when they differ.
alike() {
    cmp -s "$2" "$3" && return
    diff "$2" "$3" | head -20 >&2
    fail "$1: different on hakmem"
}

# same RUNS COMMAND...: standard output, standard error and exit status of the command without
# hakmem, and of RUNS runs with it, must be the same. The command runs in $work/place, emptied
# first.
same() {
    local runs=$1
    shift
    run_in_place reference "$@"
    expected=$?
    same_again "$runs" "$@"
}

# same_again RUNS COMMAND...: as same, but held against the last run without hakmem, for a command
# that does the same work in another way.
same_again() {
    local runs=$1 i status
    shift
    for ((i = 1; i <= runs; i++)); do
        run_in_place actual on_hakmem "$@"
        status=$?
        if ((status != expected)); then
            tail -5 "$work/actual.err" >&2
            fail "run $i of '$1': exit status $status, not $expected"
        fi
        alike "output of '$1', run $i" "$work/reference" "$work/actual"
        alike "standard error of '$1', run $i" "$work/reference.err" "$work/actual.err"
    done
    say "${1##*/} ${2:-}: $runs runs alike (status $expected, $(wc -c <"$work/actual") bytes)"
}

# run_in_place NAME COMMAND...: output to $work/NAME and $work/NAME.err.
run_in_place() {
    local to=$work/$1
    shift
    rm -rf "$work/place"
    mkdir "$work/place"
    (cd "$work/place" && exec_or_call "$@") >"$to" 2>"$to.err" </dev/null
}

exec_or_call() {
    if [[ $(type -t "$1") == function ]]; then "$@"; else exec "$@"; fi
}

# prove COMMAND...: runs it once and looks for the line by which the library says that it serves.
prove() {
    local line
    line=$("$HAKMEM" run -- "$@" 2>&1 >/dev/null </dev/null |
        grep '^hakmem: .* serves process' | tail -1)
    [[ $line == *" from "*"/$served_by"* ]] ||
        fail "hakmem does not serve '$1': ${line:-no such line}"
}

# prove_process PID: the same for a running process.
prove_process() {
    grep -q "/$served_by" "/proc/$1/maps" 2>/dev/null ||
        fail "hakmem does not serve process $1"
}

# prove_child PID: the same for one that may have ended by now: it has no maps then.
prove_child() {
    local maps
    maps=$(cat "/proc/$1/maps" 2>/dev/null)
    [[ -z $maps || $maps == *"/$served_by"* ]] || fail "hakmem does not serve process $1"
}

# start LOG COMMAND...: starts a server, its id in $server_pid. COMMAND is no function: it would
# have a process of its own around it.
start() {
    local log=$1
    shift
    "$@" >"$log" 2>&1 </dev/null &
    server_pid=$!
    server_pids+=("$server_pid")
}

# stop PID SIGNAL: ends a server and waits for it; its exit status. Not longer than a minute.
stop() {
    local status i
    kill "-$2" "$1" 2>/dev/null
    for ((i = 0; i < 600; i++)); do
        kill -0 "$1" 2>/dev/null || break
        sleep 0.1
    done
    kill -0 "$1" 2>/dev/null && fail "process $1 does not end on SIG$2"
    wait "$1"
    status=$?
    server_pids=("${server_pids[@]/#$1/}")
    return $status
}

# wait_until SECONDS COMMAND...: repeats the command until it succeeds.
wait_until() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || return 1
        sleep 0.1
    done
}

# The place for what takes long to fetch and build.
cache_directory() {
    local place=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/hakmem
    mkdir -p "$place" && echo "$place"
}

# A free TCP port of the loopback: the next one after the last that a test was given, so that no two have the same. The
# kernel gives none of these to others.
free_port() {
    local file port tries
    file=$(cache_directory)/port || fail "there is no place to count ports"
    (
        flock 9
        read -r port <"$file"
        for ((tries = 0; tries < 1000; tries++)); do
            [[ $port =~ ^[0-9]{5}$ ]] && ((port >= 20000 && port < 32000)) && ((++port)) || port=20000
            if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
                echo "$port" >"$file"
                echo "$port"
                exit 0
            fi
        done
        exit 1
    ) 9>>"$file" || fail "no free port"
}

clean_up() {
    local status=$? pid workers
    for pid in "${server_pids[@]}"; do
        [[ -n $pid ]] || continue
        # A killed server cannot end its workers.
        workers=$(pgrep -P "$pid")
        kill -KILL "$pid" $workers 2>/dev/null && wait "$pid" 2>/dev/null
    done
    cd / && rm -rf "$work"
    exit $status
}
trap clean_up EXIT
trap 'exit 1' INT TERM

[[ -x $HAKMEM ]] || fail "there is no launcher $HAKMEM"
