#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `./hakmem profile` names the function and line that allocate, in programs of many kinds. Each program has one allocation
# of 77,777 bytes, in a function `plant` and a line with the word PLANT.
#
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
cd -- "$scratch" || exit 1

cat >c.c <<'END'
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
void *volatile kept;
static inline void *wrapped(size_t size)
{
    return memset(malloc(size), 1, size); /* PLANT */
}
__attribute__((noinline)) void plant(void)
{
    kept = malloc(77777); /* PLANT */
    kept = (char *)kept + 1;
}
int main(int argc, char **argv)
{
    if (argc > 1 && fork() != 0) {
        return wait(NULL) < 0;
    }
    kept = wrapped(10);
    plant();
    return argv[0] == NULL;
}
END
sed -i '0,/ \/\* PLANT \*\//s///' c.c # the first one is of another size

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

# check WHAT SOURCE PROGRAM...: the site is `plant` at the line of the source with the word PLANT.
check() {
    local what=$1 source=$2 line found
    shift 2
    line=$(grep -n PLANT "$source" | cut -d: -f1)
    found=$(site "$@")
    [[ $found =~ ^([^$'\n']*::)?plant(\([^$'\n']*\))?\ \(([^$'\n']*/)?$source:$line\)$ ]] ||
        fail "$what: '$found' instead of plant ($source:$line)"
    echo "$what: $found"
}

build() {
    "$@" || fail "does not compile: $*"
}
build cc -O2 -g c.c -o c_o2
check 'C -O2' c.c ./c_o2
build cc -O0 -g -no-pie c.c -o c_o0
check 'C -O0, no PIE' c.c ./c_o0
build cc -O3 -flto -g c.c -o c_lto
check 'C -O3 -flto' c.c ./c_lto
build cc -O2 -gsplit-dwarf -g c.c -o c_split
if [[ -n $(compgen -c llvm-symbolizer) ]]; then # addr2line does not read split DWARF of version 5
    check 'C, split DWARF' c.c ./c_split
fi
build cc -O2 -g -gz c.c -o c_packed
check 'C, compressed DWARF' c.c ./c_packed
check 'C, in the child of a fork' c.c ./c_o2 fork
build c++ -O2 -g cxx.cc -o cxx
check 'C++, template and new' cxx.cc ./cxx
build c++ -O2 -g standard.cc -o standard
check 'C++, in a container of the library' standard.cc ./standard
if command -v clang >/dev/null; then
    build clang -O2 -g c.c -o c_clang
    check 'C by clang' c.c ./c_clang
fi
if command -v rustc >/dev/null && rustc -O -g rust.rs -o rust 2>/dev/null; then
    check 'Rust -O' rust.rs ./rust
fi
finish
