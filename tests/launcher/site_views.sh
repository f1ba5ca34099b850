#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Sites in the views: the names that a program gives, and the functions that call malloc, in stat, top, heap and profile.
#
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
cd -- "$scratch" || exit 1
library=$("$launcher" build)

cat >service.cc <<'END'
#include <hakmem/profile.h>
#include <hakmem/site.h>
#include <cstdio>
#include <cstdlib>
static void *volatile blocks[6000];
static __attribute__((noinline)) void take_buffers(int first)
{
    for (int i = 0; i < 2000; i++) {
        blocks[first + i] = malloc(520);
    }
}
#include <vector>
extern "C" { // a known name of what only passes allocations on, and one that the user must name
__attribute__((noinline)) void *my_malloc(size_t size)
{
    void *got = malloc(size);
    return got ? got : (abort(), got);
}
__attribute__((noinline)) void *pool_take(size_t size)
{
    void *got = malloc(size);
    return got ? got : (abort(), got);
}
}
static std::vector<long> numbers;
static __attribute__((noinline)) void fill_numbers()
{
    for (int i = 0; i < 50000; i++) {
        numbers.push_back(i); // 512 KiB in the end
    }
}
static __attribute__((noinline)) void take_mine()
{
    blocks[2] = my_malloc(204800);
    blocks[3] = pool_take(102400);
}
extern void *preallocate_pool(); // in a library whose name begins as libpthread's
int main()
{
    hak_profile_start(1); // samples every block behind the next one, so all figures of these are exact
    blocks[0] = malloc(1);
    take_buffers(0);
    {
        const hak::site_scope scope(HAK_SITE("parser.nodes"));
        take_buffers(2000);
    }
    blocks[1] = preallocate_pool();
    fill_numbers();
    take_mine();
    puts("ready");
    fflush(stdout);
    getchar();
    take_buffers(4000);
    puts("ready");
    fflush(stdout);
    getchar();
}
END
compile pool.cc libpthreadpool.so -O1 -g -fPIC -shared <<'END'
#include <cstdlib>
static void *volatile pool;
void *preallocate_pool()
{
    pool = malloc(300000);
    return pool;
}
END
c++ -O1 -g -I "$TEST_ROOT/include" service.cc -o service libpthreadpool.so "-Wl,-rpath,$scratch" -L "${library%/*}" -lhakmem "-Wl,-rpath,${library%/*}" \
    -Wl,--no-as-needed -lgcc_s || # the unwinder
    fail "service.cc does not compile"

# next: the service has done its next step.
next() {
    local line
    read -r -t 300 line <&"${service[0]}" && [[ $line == ready ]] || fail "the service says '$line'"
}

coproc service { HAKMEM_OBSERVE=1 HAKMEM_PROFILE_FILE=$scratch/profile exec ./service; }
pid=$service_PID
next

# 2,000 blocks of 520 bytes, which 528 bytes each serve: 1,015.6 KiB, and 15.6 KiB of rounding. Ordinary places have the
# function and the line; places that the program names have the name.
for command in "stat $pid" "top --once $pid"; do
    try "$launcher" $command
    ((status == 0)) || fail "$command: $errors"
    has "$output" 'sites, by in use, estimated from [0-9.k]+ samples'
    has "$output" '1015\.6 KiB +[0-9]+ % +2\.0k +15\.6 KiB +1015\.6 KiB .*take_buffers\(int\) \(service\.cc:9\)'
    has "$output" '1015\.6 KiB +[0-9]+ % +2\.0k +15\.6 KiB +1015\.6 KiB .*  parser\.nodes'
    has "$output" '293\.0 KiB .*preallocate_pool\(\) \(pool\.cc:5\)'
    has "$output" '512\.0 KiB .*fill_numbers\(\) \(service\.cc:[0-9]+\)'
    has "$output" '200\.0 KiB .*take_mine\(\) \(service\.cc:[0-9]+\)'
    has "$output" '100\.0 KiB .*pool_take \(service\.cc:[0-9]+\)'
    [[ ! $output =~ my_malloc|std:: ]] || fail "$command names functions that pass allocations on: $output"
done
for command in "stat --wrapper pool_take $pid" "top --once --wrapper other,pool_* $pid" "heap --text --wrapper pool_take $pid"; do
    try "$launcher" $command
    has "$output" '100\.0 KiB|100 KiB'
    [[ ! $output =~ pool_take ]] || fail "$command: $output"
    [[ $output =~ take_mine\(\)\ \(service\.cc:[0-9]+\) ]] || fail "$command: $output"
done

"$launcher" heap "$pid" -o before.html >/dev/null || fail "heap"
has "$(<before.html)" '<td[^>]*>parser\.nodes</td><td[^>]*>1015\.6 KiB</td>'
has "$(<before.html)" 'take_buffers\(int\)<small>service\.cc:9</small></td><td[^>]*>1015\.6 KiB</td>'
python3 - "$TEST_ROOT/python" "$pid" map.json <<'END'
import sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
from hakmem.look.attach import connect
with open(sys.argv[3], "wb") as file:
    file.write(connect(int(sys.argv[2]))[0].ask("map", 60))
END

# In the second map the buffers have doubled; the named site is as before.
echo >&"${service[1]}"
next
"$launcher" heap map.json --compare "$pid" -o after.html >/dev/null || fail "heap --compare"
changes=$(sed -n 's/.*<table id="site_changes"//p' after.html)
has "$changes" 'take_buffers\(int\)<small>service\.cc:9</small></td><td[^>]*>2\.0 MiB</td><td[^>]*>\+1015\.6 KiB</td>'
has "$changes" '<td[^>]*>parser\.nodes</td><td[^>]*>1015\.6 KiB</td><td[^>]*>–</td>'

expect 0 "process $pid is no longer sampled" '^$' "$launcher" profile --stop "$pid"
expect 0 "process $pid was not being sampled" '^$' "$launcher" profile --stop "$pid"

# The profile that it writes at its end.
echo >&"${service[1]}"
wait "$pid"
try "$launcher" profile --stacks --folded folded --html page.html profile
((status == 0)) || fail "profile: $errors"
has "$output" '1015\.6 KiB +[0-9.]+ % +2000 blocks  \[parser\.nodes\] take_buffers\(int\) \(.*service\.cc:9\)'
has "$output" '2\.0 MiB +[0-9.]+ % +4000 blocks  take_buffers\(int\) \(.*service\.cc:9\)'
has "$(<folded)" 'main;take_buffers\(int\);\[parser\.nodes\] 1040000'
has "$(<page.html)" 'data-name="\[parser\.nodes\]"'

python_tests sites
finish
