#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `./hakmem profile -- PROGRAM`: the profile is shown however the program ends: by a signal, by Ctrl-C, by _exit, by its
# own handler. The program gets each signal once, and its exit status stays. A process that calls exec is named as such.
#
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
cd -- "$scratch" || exit 1
need_shm_and_signals
act

# Sets `process` once the program is ready, and the tool has a profile of it that was begun later.
wait_for_program() {
    await test -e ready
    process=$(<ready)
    asked "$process" 3
}

# begin ARGUMENT...: the tool in the background. Sets `tool`. The period is 1: every block is sampled, so the sums are
# exact. (With 8 KiB they once were two standard deviations off, and the test failed.)
begin() {
    rm -f ready go
    "${plainly[@]}" "$launcher" profile --period 1 "$@" >tool.output 2>tool.errors &
    tools[tool]=$!
    wait_for_program
}

fill=(./acts alpha:1000:10000)
table='about 9\.5 MiB in use.*alpha \(.*acts\.c:[0-9]+\)'
for signal in TERM KILL SEGV; do # INT: below, by a terminal
    begin -- "${fill[@]}" wait
    kill "-$signal" "$process"
    ended tool $((128 + $(kill -l $signal))) "$table" "^hakmem: SIG$signal ended the program; this is its profile of [0-9.]+ s before"
done

begin --leaks -- "${fill[@]}" wait
kill -TERM "${tools[tool]}" # it is passed on, after a last question
ended tool 143 'not freed until shortly before its end.*alpha \(.*acts\.c' '^hakmem: SIGTERM ended the program'

begin -- "${fill[@]}" wait
touch go
ended tool 5 "$table" '^(hakmem: the program wrote no profile at its end; .*)?$' # with hakmem's own _exit it has written one

begin -- "${fill[@]}" catch wait exit:7
kill -TERM "${tools[tool]}"
ended tool 7 "^caught 1.*$table" '^$'

# Python catches SIGINT, cleans up, and ends itself by the signal.
begin -- python3 -c '
import os, time
keep = [bytearray(10000) for i in range(1000)]
open("ready.new", "w").write(str(os.getpid()))
os.rename("ready.new", "ready")
time.sleep(600)'
kill -INT "$process"
ended tool 130 'MiB in use' 'KeyboardInterrupt.*hakmem: SIGINT ended the program'

# Ctrl-C reaches the program and the tool.
for words in wait 'catch wait exit:7'; do
    rm -f ready go
    { await test -e pressed && printf '\3'; } |
        on_terminal "${plainly[@]}" "$launcher" profile --period 1 -- "${fill[@]}" $words >tool.output 2>tool.errors &
    tools[tool]=$!
    wait_for_program
    touch pressed
    if [[ $words == wait ]]; then
        ended tool 130 "SIGINT ended the program.*$table" '^$'
    else
        ended tool 7 "caught 1.*$table" '^$'
    fi
    rm pressed
done

# exec while a tool asks.
mkfifo gate
HAKMEM_OBSERVE=1 "$launcher" run --quiet -- bash -c 'echo >started; read -r line <gate; exec sleep 600' &
process=$!
await test -e started
cat >ask.py <<'END'
import sys, time
from hakmem.look.observer import NotObserved, Observer
from hakmem.look.processes import Refusal, look
while True:
    try:
        observer = Observer(look(int(sys.argv[1])))
        break
    except NotObserved:
        time.sleep(0.01)
observer.ask("profile", 60)
open("gate", "w").write("go\n")
while look(int(sys.argv[1])).name != "sleep":
    time.sleep(0.01)
try:
    observer.ask("profile", 60)
except Refusal as refusal:
    print(refusal)
END
said=$(PYTHONPATH=$TEST_ROOT/python python3 -B ask.py "$process")
end "$process"
[[ $said == "process $process has become another program, sleep, by exec; what was known of the one before, bash, is gone" ]] ||
    fail "said '$said'"
finish
