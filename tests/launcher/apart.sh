#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Placement of long-lived objects (HAKMEM_LEARN, docs/learning.md): the first run of a small server learns its site, the
# second one begins with it and needs less memory for the same objects. Damaged files and `off` change nothing.
#
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
cd -- "$scratch" || exit 1
library=$("$launcher" build)
export LD_LIBRARY_PATH=${library%/*}

# A burst of requests lives until the next one, and one object in 120 is a session, which lives. Without an argument the
# bursts are small, come every 5 ms, and do not end. Else that many large ones, and then a report.
compile server.c server -O1 -I"$TEST_ROOT/include" "$library" -Wl,--no-as-needed -lgcc_s <<'END_C'
#include <hakmem/hakmem.h>
#include <hakmem/site.h>
#include <hakmem/stats.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
enum { SESSIONS = 1 << 20, ONE_IN = 120, SIZE = 500, BURST = 24000 };
static void *sessions[SESSIONS], *requests[BURST];
static size_t count;
static void burst(int size)
{
    for (int i = 0; i < size; i++) {
        HAK_SITE_SCOPE("requests");
        requests[i] = hak_malloc(SIZE);
        if (i % ONE_IN == 0) {
            HAK_SITE_SCOPE("sessions");
            hak_free(sessions[count % SESSIONS]);
            sessions[count++ % SESSIONS] = hak_malloc(SIZE);
        }
    }
    for (int i = 0; i < size; i++) {
        hak_free(requests[i]);
    }
}
static void print(void *file, const char *text, size_t size)
{
    fwrite(text, 1, size, file);
}
int main(int argc, char **argv)
{
    int bursts = argc > 1 ? atoi(argv[1]) : 0;
    for (; argc == 1; usleep(5000)) {
        burst(2 * ONE_IN);
    }
    for (int i = 0; i < bursts; i++) {
        burst(BURST);
    }
    hak_trim(0);
    hak_report(HAK_REPORT_JSON, print, stdout);
}
END_C

# server LEARN [ARGUMENT]...: the 4 KiB let it take enough samples of few sessions.
server() {
    HAKMEM_LEARN=$1 HAKMEM_SAMPLE_BYTES=4k ./server "${@:2}"
}

# number NAME: the first figure of that name in the output.
number() {
    grep -o "\"$1\": [0-9]*" <<<"$output" | head -n 1 | grep -o '[0-9]*$'
}

# --- the first run: learns in 16 s or more ---

HAKMEM_LEARN=state HAKMEM_SAMPLE_BYTES=4k ./server 2>errors.learn &
process=$!
await grep -qs '^apart sessions$' state
kill -9 "$process"
wait "$process" 2>/dev/null
[[ $(grep '^apart ' state) == "apart sessions" ]] || fail "the state is: $(cat state errors.learn)"
[[ ! -s errors.learn ]] || fail "the first run says: $(<errors.learn)"
try "$launcher" learn show state
[[ $status == 0 && $output == *$'\n'"Long-lived sites, whose objects have slabs of their own: sessions"* ]] || fail "show: $status $output $errors"

# --- the second run: sessions hold slabs of their own, so those of requests are given back ---

cp state before
try server state 10
[[ $status == 0 && -z $errors ]] || fail "second run: $status $errors"
[[ $(number threads_count) == 1 && $output == *'"apart": 1,'* ]] || fail "the second run does not begin with the site: $output"
apart=$(number slab_bytes)
cmp -s state before || fail "a short run has changed the file"

# --- off, and without a file ---

for learn in off on; do
    try server "$learn" 10
    [[ $status == 0 && -z $errors && $output != *'"apart": 1,'* ]] || fail "$learn: $status $errors $output"
    usual=$(number slab_bytes)
    ((3 * apart < usual)) || fail "slabs of $apart bytes with placement, $usual with HAKMEM_LEARN=$learn"
done
[[ $(HAKMEM_LEARN=off ./server 1) == *'"sampled_bytes": 0,'* ]] || fail "off: takes samples"

# --- names that are damaged, hostile, or of no site of the program ---

# refused FILE: a run with the file says so in one line, leaves it as it is, and places nothing.
refused() {
    cp "$1" before
    try server "$1" 1
    [[ $status == 0 && $output != *'"apart": 1,'* ]] || fail "$1: $status $output"
    [[ $errors =~ ^hakmem:\ [^$'\n']*"begins anew: its file is damaged"[^$'\n']*$ ]] || fail "$1 says: $errors"
    cmp -s "$1" before || fail "$1 has changed"
    expect 126 "" "is not a state file of the learner, or it is damaged" "$launcher" learn show "$1"
}
change_state state escape $'s/^apart sessions/apart \033[31m/'
refused escape
change_state state many "$(printf '/^apart sessions/{'; for i in {1..32}; do printf 'i apart x%d\n' "$i"; done; printf '}')"
refused many
change_state state unknown 's/^apart sessions/apart of an older version/'
try server unknown 1
[[ $status == 0 && -z $errors && $output != *'"apart": 1,'* ]] || fail "unknown: $status $errors $output"
finish
