#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The recorder under the C library's malloc and under hakmem: every entry point, threads, fork, exec, ends of all kinds.
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"

for libraries in "$recorder" "$recorder:$hakmem"; do
    record 0 "$libraries" entries
    [[ $errors =~ ^'hakmem: '[0-9]+' calls of 1 thread, '[0-9]+' bytes in '.*', '[0-9.]+' bytes a call'$ ]] ||
        fail "record says '$errors'"
    summarise "$trace"
    expect_sound
    for expected in malloc=1000 calloc=1000 'realloc=1000' 'realloc\(NULL\)=2000' aligned_alloc=1000 posix_memalign=1000 \
        memalign=3000 new=3000 'new\[\]=3000' 'aligned new=4000' free=10000 delete=5000 'sized delete=5000'; do
        expect_kind "${expected%=*}" "${expected##*=}"
    done
    [[ $summary =~ 'free of NULL: 1'[0-9]{3} ]] || fail "free of NULL: $summary"
    expect_text 'program_calls\+0x'
    expect_text $'\n''build-id [0-9a-f]{16,} /.*/program_calls'
    expect_text 'ended in order'

    record 0 "$libraries" exchange
    summarise "$trace"
    expect_sound
    expect_text 'calls of 7 threads'
    expect_text 'Threads: [0-9.]+ %'
    # As the program itself has seen it, but for the few blocks of the libraries.
    python3 - "$output" "${BASH_REMATCH[0]} ${summary#*resized by another thread: }" <<'END' || fail "other threads: '$output', but the summary: $summary"
import re, sys
elsewhere, ended, resized = map(int, re.findall(r"\d+", sys.argv[1]))
share, said_resized = re.findall(r"[0-9.]+", sys.argv[2])[:2]
sys.exit(not (elsewhere >= 64 and abs(float(share) - 100 * elsewhere / ended) < 0.02 and int(said_resized) == resized))
END

    record 0 "$libraries" tight
    summarise "$trace"
    expect_sound

    record 0 "$libraries" fork
    summarise "$trace"
    expect_sound
    children=("$trace".*)
    ((${#children[@]} == 1)) || fail "two children, one of which makes no call, have ${#children[@]} traces"
    summarise "${children[0]}"
    expect_text "a fork's child"
    expect_kind aligned_alloc 1000
    expect_text 'from before the fork: [1-9]'

    record 0 "$libraries" bare
    summarise "$trace"
    expect_sound
    expect_kind aligned_alloc 1000

    # The trace is that of the program that the process became; the one before is complete as well.
    record 0 "$libraries" exec
    summarise "$trace"
    expect_sound
    expect_kind aligned_alloc 1000
    older=("$trace".*)
    summarise "${older[0]}"
    expect_kind malloc 1000
    expect_kind aligned_alloc 0

    record 0 "$libraries" spawn
    children=("$trace".*)
    summarise "${children[0]}"
    expect_kind aligned_alloc 1000

    record 139 "$libraries" crash
    summarise "$trace"
    expect_sound
    expect_text 'did not end in order'
    (($(kind malloc) > 15000)) || fail "a crash leaves $(kind malloc) of 20000 calls"

    for mode in quick=9 quickly=8; do
        record "${mode#*=}" "$libraries" "${mode%=*}"
        summarise "$trace"
        expect_text 'ended in order'
        expect_kind aligned_alloc 1000
    done

    record 0 "$libraries" late
    summarise "$trace"
    expect_sound
    expect_text 'calls of 2 threads'

    record 0 "$libraries" failing
    summarise "$trace"
    expect_sound
    [[ $summary =~ 'failed: '([5-9]) ]] || fail "failed calls: $summary"

    record 0 "$libraries" handler
    summarise "$trace"
    expect_sound

    record 0 "$libraries" large
    summarise "$trace"
    expect_text 'more: 0\.[0-9] % of their bytes were resident'
done

# hakmem's own names, with and without the name of a site.
cat >"$scratch/own.c" <<'END'
#include <hakmem/site.h>
int main(void)
{
    void *block = NULL, *blocks[1000];
    for (int i = 0; i < 1000; i++) {
        blocks[i] = HAK_MALLOC_AT("named", 100);
    }
    for (int i = 0; i < 1000; i++) {
        hak_free_at(blocks[i], 100, 0);
        hak_free(hak_calloc(3, 5));
        hak_free(hak_realloc(hak_malloc(10), 20));
        hak_free(hak_reallocarray(hak_valloc(10), 20, 3));
        hak_free_sized(hak_pvalloc(10), 10);
        hak_free_aligned_sized(hak_aligned_alloc(64, 64), 64, 64);
        hak_free(hak_memalign(64, 10));
        hak_free(hak_posix_memalign(&block, 64, 10) == 0 ? block : NULL);
    }
    return 0;
}
END
if cc -fno-builtin -w -I "$TEST_ROOT/include" "$scratch/own.c" -o "$scratch/own" -L "$TEST_BUILD" -lhakmem "-Wl,-rpath,$TEST_BUILD"; then
    for libraries in "$recorder" "$recorder:$hakmem"; do
        expect 0 '' ' calls of 1 thread' "$tracer" record "$trace" "$libraries" "$scratch/own"
        summarise "$trace"
        expect_sound
        for expected in malloc=2000 calloc=1000 realloc=2000 aligned_alloc=1000 posix_memalign=1000 memalign=3000 free=5000 \
            free_sized=3000; do
            expect_kind "${expected%=*}" "${expected##*=}"
        done
    done
else
    fail "own.c does not compile"
fi

# ends_early REASON STATUS COMMAND...: the program's status; the last line, the summary and the replay say that the trace
# ends early. What is in it can be replayed.
ends_early() {
    local reason=$1 wanted=$2
    shift 2
    try "$@"
    [[ $status == "$wanted" ]] || fail "status $status instead of $wanted: $* ($errors)"
    [[ ${errors##*$'\n'} =~ ^'hakmem: the trace ends early: cannot write '.*": $reason"$ ]] ||
        fail "a trace that ends early: record says '$errors'"
}

# A limit of the file's size, in blocks of 1 KiB: the signal is not the program's.
"$tracer" record "$trace" "$recorder:$hakmem" "$program" quick 2>/dev/null
half=$(($(stat -c %s "$trace") / 2048)) # some frames, with zstd or without
for mode in exchange=0 quick=9; do
    [[ $mode == exchange* ]] && blocks=100 || blocks=$half
    ends_early 'File too large' "${mode#*=}" bash -c 'ulimit -f "$1" && shift && "$@" | cat; exit "${PIPESTATUS[0]}"' _ \
        "$blocks" "$tracer" record "$trace" "$recorder:$hakmem" "$program" "${mode%=*}"
    summarise "$trace"
    expect_text 'The trace ends early: the recorder could not write it \(File too large\)'
    [[ $summary != *'The file is cut'* ]] || fail "a part of a frame was left: $summary"
    try timeout 800 "$tracer" replay "$trace" 1 libc '' ''
    [[ $status == 0 && $output == *'The trace ends early'* ]] || fail "replay of a trace that ends early: $status: $output $errors"
done
errors=$(ulimit -f 0 && "$tracer" record "$trace" "$recorder" "$program" entries 2>&1)
status=$?
[[ $status == 125 && $errors == "hakmem: record: cannot write $trace: File too large" ]] || fail "no room: status $status: $errors"
[[ ! -e $trace ]] || fail "a trace that could not be begun is there: $(ls -l "$trace")"

# The program still gets the signal for files of its own.
errors=$(ulimit -f 8 && "$tracer" record "$trace" "$recorder" head -c 20000 /dev/zero 2>&1 >"$scratch/zeros")
status=$?
[[ $status == $((128 + 25)) ]] || fail "SIGXFSZ of the program: status $status: $errors"

# A full disk, where a small one can be made.
mkdir "$scratch/disk"
if unshare --mount --map-root-user true 2>/dev/null; then
    try unshare --mount --map-root-user bash -c 'mount -t tmpfs -o size=64k none "$1" || exit 77
        "$2" record "$1/trace" "$3" "$4" exchange || exit; "$2" summary "$1/trace" >&2
        "$2" record "$1/none" "$3" "$4" entries' _ "$scratch/disk" "$tracer" "$recorder" "$program"
    if ((status != 77)); then
        [[ $errors == *'hakmem: the trace ends early: cannot write '*': No space left on device'* &&
            $errors == *'The trace ends early: the recorder could not write it (No space left on device)'* ]] ||
            fail "a full disk: record says '$errors'"
    fi
fi

# An empty file is no loss; a program that closes all it can, or uses up its descriptors, is recorded on.
: >"$scratch/none" && expect 0 '' ' calls of 1 thread' "$tracer" record "$scratch/none" "$recorder" "$program" entries
record 0 "$recorder" descriptors
summarise "$trace"
expect_text 'ended in order'
expect_text 'Not recorded: [1-9][0-9]* calls'
# Of 30,000; what the frames hold that were full meanwhile is lost.
(($(kind malloc) > 15000 && $(kind malloc) < 25000)) || fail "$(kind malloc) calls of malloc"

# Without a name for the file the library only passes on.
expect 0 '' '^$' env LD_PRELOAD="$recorder" "$program" entries

# Refusals.
sentence='^hakmem: [^'$'\n'']+$'
echo text >"$scratch/text"
expect 126 '' "$sentence" "$tracer" record "$scratch/text" "$recorder" true
expect 125 '' "$sentence" "$tracer" record "$scratch/none/trace" "$recorder" true
[[ $(<"$scratch/text") == text ]] || fail "record has overwritten a file that is no trace"
expect 127 '' 'cannot start' "$tracer" record "$trace" "$recorder" /nonexistent/program
finish
