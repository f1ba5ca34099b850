#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `./hakmem profile -- PROGRAM`: the profile is shown however the program ends: by a signal, by Ctrl-C, by _exit, by its
# own handler. The program gets each signal once, and its exit status stays. A process that calls exec is named as such.
#
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
cd -- "$scratch" || exit 1
[[ -w /dev/shm ]] || { echo "skipped: there is no /dev/shm to ask programs by"; exit 77; }
plainly=(env --default-signal=INT) # bash starts jobs with SIGINT ignored
"${plainly[@]}" true || { echo "skipped: this env cannot restore SIGINT"; exit 77; }

cat >ends.c <<'END'
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
void *keep[1000];
static volatile sig_atomic_t caught;
__attribute__((noinline)) void fill(void)
{
    for (int i = 0; i < 1000; i++) {
        keep[i] = malloc(10000);
    }
}
static void note(int number)
{
    (void)number;
    caught++;
}
int main(int argc, char **argv)
{
    fill();
    if (argc > 2) {
        signal(SIGINT, note);
        signal(SIGTERM, note);
    }
    FILE *ready = fopen("ready.new", "w");
    fprintf(ready, "%d\n", (int)getpid());
    fclose(ready);
    rename("ready.new", "ready");
    while (!caught) {
        if (argc > 1 && access("go", F_OK) == 0) {
            _exit(5);
        }
        usleep(10000);
    }
    usleep(300000); /* a second signal would come now */
    printf("caught %d\n", (int)caught);
    return 7;
}
END
cc -O2 -g ends.c -o ends || fail "ends.c does not compile"

# Sets `process` once the program is ready, and the tool has a profile of it that was begun later.
wait_for_program() {
    until [[ -e ready ]]; do sleep 0.02; done
    process=$(<ready)
    python3 - "$process" <<'END'
import glob, struct, sys, time
def answers():
    for path in glob.glob(f"/dev/shm/hakmem.*.{sys.argv[1]}"):
        with open(path, "rb") as file:
            return struct.unpack_from("=I", file.read(32), 28)[0]
    return 0
first = answers()
while answers() < first + 3:
    time.sleep(0.01)
END
}

# begin ARGUMENT...: the tool in the background. Sets `tool`. The period is 1: every block is sampled, so the sums are
# exact. (With 8 KiB they once were two standard deviations off, and the test failed.)
begin() {
    rm -f ready go
    "${plainly[@]}" "$launcher" profile --period 1 "$@" >output 2>errors &
    tool=$!
    wait_for_program
}

# ended STATUS OUTPUT ERRORS: regular expressions.
ended() {
    local status
    wait "$tool"
    status=$?
    [[ $status == "$1" ]] || fail "status $status instead of $1: $(<errors)"
    [[ $(<output) =~ $2 ]] || fail "no '$2' in: $(<output)"
    [[ $(<errors) =~ $3 ]] || fail "no '$3' in: $(<errors)"
}

table='about 9\.5 MiB in use.*fill \(.*ends\.c:[0-9]+\)'
for signal in TERM KILL SEGV; do # INT: below, by a terminal
    begin -- ./ends
    kill "-$signal" "$process"
    ended $((128 + $(kill -l $signal))) "$table" "^hakmem: SIG$signal ended the program; this is its profile of [0-9.]+ s before"
done

begin --leaks -- ./ends
kill -TERM "$tool" # it is passed on, after a last question
ended 143 'not freed until shortly before its end.*fill \(.*ends\.c' '^hakmem: SIGTERM ended the program'

begin -- ./ends argument
touch go
ended 5 "$table" '^(hakmem: the program wrote no profile at its end; .*)?$' # with hakmem's own _exit it has written one

begin -- ./ends argument handler
kill -TERM "$tool"
ended 7 "^caught 1.*$table" '^$'

# Python catches SIGINT, cleans up, and ends itself by the signal.
begin -- python3 -c '
import os, time
keep = [bytearray(10000) for i in range(1000)]
open("ready.new", "w").write(str(os.getpid()))
os.rename("ready.new", "ready")
time.sleep(600)'
kill -INT "$process"
ended 130 'MiB in use' 'KeyboardInterrupt.*hakmem: SIGINT ended the program'

# Ctrl-C reaches the program and the tool.
for words in "./ends" "./ends argument handler"; do
    rm -f ready go pressed
    "${plainly[@]}" python3 - "$launcher" $words >output 2>errors <<'END' &
import os, pty, sys
child, terminal = pty.fork()
if child == 0:
    os.execv(sys.argv[1], [sys.argv[1], "profile", "--period", "1", "--", *sys.argv[2:]])
while not os.path.exists("pressed"):
    os.sched_yield()
os.write(terminal, b"\x03")
try:
    while piece := os.read(terminal, 65536):
        os.write(1, piece)
except OSError:
    pass
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
END
    tool=$!
    wait_for_program
    touch pressed
    if [[ $words == ./ends ]]; then
        ended 130 "SIGINT ended the program.*$table" '^$'
    else
        ended 7 "caught 1.*$table" '^$'
    fi
done

# exec while a tool asks.
mkfifo gate
HAKMEM_OBSERVE=1 "$launcher" run --quiet -- bash -c 'echo >started; read -r line <gate; exec sleep 600' &
process=$!
until [[ -e started ]]; do sleep 0.02; done
cat >ask.py <<'END'
import sys, time
sys.path.insert(0, sys.argv[1])
from hakmem.look.observer import NotObserved, Observer
from hakmem.look.processes import Refusal, look
while True:
    try:
        observer = Observer(look(int(sys.argv[2])))
        break
    except NotObserved:
        time.sleep(0.01)
observer.ask("profile", 60)
open("gate", "w").write("go\n")
while look(int(sys.argv[2])).name != "sleep":
    time.sleep(0.01)
try:
    observer.ask("profile", 60)
except Refusal as refusal:
    print(refusal)
END
said=$(python3 ask.py "${launcher%/*}/python" "$process")
kill "$process"
wait "$process"
[[ $said == "process $process has become another program, sleep, by exec; what was known of the one before, bash, is gone" ]] ||
    fail "said '$said'"
finish
