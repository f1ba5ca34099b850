#!/usr/bin/env bash
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
    expect_text 'ended in order'

    record 0 "$libraries" exchange
    summarise "$trace"
    expect_sound
    expect_text 'calls of 7 threads'
    expect_text 'Threads: [2-9][0-9]\.[0-9]+ %'

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

# Without a name for the file the library only passes on.
expect 0 '' '^$' env LD_PRELOAD="$recorder" "$program" entries

# Refusals.
sentence='^hakmem: [^'$'\n'']+$'
echo text >"$scratch/text"
expect 125 '' "$sentence" "$tracer" record "$scratch/text" "$recorder" true
expect 125 '' "$sentence" "$tracer" record "$scratch/none/trace" "$recorder" true
[[ $(<"$scratch/text") == text ]] || fail "record has overwritten a file that is no trace"
expect 127 '' 'cannot start' "$tracer" record "$trace" "$recorder" /nonexistent/program
finish
