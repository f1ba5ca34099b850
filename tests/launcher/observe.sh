#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `./hakmem stat`, top, metrics and observe: they look into living processes, attach by themselves, and refuse what they
# cannot look into with one clear sentence.
# ctest: own-shm
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"

library=$("$launcher" build)

# start VARIABLE... : a process on hakmem that sleeps; sets `pid`.
start() {
    env "$@" LD_PRELOAD="$library" sleep 1000 &
    await_library $!
}

# await_library PID: waits until it is loaded; sets `pid`.
await_library() {
    pid=$1
    await grep -qs ' rw.*libhakmem' "/proc/$pid/maps" # its part that is written comes last
    sleep 0.1
}

# What is not a process, or not one that can be looked into.
sleep 1000 &
plain=$!
for command in stat top metrics observe heap profile; do
    refuse 126 "process $plain does not run on hakmem" "$launcher" $command $plain
done
# All read process ids in one way; heap and profile also take files. (output.sh asks for each command's help.)
refuse 2 "not '-1'|unknown option" "$launcher" top -1
refuse 2 "a process id is a number, not 'abc'" "$launcher" observe abc
refuse 2 "not '1\?2'" "$launcher" metrics $'1\n2'
for command in heap profile; do
    refuse 126 "cannot read '?abc'?: No such file" "$launcher" $command abc
done
for command in stat heap; do
    refuse 2 "not '0'" "$launcher" $command 0
    refuse 127 'there is no process 4194305' "$launcher" $command 4194305
done
refuse 2 "unknown argument 'more'" "$launcher" stat $plain more
refuse 2 '--batch needs a number' "$launcher" top --batch 0 $plain
refuse 2 '--delay needs seconds' "$launcher" top --delay 0 $plain
refuse 2 '--port needs a number' "$launcher" metrics --port 70000 $plain
refuse 126 "process $plain does not run on hakmem" "$launcher" metrics --profile $plain
end $plain

# A process that was started to be observed, and one that was not.
start HAKMEM_OBSERVE=1
observed=$pid
start NOTHING=1
for process in "$observed" "$pid"; do
    "$launcher" stat "$process" --json | python3 -m json.tool >"$scratch/json" || fail "stat --json is not JSON"
    grep -q "\"process\": $process" "$scratch/json" || fail "stat --json is of another process"
    try "$launcher" stat "$process"
    [[ $status == 0 && $output == *"process $process (sleep)"*'resident memory (RSS)'*"not hakmem's"*'program and libraries'* ]] || fail "stat: $output $errors"
    try "$launcher" stat "$process" --full
    [[ $status == 0 && $output == *'resident memory (RSS)'*malloc_slow* ]] || fail "stat --full: $output $errors"
    try "$launcher" top "$process" --once
    [[ $status == 0 && $output == "process $process (sleep)"*'size classes, by held'*arenas* ]] || fail "top --once: $output"
    try "$launcher" top "$process" --batch 2 --delay 0.1
    [[ $status == 0 && $output == *"each second: slow mallocs"* ]] || fail "top --batch: $output"
    try "$launcher" metrics --once "$process"
    [[ $status == 0 && $output == *"hakmem_rss_bytes{pid=\"$process\",name=\"sleep\"} "*"hakmem_resident_bytes{pid=\"$process\",name=\"sleep\",part=\"in_use\"} "* ]] || fail "metrics: $output"
    expect 0 "process $process is observed already: ./hakmem top $process" '^$' "$launcher" observe "$process"
done
# The metrics with their helps and types are those of tests/golden/metrics.txt, and one for each counter. Some figures are
# not known everywhere, and the process has no sites.
try "$launcher" metrics --once "$process"
counters=$(grep -oE '"[a-z_]+",' "$TEST_ROOT/src/core/counters.h" | tr -d '",' | paste -sd '|')
other=$(LC_ALL=C comm -3 "$TEST_ROOT/tests/golden/metrics.txt" <(grep '^#' <<<"$output" | LC_ALL=C sort) |
    grep -vE "hakmem_(huge_page_|site_|($counters)_total )")
[[ -z $other && $(grep -cE "^# (HELP|TYPE) hakmem_($counters)_total " <<<"$output") == $((2 * $(tr '|' '\n' <<<"$counters" | wc -l))) ]] ||
    fail "other metrics than before: $other"
# Under a filter of system calls, as in containers, what is resident and in huge pages is not known of the heap.
HAKMEM_OBSERVE=1 python3 -c '
import ctypes, os, struct, sys
allow = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0x7fff0000))
program = ctypes.create_string_buffer(struct.pack("@HP", 1, ctypes.addressof(allow)))
prctl = ctypes.CDLL(None).prctl
assert prctl(38, 1, 0, 0, 0) == 0 and prctl(22, 2, ctypes.c_void_p(ctypes.addressof(program))) == 0
os.execvpe("sleep", ["sleep", "1000"], os.environ | {"LD_PRELOAD": sys.argv[1]})' "$library" &
filtered=$!
unfiltered=$pid
await_library $filtered
try "$launcher" stat "$filtered"
[[ $status == 0 && -z $errors && $output =~ $'\n'huge\ pages:\ .*\;\ (hakmem does not ask under a filter|.*/sys/kernel/) ]] ||
    fail "stat under a filter: $status: $output $errors"
for command in 'stat --json' 'top --once' 'heap --text'; do
    try "$launcher" $command "$filtered"
    ((status == 0)) || fail "$command under a filter: $status $errors"
done
end "$filtered"
pid=$unfiltered
[[ $("$launcher" top) == *"$observed "*sleep*"$pid "*sleep* || $("$launcher" top) == *"$pid "*sleep*"$observed "*sleep* ]] ||
    fail "top does not list the observed processes"

# By name: those that run on hakmem, of which one is not observed yet. By promtool's rules, if that is there.
cp /bin/sleep "$scratch/hakmem-nap"
"$scratch/hakmem-nap" 1000 &
other=$!
mapped=$pid
LD_PRELOAD=$library "$scratch/hakmem-nap" 1000 &
await_library $!
try "$launcher" metrics --once "$mapped" --name hakmem-nap
[[ $status == 0 && $output == *"hakmem_up{pid=\"$mapped\"} 1"*"hakmem_up{pid=\"$pid\"} 1"* && $output != *"\"$other\""* ]] ||
    fail "metrics --name: $output $errors"
end "$pid"
end $other
pid=$mapped
[[ -z $(type -P promtool) ]] || promtool check metrics <<<"$output" || fail "promtool refuses what metrics prints"
refuse 2 'which processes' "$launcher" metrics
refuse 127 'there is no such process that runs on hakmem' "$launcher" metrics --once --name hakmem-none
refuse 2 'not empty' "$launcher" metrics --name ''
refuse 2 'not empty' "$launcher" metrics --cgroup ''
refuse 2 'cannot read the token' "$launcher" metrics --token-file '' $plain
refuse 2 'needs an IP address' "$launcher" metrics --listen localhost "$pid"
refuse 2 'others can reach 0.0.0.0; --token-file FILE keeps them out' "$launcher" metrics --listen 0.0.0.0 "$pid"

# Served on loopback, until the tool ends; a process that is gone is down.
"$launcher" metrics --profile --port 0 "$observed" "$pid" >"$scratch/served" &
server=$!
await test -s "$scratch/served"
url=$(sed 's/.* //' "$scratch/served")
[[ $url == http://127.0.0.1:*/metrics ]] || fail "metrics says '$url'"
fetch() {
    python3 -c 'import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1]).read().decode())' "$url"
}
# Heap profiles for pprof: one of all processes, or of one; what cannot be answered is refused.
python3 - "${url%/metrics}/debug/pprof" "$pid" <<'END' || fail "metrics serves no profiles"
import concurrent.futures, gzip, sys, time, urllib.error, urllib.request
url, pid = sys.argv[1:]
def status(path):
    try:
        return urllib.request.urlopen(url + path).status
    except urllib.error.HTTPError as error:
        return error.code
for path in ("/heap", "/allocs", f"/heap?pid={pid}", f"/heap?pid={pid}&debug=0"):
    data = gzip.decompress(urllib.request.urlopen(url + path).read())
    assert b"inuse_space" in data and b"sleep" in data, (path, data)
answers = [status(path) for path in ("/heap?pid=1", "/heap?pid=x", "/heap?debug=1", "/goroutine")]
assert answers == [404, 404, 400, 404], answers
# What changes in a second; the answer comes after it, and metrics are served meanwhile.
began = time.monotonic()
waiting = urllib.request.Request(url + f"/heap?seconds=1&pid={pid}")
with concurrent.futures.ThreadPoolExecutor() as pool:
    answer = pool.submit(lambda: gzip.decompress(urllib.request.urlopen(waiting).read()))
    assert b"hakmem_up" in urllib.request.urlopen(url.replace("/debug/pprof", "/metrics")).read()
    assert b"inuse_space" in answer.result() and time.monotonic() - began >= 1
for wrong in ("0", "-1", "1.5", "x", "601", "99999999999999999999", "%D9%A1"):
    try:
        urllib.request.urlopen(url + "/heap?seconds=" + wrong)
        assert False, wrong
    except urllib.error.HTTPError as error:
        assert error.code == 400 and error.read().startswith(b"seconds must be a whole number from 1 to 600, not "), wrong
assert status("/heap?seconds=") == 200
END
for ((i = 0; i < 20; i++)); do # a process that cannot answer in 5 s is down until the next time
    try fetch
    [[ $output == *"hakmem_up{pid=\"$pid\"} 1"* ]] && break
done
[[ $output == *"hakmem_up{pid=\"$pid\"} 1"*"# TYPE hakmem_malloc_slow_total counter"* ]] || fail "metrics served: $output"

# Processes that end meanwhile.
"$launcher" top "$pid" --batch 100000 --delay 0.05 >"$scratch/reports" 2>"$scratch/ended" &
top=$!
await test -s "$scratch/reports"
end "$pid"
wait $top || fail "top of a process that ends: status $?"
[[ $(<"$scratch/ended") == "hakmem: process $pid has ended" ]] || fail "top of a process that ends: $(<"$scratch/ended")"
try fetch
[[ $output == *"hakmem_up{pid=\"$pid\"} 0"* ]] || fail "metrics of a process that is gone: $output"
kill $server
wait $server
try "$launcher" profile --stop "$observed"
[[ $output == "process $observed was not being sampled" ]] || fail "metrics --profile ended, but: $output"

# On a terminal one picture, and the terminal as it was; of a process that ends the last report stays.
start HAKMEM_OBSERVE=1
{ await grep -qs quit "$scratch/picture" && printf q; } |
    TERM=xterm on_terminal "$launcher" top --delay 0.1 "$pid" >"$scratch/picture" || fail "top on a terminal: $?"
screen=$(<"$scratch/picture")
[[ $screen == *$'\e[?1049h'*"process $pid (sleep)"*'size classes, by held'*'q quit'*$'\e[?1049l' ]] || fail "top shows '$screen'"
TERM=xterm on_terminal "$launcher" top --delay 0.1 "$pid" >"$scratch/last" </dev/null &
top=$!
await grep -qs quit "$scratch/last"
kill -KILL "$pid"
wait $top || fail "top on a terminal of a process that ends: status $?"
screen=$(sed -z 's/.*\x1b\[?1049l//' "$scratch/last")
[[ $screen == *"process $pid (sleep)"*"resident "*"hakmem: process $pid has ended"* ]] || fail "top leaves '$screen'"
wait "$pid" 2>/dev/null

# The thread of an attached observer has emergency memory, which is no huge block.
start NOTHING=1
"$launcher" stat "$pid" --json | python3 -c '
import json, sys
report = json.load(sys.stdin)
small = report["tiers"]["huge_small_count"]
sys.exit(not 1 <= small == report["totals"]["huge_count"] or sum(report["mapped"].values()) != report["summary"]["not_hakmem_bytes"])' ||
    fail "the small mapping of an attached observer is not counted as one, or what is not hakmem's does not add up"
try "$launcher" top --once "$pid"
[[ $output == *"huge blocks 0   small mappings "[1-9]* ]] || fail "top of an attached process: $output"
try "$launcher" heap -o "$scratch/page" "$pid"
grep -q '<small>beside the heap</small><b>[1-9].* anonymous' "$scratch/page" && [[ $output == *$'\n  anonymous, beside it  '* ]] ||
    fail "heap does not tell what is beside the heap: $output"
grep -q '<small>huge blocks in use</small><b>0</b>' "$scratch/page" && grep -q 'in use, small mapping' "$scratch/page" ||
    fail "heap of an attached process"
end "$pid"

# Every tool says that a process is stopped, observed or not, and does not wait until it gives no report; that it says so
# at once is tried by python/tests/look/test_observer.py.
start NOTHING=1
plain=$pid
start HAKMEM_OBSERVE=1
kill -STOP "$pid" "$plain"
are_stopped() { [[ -z $(grep -L '^State:.*stopped' /proc/{"$pid","$plain"}/task/*/status) ]]; }
await are_stopped
for process in "$pid" "$plain"; do
    for command in stat top metrics observe heap profile; do
        [[ $process == "$pid" && $command == observe ]] && continue
        refuse 126 "process $process is stopped; let it go on first \(kill -CONT $process\)" timeout 300 "$launcher" $command "$process"
    done
done
kill -CONT "$pid" "$plain"
end "$pid" "$plain" "$observed"

python_tests observer mapped strangers generated
finish
