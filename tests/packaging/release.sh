#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tools/release.sh: what is in the way of a release is named, all of it, and nothing is made then.
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
command -v git >/dev/null || skip "no git here"
copy_sources "$scratch/checkout"
cp -R "$TEST_ROOT/CHANGELOG.md" "$scratch/checkout/"
mkdir -p "$scratch/checkout/bindings/rust"
for crate in hakmem hakmem-sys; do
    mkdir "$scratch/checkout/bindings/rust/$crate"
    cp "$TEST_ROOT/bindings/rust/$crate/Cargo.toml" "$scratch/checkout/bindings/rust/$crate/"
done
cd "$scratch/checkout"
git init -q
git config user.name test
git config user.email test@localhost
git add -A
git commit -qm test
version=$(sed -n 's/^#define HAK_VERSION_[A-Z]* //p' include/hakmem/hakmem.h | paste -sd .)
sed -i "0,/^## /s//## $version (2001-02-03)\n\n## /" CHANGELOG.md
sed -i 's/^version = .*/version = "99.0.0"/' bindings/rust/hakmem/Cargo.toml
echo '#define X' >src/unlicensed.h
echo security@hakmem'.'example >SECURITY.md # not written out: the search would find this file
git add SECURITY.md
git tag "v$version"

# A test run would take an hour, so a release that goes on is found out by this.
printf '#!/bin/sh\necho tested >tested\nexit 9\n' >hakmem
status=0
tools/release.sh >out 2>err || status=$?
[[ $status == 1 && ! -e tested && ! -s out ]] || fail "status $status: $(<err)"
for word in 'not committed' "tag v$version exists" "CHANGELOG.md begins with '## $version (2001-02-03)'" 'rust/hakmem/Cargo.toml is not' \
    'examples in SECURITY.md' 'check_license.py' "$version is not released"; do
    grep -qF -- "$word" err || fail "no '$word' in: $(<err)"
done
grep -q 'hakmem-sys' err && fail "it complains of what is right: $(<err)"

# A dry run goes on to the tests, whose failure ends it.
status=0
tools/release.sh --dry-run "$scratch/made" >out 2>err || status=$?
[[ $status == 9 && -e tested && ! -e $scratch/made ]] || fail "status $status: $(<err)"
tools/release.sh --no-such >out 2>err && fail "an unknown option is taken"
grep -q '^usage' err || fail "no usage: $(<err)"
