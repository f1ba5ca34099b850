#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `./hakmem profile PID` beside other tools and beside the process's own sampling: each shows what was sampled in its own
# time, and afterwards all is as before, also when a tool is killed. Ctrl-C, and a process that ends, lose nothing.
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
cd -- "$scratch" || exit 1
[[ -w /dev/shm ]] || { echo "skipped: there is no /dev/shm to ask programs by"; exit 77; }
plainly=(env --default-signal=INT) # bash starts jobs with SIGINT ignored
"${plainly[@]}" true || { echo "skipped: this env cannot restore SIGINT"; exit 77; }

# Obeys a line: "d N" allocates N blocks, "f N" frees the N oldest, "p BYTES" samples itself, "s" stops that, "k" forks a
# child that stays, "r" changes its root directory, "x" becomes another program. Answers each with a line.
cat >obeys.c <<'END'
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *volatile blocks[100];
static int first, last;
__attribute__((noinline)) void drip(void)
{
    blocks[last++] = memset(malloc(100000), 1, 100000);
}
int main(void)
{
    char line[64], command;
    long number;
    while (fgets(line, sizeof line, stdin) != NULL) {
        number = 0;
        sscanf(line, "%c %ld", &command, &number);
        for (int i = 0; i < 20000; i++) { /* a thread that allocates notices a change of the period */
            free(malloc(100));
        }
        for (long i = 0; i < number && command != 'p'; i++) {
            if (command == 'd') {
                drip();
            } else {
                free(blocks[first++]);
            }
        }
        if (command == 'p') {
            ((int (*)(size_t))dlsym(RTLD_DEFAULT, "hak_profile_start"))((size_t)number);
        } else if (command == 's') {
            ((void (*)(void))dlsym(RTLD_DEFAULT, "hak_profile_stop"))();
        } else if (command == 'k') {
            number = fork();
            if (number == 0) {
                pause();
            }
        } else if (command == 'r') {
            number = chroot("root");
        } else if (command == 'x') {
            execlp("sleep", "sleep", "600", (char *)NULL);
        }
        printf("%ld\n", number);
        fflush(stdout);
    }
    return 0;
}
END
cc -O1 -g -fno-builtin obeys.c -o obeys -ldl || fail "obeys.c does not compile"

# What a process says of its sampling: the period in force, its own one, and whether it tells threads apart.
cat >sampling.py <<'END'
import json, sys, time
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
from hakmem.look.observer import NotObserved, Observer
from hakmem.look.processes import look
until = time.monotonic() + 300
while True:
    try:
        document = json.loads(Observer(look(int(sys.argv[2]))).ask("profile", 300))
        head = document["hakmem_profile"]
        now = f"{head['period']} {head['own_period']} {int('threads' in document)}"
        if now == sys.argv[3] or time.monotonic() > until:
            print(now)
            break
    except NotObserved:
        pass
    time.sleep(0.02)
END

# samples PERIOD OWN THREADS [PROCESS]: waits for it.
samples() {
    local now
    now=$(python3 sampling.py "${launcher%/*}/python" "${4-$process}" "$1 $2 $3")
    [[ $now == "$1 $2 $3" ]] || fail "line ${BASH_LINENO[0]}: sampling is $now instead of $1 $2 $3"
}

start() {
    coproc service { HAKMEM_OBSERVE=1 exec "$launcher" run --quiet -- ./obeys; }
    process=$service_PID
    samples 0 0 0
}

obey() {
    echo "$1" >&"${service[1]}"
    read -r answer <&"${service[0]}"
}

# begin NAME ARGUMENT...: a tool in the background that samples. Its process is in tools[NAME].
declare -A tools
begin() {
    local name=$1
    shift
    "${plainly[@]}" "$launcher" profile --seconds 3000 "$@" "$process" >"$name.output" 2>"$name.errors" &
    tools[$name]=$!
    until [[ -s $name.errors ]]; do sleep 0.02; done # it says so when it samples
}

# ended NAME STATUS OUTPUT ERRORS: regular expressions.
ended() {
    local status
    wait "${tools[$1]}"
    status=$?
    [[ $status == "$2" ]] || fail "$1: status $status instead of $2: $(<"$1.errors")"
    [[ $(<"$1.output") =~ $3 ]] || fail "$1: no '$3' in: $(<"$1.output")"
    [[ $(<"$1.errors") =~ $4 ]] || fail "$1: no '$4' in: $(<"$1.errors")"
}

# asked: the tool has asked for a profile that it began to ask for after now.
asked() {
    python3 - "$process" <<'END'
import glob, struct, sys, time
def answers():
    for path in glob.glob(f"/dev/shm/hakmem.*.{sys.argv[1]}*"):
        with open(path, "rb") as file:
            return struct.unpack_from("=I", file.read(32), 28)[0]
    return 0
first = answers()
while answers() < first + 4:
    time.sleep(0.01)
END
}

blocks() { echo " $1 blocks  drip \(.*obeys\.c:10\)"; }

start
# The end of the first is not the second's end; blocks from before do not count, freed or not.
begin first --period 1 -o first.kept
samples 1 0 0
obey 'd 3'
begin second --period 1 --allocated --pprof second.pprof
obey 'd 4'
obey 'f 2'
kill -INT "${tools[first]}"
ended first 130 "$(blocks 5)" 'SIGINT ended the sampling'
samples 1 0 0
obey 'd 5'
obey 'f 3'
kill -TERM "${tools[second]}"
ended second 143 "$(blocks 9)" 'SIGTERM ended the sampling'
samples 0 0 0
[[ -s second.pprof ]] || fail "Ctrl-C: there is no pprof file"
try "$launcher" profile first.kept
has "$output" "$(blocks 5)"
[[ $errors == '' ]] || fail "the kept profile: $errors"

# A later one does not count what earlier ones have sampled.
begin third --period 1
obey 'd 2'
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
obey 'p 64000'
samples 64000 64000 0
begin finer --period 1
samples 1 64000 0
obey 'd 3'
kill -INT "${tools[finer]}"
ended finer 130 "$(blocks 3)" 'SIGINT'
samples 64000 64000 0
begin beside
has "$(<beside.errors)" 'the process samples itself: one allocation in 64000 bytes, instead of 524288'
obey s
samples 524288 0 0
obey 'p 64000'
try "$launcher" profile --stop "$process"
has "$output" "process $process is no longer sampled.*Another tool samples it until that tool ends"
samples 524288 0 0
kill -INT "${tools[beside]}"
wait "${tools[beside]}"
samples 0 0 0

# No tool knows the child of a fork.
begin forks --period 1
obey k
child=$answer
samples 0 0 0 "$child"
kill "$child"
kill -INT "${tools[forks]}"
wait "${tools[forks]}"

# A process that changes its root directory does not know its mappings any more. One that was not observed from its start
# has kept none.
kill "$process"
wait "$process" 2>/dev/null
mkdir root
coproc service { exec "$launcher" run --quiet -- ./obeys; }
process=$service_PID
obey 'd 1'
begin moves --period 1
obey r
[[ $answer != 0 ]] || obey 'd 4'
kill -INT "${tools[moves]}"
if [[ $answer == 4 ]]; then
    ended moves 130 "$(blocks 4)" 'SIGINT ended the sampling'
else
    wait "${tools[moves]}" # only root may do that
fi
kill "$process"
wait "$process" 2>/dev/null
start

# A process that ends, or becomes another program.
begin ends --period 1
obey 'd 6'
asked
kill -KILL "$process"
ended ends 0 "$(blocks 6)" "process $process has ended; this is its profile of [0-9.]+ s before"
wait "$process" 2>/dev/null
start
begin execs --period 1
obey 'd 7'
asked
echo x >&"${service[1]}"
ended execs 0 "$(blocks 7)" "process $process has become another program, sleep, .*; this is its profile of [0-9.]+ s before"
kill "$process"
finish
