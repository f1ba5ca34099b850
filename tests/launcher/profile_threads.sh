#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `./hakmem profile --threads`: which thread allocated, in the table, in files for other programs, in a living process.
#
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
cd -- "$scratch" || exit 1

act

succeed 0 "$launcher" profile --threads --period 1 -o kept --folded folded --pprof pprof --html page -- ./acts churner=brief:2000:1000 grower=slowly:300:5000
has "$output" 'By the threads? that allocated:'$'\n'' +1\.4 MiB +[0-9.]+ % +300 blocks  grower, thread [0-9]+'
has "$output" 'grew all through the run: .*'$'\n'' +1\.4 MiB in slowly \(.*acts\.c:[0-9]+\)'
[[ $output != *churner* ]] || fail "churner holds nothing: $output"
has "$(<folded)" '^\[grower, thread [0-9]+\];.*slowly 1500000'
gzip -dc pprof | tr -c '[:print:]' '\n' >words
for word in thread thread_id churner grower; do
    grep -q "^${word}2*$" words || fail "pprof has no $word"
done
grep -q '<h2>Threads</h2>.*grower' page || fail "the page has no table of threads"

# Its block of one byte, if that is sampled, counts as two.
try "$launcher" profile --threads --allocated kept
has "$output" '1\.9 MiB +[0-9.]+ % +200[0-2] blocks  churner'
try "$launcher" profile kept
[[ $status == 0 && $output != *grower* ]] || fail "threads without --threads: $output"

# Threads beyond those that are told apart keep their stacks.
try "$launcher" profile --threads --period 1 --sites 600 -- ./acts threads:600
has "$output" ' 600 blocks  alpha '
has "$output" ' [1-9][0-9]+ blocks  other threads'

# A profile without threads says how to have them.
"$launcher" profile --period 1 -o plain -- ./acts threads:600 >/dev/null || fail "no plain profile"
refuse 126 HAKMEM_PROFILE_THREADS=1 "$launcher" profile --threads plain
refuse 2 --threads "$launcher" profile --threads --compare kept plain

# A living process.
mkfifo ready
HAKMEM_OBSERVE=1 "$launcher" run --quiet -- ./acts stay >ready &
process=$!
read -r _ <ready
try "$launcher" profile --threads --allocated --period 1 --seconds 1 "$process"
end "$process"
has "$output" ' blocks  churner, thread [0-9]+'
finish
