#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A library that keeps new and delete for itself makes objects that the program deletes, and the other way round: by its
# own C++ library, by its way of binding, by hidden functions. The secure form must not take these for mistakes, and must
# still see the real ones in programs without such a library. At the end rustc links a program: its linker is one.
. "$(dirname "$0")/lib.sh"
need g++
build=${TEST_BUILD:-${HAKMEM%/*}/build/release}
cat >"$work/own.h" <<'END'
#ifdef OWN_NEW // plain functions of the library, as some games and engines have
#include <cstdlib>
#include <new>
OWN_NEW void *operator new(std::size_t size) { return std::malloc(size); }
#ifdef OWN_DELETE
OWN_NEW void operator delete(void *p) noexcept { std::free(p); }
OWN_NEW void operator delete(void *p, std::size_t) noexcept { std::free(p); }
#endif
#endif
END
cat >"$work/library.cc" <<'END'
#include <string>
#include <vector>
#include "own.h"
struct Thing { std::vector<std::string> words; };
extern "C" __attribute__((visibility("default"))) void *library_make(int n)
{
    auto *thing = new Thing;
    for (int i = 0; i < n; i++) thing->words.push_back("a text that is long enough " + std::to_string(i));
    return thing;
}
extern "C" __attribute__((visibility("default"))) char *library_array(int n) { return new char[n]; }
extern "C" __attribute__((visibility("default"))) void library_drop(char *p) { delete p; }
extern "C" __attribute__((visibility("default"))) void library_drop_array(char *p) { delete[] p; }
END
cat >"$work/program.cc" <<'END'
#include <dlfcn.h>
#include <new>
#include <stdio.h>
#include <stdlib.h>
#include <string>
#include "own.h"
static void *keep(void *p) { __asm__ volatile("" : "+r"(p)); return p; }
int main(int count, char **arguments)
{
    if (count > 2) { // one mistake
        switch (atoi(arguments[2])) {
        case 1: delete static_cast<char *>(keep(malloc(40))); break;
        case 2: free(keep(new char)); break;
        case 3: delete static_cast<char *>(keep(new char[40])); break;
        }
        return 0;
    }
    void *library = dlopen(arguments[1], RTLD_NOW);
    if (library == nullptr) { fprintf(stderr, "%s\n", dlerror()); return 2; }
    auto make = (void *(*)(int))dlsym(library, "library_make");
    auto array = (char *(*)(int))dlsym(library, "library_array");
    auto drop = (void (*)(char *))dlsym(library, "library_drop");
    auto drop_array = (void (*)(char *))dlsym(library, "library_drop_array");
    for (int i = 0; i < 50; i++) {
        operator delete(make(3));
        delete[] array(1000 + i);
        drop(static_cast<char *>(keep(new char)));
        drop_array(static_cast<char *>(keep(new char[1000])));
        std::string text(1000, 'x');
        keep(&text);
    }
    puts("done");
    return 0;
}
END
printf '{ global: *; };\n' >"$work/all.map"
printf '{ global: library_*; local: *; };\n' >"$work/few.map"
compile=(g++ -std=c++17 -O1 -w -fPIC -shared "$work/library.cc" -o "$work/library.so")
# try NAME FLAG...: a library built so, under the program.
try() {
    local what=$1
    shift
    if ! "${compile[@]}" "$@" 2>"$work/said"; then
        say "left out, because it cannot be built: $what"
        return
    fi
    LD_PRELOAD=$build/libhakmem-secure.so "$work/program" "$work/library.so" >"$work/said" 2>&1 &&
        [[ $(<"$work/said") == done ]] || fail "$what: $(tail -3 "$work/said")"
    say "$what: right"
}
static=(-static-libstdc++ -static-libgcc)
whole=(-Wl,--whole-archive -l:libsupc++.a -Wl,--no-whole-archive)
hidden='-DOWN_NEW=__attribute__((visibility("hidden")))'
seen='-DOWN_NEW=__attribute__((visibility("default")))'
mistakes=("" "delete of memory from malloc" "free or realloc of memory from new" "delete of memory from new\[\]")
see_mistakes() {
    local mistake
    for mistake in 1 2 3; do
        (LD_PRELOAD=$build/libhakmem-secure.so "$work/program" - $mistake) >"$work/said" 2>&1 &&
            fail "not seen: ${mistakes[mistake]}"
        grep -q "${mistakes[mistake]}" "$work/said" || fail "${mistakes[mistake]}: $(<"$work/said")"
    done 2>/dev/null
    say "mistakes are seen"
}
use_library() {
    try "shared C++ library"
    try "static C++ library" "${static[@]}"
    try "static C++ library, -Bsymbolic" "${static[@]}" -Wl,-Bsymbolic
    try "static C++ library, all exported" "${static[@]}" "${whole[@]}" -Wl,--version-script="$work/all.map"
    try "static C++ library, exported, -Bsymbolic-functions" "${static[@]}" "${whole[@]}" -Wl,-Bsymbolic-functions \
        -Wl,--version-script="$work/all.map"
    try "static C++ library, hidden" "${static[@]}" -fvisibility=hidden -Wl,--exclude-libs,ALL \
        -Wl,--version-script="$work/few.map"
    try "static C++ library, its unwinder shared" -static-libstdc++ -Wl,--version-script="$work/few.map"
    try "own new and delete, hidden" "$hidden" -DOWN_DELETE
    try "own new and delete, -Bsymbolic" "$seen" -DOWN_DELETE -Wl,-Bsymbolic
    try "own new and delete, version script" "$seen" -DOWN_DELETE -Wl,--version-script="$work/few.map"
    try "own new, hidden" "$hidden"
    try "own new, -Bsymbolic-functions" "$seen" -Wl,-Bsymbolic-functions
}
g++ -std=c++17 -O1 -w "$work/program.cc" -o "$work/program" -ldl || fail "the program does not build"
use_library
g++ -std=c++17 -O1 -w -DOWN_NEW='__attribute__((visibility("hidden")))' -DOWN_DELETE "$work/program.cc" -ldl \
    -o "$work/program" || fail "the program does not build"
try "own new and delete, hidden in the program"
g++ -std=c++17 -O1 -w "$work/program.cc" -o "$work/program" -ldl
see_mistakes
if command -v clang++ >/dev/null && echo '#include <new>' | clang++ -stdlib=libc++ -x c++ -c - -o /dev/null 2>/dev/null; then
    compile[0]=clang++
    compile+=(-stdlib=libc++)
    clang++ -stdlib=libc++ -std=c++17 -O1 -w "$work/program.cc" -o "$work/program" -ldl || fail "no program with libc++"
    static=(-static-libstdc++)
    use_library
    see_mistakes
fi
if command -v rustc >/dev/null; then
    echo 'fn main() { println!("{}", (1..11).map(|i| i.to_string()).collect::<Vec<_>>().join(" ")); }' >"$work/sum.rs"
    (cd "$work" && rustc sum.rs) || skip "rustc cannot link here"
    (cd "$work" && LD_PRELOAD=$build/libhakmem-secure.so rustc sum.rs && ./sum) >"$work/said" 2>&1 ||
        fail "rustc: $(tail -3 "$work/said")"
    say "rustc links"
fi
