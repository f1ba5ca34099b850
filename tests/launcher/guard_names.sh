#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `./hakmem run` with the guard prints the functions and lines of its report when the program has ended, and ends as the
# program has: by its signal, or with its status.
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
cd -- "$scratch" || exit 1

compile program.c program -g -O1 -fno-builtin -w -DX <<'END'
#include <stdlib.h>
#include <unistd.h>
__attribute__((noinline)) char *makes(void)
{
    return malloc(64);
}
static inline __attribute__((always_inline)) char inlined_read(volatile char *block)
{
    return block[3];
}
__attribute__((noinline)) char uses(volatile char *block)
{
    char got = block[0];
    free((char *)block);
    return got + inlined_read(block);
}
int main(int argc, char **argv)
{
    (void)argv;
    if (argc == 2) {
        return uses(makes());
    }
    if (argc == 3) {
        write(1, "ready\n", 6);
        pause();
    }
    return 7;
}
END
export DEBUGINFOD_URLS= TMPDIR=$scratch/reports
mkdir "$TMPDIR"
run=("$launcher" run --quiet --set guard=1)

{ try env LD_PRELOAD=libgcc_s.so.1 "${run[@]}" ./program wrong; } 2>/dev/null
[[ $status == 139 && -z $output ]] || fail "status $status, output '$output'"
names=${errors#*'hakmem: the functions:'}
[[ $errors == 'hakmem: fatal: use after free (read)'* && $names != "$errors" ]] || fail "no names: $errors"
has "$names" 'accessed by [^#]*#0 inlined_read \(.*/program\.c:9\)'$'\n''hakmem:     #0 uses \(.*/program\.c:15\)'$'\n''hakmem:     #1 main \('
has "$names" 'allocated by [^#]*#0 makes \(.*/program\.c:5\)'
has "$names" 'freed by [^#]*#0 uses \(.*/program\.c:14\)'
python3 -c 'import os, signal, subprocess, sys
status = subprocess.run(sys.argv[1:], stderr=subprocess.DEVNULL).returncode
sys.exit(0 if status == -signal.SIGSEGV else f"status {status}")' "${run[@]}" ./program wrong || fail "it does not end by the program's signal"

# Another file has the program's name by now: no name of it.
cp program kept
{ try "${run[@]}" bash -c 'cp kept running; exec 3<running; ./running wrong; rm running; cp program.c running; exit 5'; } 2>/dev/null
[[ $status == 5 ]] || fail "status $status of the shell"
[[ $errors == *'hakmem: running has offsets instead of names: its file is another one now'* ]] || fail "no reason: $errors"

expect 7 '' '^$' "${run[@]}" ./program
coproc waiting { exec "${run[@]}" ./program a b; }
pid=$waiting_PID
read -r -t 60 line <&"${waiting[0]}" && [[ $line == ready ]] || fail "the program says '$line'"
kill -TERM "$pid"
wait "$pid"
(($? == 143)) || fail "SIGTERM does not reach the program"
[[ -z $(ls "$TMPDIR") ]] || fail "a file of reports is left: $(ls "$TMPDIR")"
finish
