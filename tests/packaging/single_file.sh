#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# docs/install.md: the one C file, by gcc and by clang, and as a library; Meson's subproject. The file depends on the
# sources alone, and a profile finds the program's functions behind hakmem's.
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
place=$scratch/checkout
link_checkout "$place"
program "$place" '"hakmem.h"'
cd "$place"

# An installed hakmem of another version, whose headers are not to be taken.
mkdir -p "$scratch/installed/hakmem"
for name in hakmem.h stats.h site.h hakmem.hpp; do
    echo "#error $name of another hakmem" >"$scratch/installed/hakmem/$name"
done
export CPATH=$scratch/installed

commands=$(block 'One C file' sh | sed "s/-O2/-O0/")
expect "$served" "$(run_block "$commands")"
python3 tools/amalgamate.py --meson again
for name in hakmem.c hakmem.h; do
    cmp "single/$name" "again/$name" || fail "two runs differ"
done
if grep -n '#include "' single/hakmem.c | grep -v '"hakmem.h"'; then
    fail "hakmem.c needs other files"
fi
if cp single/hakmem.h alone.h && ! cc -std=c99 -Wall -Wextra -Werror -x c -fsyntax-only alone.h; then
    fail "hakmem.h does not stand alone"
fi
g++ -std=c++11 -Wall -Wextra -Werror -x c++ -fsyntax-only alone.h || fail "hakmem.h is no C++"
for name in hakmem/{hakmem,stats,site}.h hakmem/hakmem.hpp hakmem.h; do
    echo "#include <$name>" | g++ -std=c++17 -Isingle -x c++ -fsyntax-only - || fail "<$name> is not the one beside hakmem.c"
done
! python3 tools/amalgamate.py 2>/dev/null || fail "no directory is accepted"
echo "one C file makes a program"

# The same object serves C++, whose operators call malloc, and all other tests of this page.
cc -O0 -fPIC -fvisibility=hidden -c single/hakmem.c -o hakmem.o
cc -shared hakmem.o -o libsingle.so
if nm -D --defined-only libsingle.so | grep hak__; then
    fail "libsingle.so exports these"
fi
cc -O0 -DHAK_SECURE=1 -fsyntax-only single/hakmem.c || fail "the secure form does not compile"
LD_PRELOAD=$PWD/libsingle.so grep -q libsingle /proc/self/maps || fail "the library cannot be preloaded"
expect '.*hakmem [0-9.]+, process.*' "$(HAKMEM_STATS=summary LD_PRELOAD=$PWD/libsingle.so sort --version 2>&1 >/dev/null)"
cat >sites.cc <<'END_OF_PROGRAM'
#include <cstdio>
#include <string>
#include <vector>
std::vector<std::string *> kept;
__attribute__((noinline)) void keep_strings()
{
    for (int i = 0; i < 20000; i++) {
        kept.push_back(new std::string(100, 'x'));
    }
}
int main()
{
    keep_strings();
    std::puts(kept.back()->c_str());
}
END_OF_PROGRAM
g++ -O1 -g sites.cc hakmem.o -pthread -o sites
HAKMEM_SAMPLE_BYTES=16k HAKMEM_PROFILE_FILE=$PWD/profile ./sites >/dev/null
said=$(./hakmem profile profile)
[[ $said == *keep_strings* ]] || fail "the profile does not name the program's function: $said"
echo "profiles name the program's functions"

# Beside the C library's malloc; by another compiler if there is one.
compiler=$(command -v clang || echo cc)
"$compiler" -O0 -DHAK_OVERRIDE=0 -Iinclude -Itests "$TEST_ROOT/tests/model/test_model.c" single/hakmem.c -pthread -lm -o model
./model --seconds 1 >/dev/null || fail "the model finds a difference"
echo "hakmem's own names pass the model, by $("$compiler" --version | head -n 1)"

if command -v meson >/dev/null; then
    mkdir user && cd user
    program . '<hakmem/hakmem.h>'
    block Meson meson >meson.build
    sed -i 's/optimization=2/optimization=0/' "$place/again/meson.build"
    # The subproject that is built is the one that was made above.
    commands=$(block Meson sh | sed "s|^python3 .*|cp -R $place/again subprojects/hakmem|")
    expect "$served" "$(HAKMEM=$TEST_ROOT run_block "$commands")"
    echo "Meson makes a program"
else
    echo "skipped: no meson here"
fi
