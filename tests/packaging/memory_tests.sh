#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# docs/observability/profile.md: its test of CTest and its tests of pytest fail and pass as the page says.
source "${TEST_ROOT:?}/tests/packaging/support.sh"
page=$TEST_ROOT/docs/observability/profile.md
export XDG_CACHE_HOME=${XDG_CACHE_HOME:-$scratch/cache} PYTHONDONTWRITEBYTECODE=1
cd "$scratch"

cat >server_test.c <<'END'
#include <stdlib.h>
void *volatile table, *volatile lost;
__attribute__((noinline)) void load_table(void) { table = malloc(500000); }
__attribute__((noinline)) void answer(void) { lost = malloc(1000); }
int main(void)
{
    load_table();
    for (int i = 0; i < LOST; i++) {
        answer();
    }
    free(table);
    return 0;
}
END
{
    printf '%s\n' 'cmake_minimum_required(VERSION 3.16)' 'project(server C)' 'add_executable(server_test server_test.c)' \
        'enable_testing()'
    block CTest cmake
} >CMakeLists.txt
for lost in 10 200; do
    cmake -DHAKMEM="$TEST_ROOT/hakmem" -DCMAKE_C_FLAGS="-g -fno-builtin -DLOST=$lost" . >log && cmake --build . >>log || fail "cmake: $(<log)"
    status=0
    ctest --output-on-failure >log || status=$?
    [[ $((status != 0)) == $((lost == 200)) ]] || fail "ctest with $lost lost blocks: status $status: $(<log)"
done
grep -q 'has not freed about 195.3 KiB, more than 128.0 KiB' log || fail "ctest says: $(<log)"

python3 -c 'import pytest' 2>/dev/null || skip "no pytest, so its plug-in is not tried (Debian: python3-pytest)"
block pytest python >test_memory.py
pytest=(env PYTHONPATH="$TEST_ROOT/python" python3 -m pytest -p hakmem.pytest_plugin -p no:cacheprovider --tb=short)
PYTHONMALLOC=malloc "$TEST_ROOT/hakmem" run --quiet -- "${pytest[@]}" >log 2>&1 && fail "pytest finds nothing: $(<log)"
expect '=*\ 2\ failed,\ 1\ passed\ in\ [^=]*=*' "$(<log)"
expect 'hakmem: limits of memory are checked' "$(<log)"
expect '[^'$'\n'']*the test left [0-9]{3},[0-9]{3} bytes in use; 102,400 are allowed' "$(<log)"
expect '[^'$'\n'']*the test needed [12][0-9],[0-9,]+ bytes more than the process had; 8,388,608 are allowed' "$(<log)"
"${pytest[@]}" >log 2>&1 || fail "pytest without hakmem: $(<log)"
expect 'hakmem: not loaded, so no limit of memory is checked.*' "$(<log)"
sed -i 's/"8 MiB"/"much"/' test_memory.py
"$TEST_ROOT/hakmem" run --quiet -- "${pytest[@]}" >log 2>&1 && fail "a wrong limit is taken: $(<log)"
grep -q "a limit is a number of bytes such as 4096, '64k' or '1 MiB', not 'much'" log || fail "pytest says: $(<log)"
