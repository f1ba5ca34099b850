#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `./hakmem profile PID` beside other tools and beside the process's own sampling: each shows what was sampled in its own
# time, and afterwards all is as before, also when a tool is killed. Ctrl-C, and a process that ends, lose nothing.
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
cd -- "$scratch" || exit 1
need_shm_and_signals
act

# What a process says of its sampling: the period in force, its own one, and whether it tells threads apart.
cat >sampling.py <<'END'
import json, sys, time
from hakmem.look.observer import NotObserved, Observer
from hakmem.look.processes import look
until = time.monotonic() + 300
while True:
    try:
        document = json.loads(Observer(look(int(sys.argv[1]))).ask("profile", 300))
        head = document["hakmem_profile"]
        now = f"{head['period']} {head['own_period']} {int('threads' in document)}"
        if now == sys.argv[2] or time.monotonic() > until:
            print(now)
            break
    except NotObserved:
        pass
    time.sleep(0.02)
END

# samples PERIOD OWN THREADS [PROCESS]: waits for it.
samples() {
    local now
    now=$(PYTHONPATH=$TEST_ROOT/python python3 -B sampling.py "${4-$process}" "$1 $2 $3")
    [[ $now == "$1 $2 $3" ]] || fail "line ${BASH_LINENO[0]}: sampling is $now instead of $1 $2 $3"
}

start() {
    coproc service { HAKMEM_OBSERVE=1 exec "$launcher" run --quiet -- ./acts obey; }
    process=$service_PID
    samples 0 0 0
}

obey() {
    echo "$1" >&"${service[1]}"
    read -r answer <&"${service[0]}"
}

# begin NAME ARGUMENT...: a tool in the background that samples. Its process is in tools[NAME].
begin() {
    local name=$1
    shift
    "${plainly[@]}" "$launcher" profile --seconds 3000 "$@" "$process" >"$name.output" 2>"$name.errors" &
    tools[$name]=$!
    await test -s "$name.errors" # it says so when it samples
}

blocks() { echo " $1 blocks  alpha \(.*acts\.c:[0-9]+\)"; }

start
# The end of the first is not the second's end; blocks from before do not count, freed or not.
begin first --period 1 -o first.kept
samples 1 0 0
obey alpha:3:100000
begin second --period 1 --allocated --pprof second.pprof
obey alpha:4:100000
obey free:2
kill -INT "${tools[first]}"
ended first 130 "$(blocks 5)" 'SIGINT ended the sampling'
samples 1 0 0
obey alpha:5:100000
obey free:3
kill -TERM "${tools[second]}"
ended second 143 "$(blocks 9)" 'SIGTERM ended the sampling'
samples 0 0 0
[[ -s second.pprof ]] || fail "Ctrl-C: there is no pprof file"
try "$launcher" profile first.kept
has "$output" "$(blocks 5)"
[[ $errors == '' ]] || fail "the kept profile: $errors"

# A later one does not count what earlier ones have sampled.
begin third --period 1
obey alpha:2:100000
kill -INT "${tools[third]}"
ended third 130 "$(blocks 2)" 'SIGINT'

# Of one that is killed nothing is left after some seconds, and the other keeps its period.
begin killed --period 1 --threads
samples 1 0 1
begin other --period 4k
has "$(<other.errors)" 'another tool samples it, too: one allocation in 1 bytes, instead of 4096'
kill -KILL "${tools[killed]}"
wait "${tools[killed]}" 2>/dev/null
samples 4096 0 0
kill -INT "${tools[other]}"
wait "${tools[other]}"
samples 0 0 0

# The process's own sampling stays, starts and stops, whatever tools do; --stop ends it and no tool's.
obey sample:64000
samples 64000 64000 0
begin finer --period 1
samples 1 64000 0
obey alpha:3:100000
kill -INT "${tools[finer]}"
ended finer 130 "$(blocks 3)" 'SIGINT'
samples 64000 64000 0
begin beside
has "$(<beside.errors)" 'the process samples itself: one allocation in 64000 bytes, instead of 524288'
obey stop
samples 524288 0 0
obey sample:64000
try "$launcher" profile --stop "$process"
has "$output" "process $process is no longer sampled.*Another tool samples it until that tool ends"
samples 524288 0 0
kill -INT "${tools[beside]}"
wait "${tools[beside]}"
samples 0 0 0

# No tool knows the child of a fork.
begin forks --period 1
obey child
child=$answer
samples 0 0 0 "$child"
kill "$child"
kill -INT "${tools[forks]}"
wait "${tools[forks]}"

# A process that changes its root directory does not know its mappings any more. One that was not observed from its start
# has kept none.
end "$process"
mkdir root
coproc service { exec "$launcher" run --quiet -- ./acts obey; }
process=$service_PID
obey alpha:1:100000
begin moves --period 1
obey root
[[ $answer != 0 ]] || obey alpha:4:100000
kill -INT "${tools[moves]}"
if [[ $answer == 0 ]]; then
    ended moves 130 "$(blocks 4)" 'SIGINT ended the sampling'
else
    wait "${tools[moves]}" # only root may do that
fi
end "$process"
start

# A process that ends, or becomes another program.
begin ends --period 1
obey alpha:6:100000
asked "$process" 4
kill -KILL "$process"
ended ends 0 "$(blocks 6)" "process $process has ended; this is its profile of [0-9.]+ s before"
wait "$process" 2>/dev/null
start
begin execs --period 1
obey alpha:7:100000
asked "$process" 4
echo exec >&"${service[1]}"
ended execs 0 "$(blocks 7)" "process $process has become another program, sleep, .*; this is its profile of [0-9.]+ s before"
kill "$process"
finish
