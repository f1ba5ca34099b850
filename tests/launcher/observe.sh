#!/usr/bin/env bash
# `./hakmem stat`, top, metrics and observe: they look into living processes, attach by themselves, and refuse what they
# cannot look into with one clear sentence.
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"

library=$("$launcher" build)
sentence='^hakmem: [^'$'\n'']+$'

refuse() {
    local wanted_status=$1 words=$2
    shift 2
    expect "$wanted_status" '' "$sentence" "$@"
    [[ $errors =~ $words ]] || fail "errors '$errors' instead of '$words': $*"
}

# start VARIABLE... : a process on hakmem that sleeps; sets `pid`.
start() {
    env "$@" LD_PRELOAD="$library" sleep 100 &
    pid=$!
    for ((i = 0; i < 1000; i++)); do
        grep -q libhakmem "/proc/$pid/maps" 2>/dev/null && break
        sleep 0.01
    done
    sleep 0.1
}

finish_process() {
    kill "$1"
    wait "$1" 2>/dev/null
}

# What is not a process, or not one that can be looked into.
sleep 100 &
plain=$!
for command in stat top metrics observe; do
    "$launcher" $command --help | grep -q "^usage: ./hakmem $command" || fail "$command --help"
    "$launcher" help $command | grep -q "^usage: ./hakmem $command" || fail "help $command"
    refuse 2 "a process id is a number, not 'abc'" "$launcher" $command abc
    refuse 2 "not '0'" "$launcher" $command 0
    refuse 2 "not '-1'|unrecognized|arguments" "$launcher" $command -1
    refuse 2 "not '1\?2'" "$launcher" $command $'1\n2'
    refuse 2 "unrecognized arguments: --no-such-option" "$launcher" $command --no-such-option $plain
    refuse 127 'there is no process 4194305' "$launcher" $command 4194305
    refuse 126 "process $plain does not run on hakmem" "$launcher" $command $plain
done
refuse 2 'required: PID' "$launcher" stat
refuse 2 'required: PID' "$launcher" metrics
refuse 2 'unrecognized arguments: more' "$launcher" stat $plain more
refuse 2 '--batch needs a number' "$launcher" top --batch 0 $plain
refuse 2 "invalid int value: 'x'" "$launcher" top --batch x $plain
refuse 2 '--delay needs seconds' "$launcher" top --delay 0 $plain
refuse 2 '--port needs a number' "$launcher" metrics --port 70000 $plain
finish_process $plain

# A process that was started to be observed, and one that was not.
start HAKMEM_OBSERVE=1
observed=$pid
start NOTHING=1
for process in "$observed" "$pid"; do
    "$launcher" stat "$process" --json | python3 -m json.tool >"$scratch/json" || fail "stat --json is not JSON"
    grep -q "\"process\": $process" "$scratch/json" || fail "stat --json is of another process"
    try "$launcher" stat "$process"
    [[ $status == 0 && $output == *"process $process (sleep)"*'resident memory (RSS)'* ]] || fail "stat: $output $errors"
    try "$launcher" stat "$process" --full
    [[ $status == 0 && $output == *'resident memory (RSS)'*malloc_slow* ]] || fail "stat --full: $output $errors"
    try "$launcher" top "$process" --once
    [[ $status == 0 && $output == "process $process (sleep)"*'size classes, by held'*heaps* ]] || fail "top --once: $output"
    try "$launcher" top "$process" --batch 2 --delay 0.1
    [[ $status == 0 && $output == *"each second: slow mallocs"* ]] || fail "top --batch: $output"
    try "$launcher" metrics --once "$process"
    [[ $status == 0 && $output == *"hakmem_rss_bytes{pid=\"$process\",name=\"sleep\"} "*"hakmem_resident_bytes{pid=\"$process\",name=\"sleep\",part=\"in_use\"} "* ]] || fail "metrics: $output"
    expect 0 "process $process is observed already: ./hakmem top $process" '^$' "$launcher" observe "$process"
done
[[ $("$launcher" top) == *"$observed "*sleep*"$pid "*sleep* || $("$launcher" top) == *"$pid "*sleep*"$observed "*sleep* ]] ||
    fail "top does not list the observed processes"

# Served on loopback, until the tool ends; a process that is gone is down.
"$launcher" metrics --port 0 "$observed" "$pid" >"$scratch/served" &
server=$!
for ((i = 0; i < 500; i++)); do
    [[ -s $scratch/served ]] && break
    sleep 0.02
done
url=$(sed 's/.* //' "$scratch/served")
[[ $url == http://127.0.0.1:*/metrics ]] || fail "metrics says '$url'"
fetch() {
    python3 -c 'import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1]).read().decode())' "$url"
}
try fetch
[[ $output == *"hakmem_up{pid=\"$pid\"} 1"*"# TYPE hakmem_malloc_slow_total counter"* ]] || fail "metrics served: $output"

# Processes that end meanwhile.
"$launcher" top "$pid" --batch 1000 --delay 0.05 >"$scratch/reports" 2>"$scratch/ended" &
top=$!
for ((i = 0; i < 6000; i++)); do
    [[ ! -s $scratch/reports ]] || break
    sleep 0.01
done
finish_process "$pid"
wait $top || fail "top of a process that ends: status $?"
[[ $(<"$scratch/ended") == "hakmem: process $pid has ended" ]] || fail "top of a process that ends: $(<"$scratch/ended")"
try fetch
[[ $output == *"hakmem_up{pid=\"$pid\"} 0"* ]] || fail "metrics of a process that is gone: $output"
finish_process $server

# A stopped process does not answer; one that was killed leaves a file that the next tool removes.
start HAKMEM_OBSERVE=1
kill -STOP "$pid"
refuse 125 "process $pid gives no report: it is stopped" "$launcher" stat "$pid"
kill -KILL "$pid"
wait "$pid" 2>/dev/null
[[ -e /dev/shm/hakmem.$EUID.$pid ]] || fail "no file is left by a killed process: this test tests nothing"
"$launcher" top >/dev/null
[[ ! -e /dev/shm/hakmem.$EUID.$pid ]] || fail "the file of a killed process stays"
start NOTHING=1
kill -STOP "$pid"
refuse 126 "is stopped; let it go on first" "$launcher" stat "$pid"
kill -CONT "$pid"
finish_process "$pid"
finish_process "$observed"
finish
