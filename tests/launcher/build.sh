#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ctest: slow
# `./hakmem build` in a fresh checkout, and what README says of its libraries: they are preloaded, linked and installed.
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
unset LD_PRELOAD ${!HAKMEM_*}
place=$scratch/checkout
copy_checkout "$place"
build_quickly "$place"
cd "$place" || exit 1

cat >program.c <<'END_OF_PROGRAM'
#include <hakmem/hakmem.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    char *block = malloc(100);
    printf("%d\n", hak_owns(block));
    free(block);
    return 0;
}
END_OF_PROGRAM
cat >program.cc <<'END_OF_PROGRAM'
#include <hakmem/hakmem.h>
#include <cstdio>

int main()
{
    int *number = new int(1);
    std::printf("%d\n", static_cast<int>(hak_owns(number)));
    delete number;
    return 0;
}
END_OF_PROGRAM

# The libraries, and nothing of the tests and benchmarks; a run after it builds nothing.
expect 0 "$place/build/release/libhakmem.so" '^$' ./hakmem build
[[ -e build/release/libhakmem.a ]] || fail "build makes no libhakmem.a"
[[ ! -e build/release/bench && ! -e build/release/tests ]] || fail "build makes more than the libraries"
before=$(stat -L -c %y build/release/libhakmem.so)
expect 0 hello '^$' ./hakmem run --quiet echo hello
[[ $(stat -L -c %y build/release/libhakmem.so) == "$before" ]] || fail "run builds again what build has built"

# README's lines.
try env LD_PRELOAD="$PWD/build/release/libhakmem.so" grep -c libhakmem /proc/self/maps
[[ $status == 0 && -z $errors ]] || fail "LD_PRELOAD: $status '$output' '$errors'"
expect 0 '' '^$' gcc program.c build/release/libhakmem.a -pthread -Iinclude -o program
expect 0 1 '^$' ./program
expect 0 '' '^$' g++ -Iinclude program.cc build/release/libhakmem.a -pthread -o program
expect 0 1 '^$' ./program
try cmake --install build/release --prefix "$scratch/installed"
[[ $status == 0 && -z $errors ]] || fail "cmake --install after build: $status '$output' '$errors'"
export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(dirname "$(find "$scratch/installed" -name hakmem.pc)")
expect 0 '' '^$' gcc program.c -o program $(pkg-config --cflags --libs hakmem)
LD_LIBRARY_PATH=$(pkg-config --variable=libdir hakmem) expect 0 1 '^$' ./program

# The same after a run, which builds only the library that it needs.
rm -rf build "$scratch/installed"
expect 0 hello '^$' ./hakmem run --quiet echo hello
[[ ! -e build/release/libhakmem.a && ! -e build/release/libhakmem-secure.so ]] || fail "run builds more than its library"
expect 0 "$place/build/release/libhakmem.so" '^$' ./hakmem build
try cmake --install build/release --prefix "$scratch/installed"
[[ $status == 0 && -z $errors ]] || fail "cmake --install after run and build: $status '$output' '$errors'"
[[ -n $(find "$scratch/installed" -name libhakmem.a) ]] || fail "cmake --install leaves out libhakmem.a"

# A build that fails shows the compiler's words and prints no path.
echo '#error broken on purpose' >>src/hakmem.c
expect 125 '' 'broken on purpose.*hakmem: the build failed' ./hakmem build
finish
