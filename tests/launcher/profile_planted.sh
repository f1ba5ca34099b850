#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `./hakmem profile` names the function and line that allocate, in programs of many kinds. Each program has one allocation
# of 77,777 bytes, in a function and line that are known.
#
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
cd -- "$scratch" || exit 1

cp "$TEST_ROOT/tests/launcher/acts.c" . # its function alpha

cat >cxx.cc <<'END'
#include <memory>
#include <string>
#include <vector>
std::vector<std::unique_ptr<char[]>> kept;
namespace deep {
template <class T> struct Pool {
    __attribute__((noinline)) static void plant(T size)
    {
        kept.push_back(std::unique_ptr<char[]>(new char[size])); // PLANT
    }
};
} // namespace deep
int main()
{
    kept.reserve(4);
    deep::Pool<long>::plant(77777);
    return kept.empty();
}
END

cat >standard.cc <<'END'
#include <map>
#include <string>
std::map<int, std::string> kept;
__attribute__((noinline)) void plant(int key)
{
    kept[key].assign(77776, 'x'); // PLANT
    asm volatile("" : : : "memory"); // else the call is the function's last jump, and plant has no frame
}
int main()
{
    plant(1);
    return kept.empty();
}
END

cat >rust.rs <<'END'
#[inline(never)]
fn plant() -> Vec<u8> {
    Vec::<u8>::with_capacity(77777) // PLANT
}
fn main() {
    let kept = plant();
    println!("{}", kept.capacity() > 1);
    std::mem::forget(kept);
}
END

# site PROGRAM...: the function and FILE:LINE of the site of the planted allocation; of a child's if the program forks.
site() {
    try "$launcher" profile --period 1 --allocated --sites 9999 -- "$@"
    [[ $status == 0 ]] || fail "status $status: profile $* ($errors)"
    grep -E '^ +76\.0 KiB .* (1 block|2 blocks) ' <<<"$output" | sed -E 's/^.* blocks? +//' | sort -u
}

# check WHAT FUNCTION SOURCE MARK PROGRAM...: the site is the function, at the line of the source with the mark.
check() {
    local line found
    line=$(grep -n -- "$4" "$3" | cut -d: -f1)
    found=$(site "${@:5}")
    [[ $found =~ ^([^$'\n']*::)?$2(\([^$'\n']*\))?\ \(([^$'\n']*/)?$3:$line\)$ ]] || fail "$1: '$found' instead of $2 ($3:$line)"
    echo "$1: $found"
}

# check_c WHAT OUTPUT COMMAND...: of acts.c, compiled by that command.
check_c() {
    build "${@:3}" -fno-builtin acts.c -pthread -ldl -o "$2"
    check "$1" alpha acts.c '^KEEPS(alpha)' "./$2" alpha:1:77777
}

build() {
    "$@" || fail "does not compile: $*"
}
check_c 'C -O2' c_o2 cc -O2 -g
check_c 'C -O0, no PIE' c_o0 cc -O0 -g -no-pie
check_c 'C -O3 -flto' c_lto cc -O3 -flto -g
check_c 'C, compressed DWARF' c_packed cc -O2 -g -gz
if [[ -n $(compgen -c llvm-symbolizer) ]]; then # addr2line does not read split DWARF of version 5
    check_c 'C, split DWARF' c_split cc -O2 -gsplit-dwarf -g
fi
if command -v clang >/dev/null; then
    check_c 'C by clang' c_clang clang -O2 -g
fi
check 'C, in the child of a fork' alpha acts.c '^KEEPS(alpha)' ./c_o2 fork alpha:1:77777
build c++ -O2 -g cxx.cc -o cxx
check 'C++, template and new' plant cxx.cc PLANT ./cxx
build c++ -O2 -g standard.cc -o standard
check 'C++, in a container of the library' plant standard.cc PLANT ./standard
if command -v rustc >/dev/null && rustc -O -g rust.rs -o rust 2>/dev/null; then
    check 'Rust -O' plant rust.rs PLANT ./rust
fi
finish
