#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# HAKMEM_LEARN in a real process, and `./hakmem learn show`: decisions are kept though the process is killed; a planted bad
# setting goes; files that are damaged, hostile or another program's change nothing.
# ctest: timeout=2700
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
cd -- "$scratch" || exit 1
library=$("$launcher" build)

# Frees a batch when the next one is complete: small bins cost it more than twice the time.
compile steady.c steady -O1 -fno-builtin <<'END'
#include <stdlib.h>
#include <unistd.h>
enum { BATCH = 6000 };
static void *blocks[2][BATCH];
int main(int argc, char **argv)
{
    long rounds = argc > 1 ? atol(argv[1]) : -1;
    if (argc > 2 && fork() != 0) {
        pause();
    }
    for (long round = 0; round != rounds; round++) {
        void **batch = blocks[round % 2];
        for (int i = 0; i < BATCH; i++) {
            batch[i] = malloc((size_t)(1 + i * 37 % 1000));
        }
        batch = blocks[(round + 1) % 2];
        for (int i = 0; i < BATCH; i++) {
            free(batch[i]);
            batch[i] = NULL;
        }
        rounds < 0 ? usleep(2000) : 0; // the learner counts the processor's time alone
    }
}
END

# steady LEARN [ARGUMENT]...
steady() {
    LD_PRELOAD=$library HAKMEM_LEARN=$1 ./steady "${@:2}"
}

# learn_until FILE PATTERN: runs the program until a line of the state matches, and kills it. The bound is a guard against
# hangs only.
learn_until() {
    local process i
    LD_PRELOAD=$library HAKMEM_LEARN=$1 ./steady 2>errors.learn &
    process=$!
    for ((i = 0; i < 7200; i++)); do
        grep -qs "$2" "$1" && break
        sleep 0.1
    done
    kill -9 "$process"
    wait "$process" 2>/dev/null
    grep -q "$2" "$1" || fail "no line '$2' in the state: $(cat "$1" errors.learn)"
}

# A forked child learns for itself, beside what follows; without a %p in the name there is no file.
HAKMEM_LEARN=forked.state.%p LD_PRELOAD=$library setsid ./steady -1 fork &
parent=$!
HAKMEM_LEARN=forked.state LD_PRELOAD=$library setsid ./steady -1 fork &
other=$!

# --- what is learned stays, whatever ends the process ---

learn_until state '^decision '
expect 0 "" "" steady state 10
try "$launcher" learn show state
[[ $status == 0 && $output == "steady, 1 run"*"larger thread caches "*" "[0-9]* ]] || fail "show: $status $output $errors"

# --- a planted bad setting goes ---

bins=$(sed -n 's/^options .*bin_bytes=\([0-9]*\).*/\1/p' state)
cache=$(sed -n 's/^options .*cache_bytes=\([0-9]*\) huge.*/\1/p' state)
change_state state planted "/^options/{p;s/options/champion/;s/ bin_bytes=$bins cache_bytes=$cache/ bin_bytes=$((bins / 16)) cache_bytes=$((cache / 16))/;p;d};/^champion/d"
grep -q "^champion .* bin_bytes=$((bins / 16)) " planted || fail "nothing was planted"
learn_until planted '^decision went_back'
[[ $(sed -n 's/^champion //p' planted) == "$(sed -n 's/^options //p' planted)" ]] || fail "the planted setting stays"
try "$launcher" learn show planted
[[ $output == *"Setting now: that of the options"*"went back"* ]] || fail "show of the planted one: $output"

# --- a forked child learns for itself, and leaves its parent's file alone ---

# Until the child has a file, for twelve minutes at most. Parents write theirs when they start.
for ((i = 0; i < 7200; i++)); do
    files=(forked.state.*)
    ((${#files[@]} > 1)) && break
    sleep 0.1
done
sleep 2
kill -9 -- "-$parent" "-$other"
wait "$parent" "$other" 2>/dev/null
files=(forked.state.*)
[[ ${#files[@]} == 2 && -e forked.state.$parent ]] || fail "files of parent and child: ${files[*]}"
! grep -q decision forked.state "forked.state.$parent" || fail "the child has written its parent's file"

# --- files that cannot be used change nothing; tests/unit/test_learn_state.c has more that are damaged ---

# refused COMPLAINT FILE [NAME=VALUE]: a run with the file says so in one line, and leaves it as it is.
refused() {
    cp "$2" before
    expect 0 "" "^hakmem: [^"$'\n'"]*$1[^"$'\n'"]*\$" env "LD_PRELOAD=$library" "HAKMEM_LEARN=$2" "${@:3}" ./steady 10
    cmp -s "$2" before || fail "$2 has changed"
}
sed 's/runs 1/runs 2/' state >damaged
refused "begins anew: its file is damaged" damaged
change_state state other 's/^program .*/program another/'
refused "begins anew: its file is of another program" other
refused "begins anew: its file was learned with other options" state HAKMEM_PURGE_DELAY_MS=77
refused "begins anew: its file was learned with other options" state HAKMEM_LEARN_MEMORY_PERCENT=50

mkfifo pipe
expect 0 "" "" steady pipe 10
mkdir directory
expect 0 "" "begins anew" steady directory 10
for word in off on; do
    expect 0 "" "^$" steady "$word" 10
    [[ ! -e $word ]] || fail "there is a file $word"
done
expect 0 "" "^hakmem: [^"$'\n'"]*missing/state[^"$'\n'"]*\$" steady missing/state 10

# --- a run that is too short leaves a file that says so, which is in no later run's way ---

expect 0 "" "^$" steady short.state 10
expect 0 "steady, 1 run
Setting now: that of the options; nothing is decided yet: the program has run or allocated too little." "^$" \
    "$launcher" learn show short.state
cp steady other_program
expect 0 "" "^$" env "LD_PRELOAD=$library" HAKMEM_LEARN=short.state ./other_program 10
expect 0 "" "^$" env "LD_PRELOAD=$library" HAKMEM_LEARN=short.state HAKMEM_PURGE_DELAY_MS=77 ./steady 10
expect 137 "" "" bash -c 'LD_PRELOAD=$1 HAKMEM_LEARN=killed.state bash -c "kill -9 \$\$"; exit $?' - "$library"
[[ $(<killed.state) == *"program bash"* ]] || fail "a killed program left $(cat killed.state)"

# --- learn show ---

expect 126 "" "damaged is not a state file of the learner, or it is damaged" "$launcher" learn show damaged
expect 126 "" "cannot read 'absent'" "$launcher" learn show absent
expect 126 "" "cannot read 'directory'" "$launcher" learn show directory
expect 2 "" "FILE" "$launcher" learn show
finish
