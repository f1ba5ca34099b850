#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# docs/install.md: preload, link, the installed tree with its command, pkg-config and CMake, as the page has the commands.
# The tree is moved after it was installed.
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
place=$scratch/checkout
link_checkout "$place"
program "$place"
cd "$place"

# adapted TITLE LANGUAGE: the block, on the build directory of this test.
adapted() {
    block "$@" | sed "s|build/release|$TEST_BUILD|g; s|\$PWD/$TEST_BUILD|$TEST_BUILD|g; s|/usr/local|$scratch/prefix|g"
}

expect '.*libhakmem\.so.*' "$(run_block "$(adapted Preload sh)")"
expect "$served" "$(run_block "$(adapted Link sh)")"
echo "preloaded and linked"

commands=$(adapted 'Install with CMake' sh)
run_block "$(grep -v '^hakmem ' <<<"$commands")" >/dev/null
mv "$scratch/prefix" "$scratch/moved to" # with a space, which LD_PRELOAD cannot hold
prefix="$scratch/moved to"
export PATH=$prefix/bin:$PATH XDG_CACHE_HOME=$scratch/cache
expect '.*libhakmem\.so\.[0-9]+.*' "$(run_block "$(grep '^hakmem ' <<<"$commands")" 2>/dev/null)"
rm -rf "$scratch/cache"
echo "the command runs programs"

# The command's other parts are found: manuals, reading tools with their pages, the recorder, the tool that attaches.
cd "$scratch"
[[ $(hakmem version) == "$("$TEST_ROOT/hakmem" version)" ]] || fail "version: $(hakmem version)"
for section in 1 3 7; do
    [[ -s $prefix/share/man/man$section/hakmem.$section ]] || fail "no hakmem.$section"
done
said=$(hakmem help)
[[ $said == *'hakmem COMMAND --help'* && $said != *./hakmem* && $said != *'  compare '* ]] || fail "help: $said"
for command in $(hakmem help | sed -nE 's/^  ([a-z]+)  .*/\1/p'); do
    [[ $command != help ]] || continue
    said=$(hakmem "$command" --help)
    [[ $said == "Usage: hakmem $command"* && $said != *./hakmem* ]] || fail "$command --help: $said"
    said=$(hakmem "$command" --no-such 2>&1) && fail "$command takes --no-such"
    expect "hakmem: $command: unknown option '--no-such' \(hakmem $command --help\)" "$said"
done
said=$(hakmem replay /etc/passwd 2>&1) && fail "/etc/passwd is a trace"
expect '/etc/passwd is not a trace of hakmem' "${said#hakmem: }"
said=$(hakmem run --help)
[[ $said == *purge_delay_ms*'hakmem(7)'* || $said == *'hakmem(7)'*purge_delay_ms* ]] || fail "run --help: $said"
for command in build test compare; do
    said=$(hakmem $command 2>&1) && fail "$command succeeds without sources"
    expect "hakmem: $command needs hakmem's source tree.*" "$said"
done
hakmem record -o trace sort --version >/dev/null 2>/dev/null
expect '.*calls.*' "$(hakmem replay trace --summary)"
hakmem run --quiet --heap-map map true
hakmem heap map >/dev/null
[[ -s map.html ]] || fail "heap writes no page"
if [[ -w /dev/shm ]]; then
    hakmem run --quiet -- sleep 1000 &
    process=$!
    for ((i = 0; i < 600; i++)); do
        grep -q libhakmem "/proc/$process/maps" && break
        sleep 0.05
    done
    said=$(hakmem observe "$process" 2>&1) || said="cannot attach: $said"
    kill "$process"
    wait "$process" 2>/dev/null || true
    [[ $said == *'is observed from now on: hakmem top '* || $said == *'cannot attach'*ptrace* ]] || fail "observe: $said"
fi
echo "the command's tools work"

libraries=$(dirname "$(find "$prefix" -name libhakmem.a)")
# Two uses of the page's libraries need a path without spaces: flags of pkg-config are words.
ln -s "$prefix" "$scratch/prefix"
export PKG_CONFIG_PATH=${libraries/"$prefix"/$scratch/prefix}/pkgconfig LD_LIBRARY_PATH=$libraries
program "$scratch"
expect "$served" "$(run_block "$(block pkg-config sh)")"
unset LD_LIBRARY_PATH
block CMake cmake >CMakeLists.txt
expect "$served" "$(run_block "$(block CMake sh | sed "s|/usr/local|$scratch/prefix|")")"
sed -i 's/hakmem::hakmem/hakmem::static/' CMakeLists.txt
cmake --build build >/dev/null
expect "$served" "$(build/program)"
if readelf -d -W build/program | grep -E 'NEEDED.*(libstdc|libhakmem)'; then
    fail "the static program needs one of these"
fi
echo "pkg-config and CMake find the library"
