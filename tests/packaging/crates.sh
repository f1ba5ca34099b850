#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# docs/install.md: the crates. Their tests pass, a program of its own runs on them, and they can be packed: the package is
# compiled from the one C file in it.
# ctest: timeout=600
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
# First, so that a page without them fails on machines that skip the rest, too.
dependency=$(block 'Rust crate' toml)
main=$(block 'Rust crate' rust)
commands=$(block 'Rust crate' sh)
command -v cargo >/dev/null || skip "no cargo here"
version=$(cargo --version | sed -n 's/^cargo 1\.\([0-9]*\).*/\1/p')
((${version:-0} >= 70)) || skip "$(cargo --version) is too old for the crates; they need 1.70"
# Without optimisation, which is quicker: what is compiled otherwise is the same.
export CARGO_TARGET_DIR=$scratch/target CFLAGS=-O0 CARGO_TERM_QUIET=true
copy_sources "$scratch/checkout"
mkdir -p "$scratch/checkout/bindings"
cp -R "$TEST_ROOT/bindings/rust" "$scratch/checkout/bindings/"
cd "$scratch/checkout/bindings/rust"
rm -rf target hakmem-sys/vendor Cargo.lock

if ! cargo fetch 2>log; then
    skip "cargo cannot get the crate cc: $(tail -n 1 log)"
fi
export CARGO_NET_OFFLINE=true # all is there now

# As a user has it: another package, in a checkout without the generated file.
mkdir -p "$scratch/user/src"
cd "$scratch/user"
printf '[package]\nname = "user"\nversion = "0.0.0"\nedition = "2021"\n' >Cargo.toml
echo "${dependency/\/path\/to\/hakmem/$scratch/checkout}" >>Cargo.toml
echo "$main" >src/main.rs
expect "$served" "$(run_block "$commands")"
echo "a program runs on the crate"

# As tools/release.sh does. Older ones pack only what is in the registry with all that it depends on.
cd "$scratch/checkout"
python3 tools/amalgamate.py bindings/rust/hakmem-sys/vendor
cd bindings/rust
packages=--workspace
((version >= 90)) || packages="-p hakmem-sys"
# shellcheck disable=SC2086 # two words
cargo package $packages --allow-dirty || fail "the crates cannot be packed"
tar -tzf "$CARGO_TARGET_DIR"/package/hakmem-sys-*.crate | grep -q /vendor/hakmem.c$ || fail "the package has no C file"
for file in "$CARGO_TARGET_DIR"/package/hakmem-*.crate; do
    tar -xOf "$file" --wildcards '*/Cargo.toml' | grep -qx 'license = "MIT"' || fail "$file names no licence"
done
echo "the crates can be packed"

cargo test -p hakmem --features override >log 2>&1 || { cat log >&2; fail "cargo test"; }
passed=$(awk '/^test result: ok/ { sum += $4 } END { print sum + 0 }' log)
((passed >= 12)) || { cat log >&2; fail "only $passed tests passed"; }
echo "$passed tests of the crates passed"
expect 'hakmem [0-9.]+ serves 100000 words' "$(cargo run -p hakmem --features override --example heap)"
