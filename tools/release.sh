#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Makes a release of the version in include/hakmem/hakmem.h. Usage: tools/release.sh [--dry-run] [FOLDER]
#
#   1  looks whether the checkout may be released, and names all that is in the way
#   2  runs all tests, among them the check of the binary interface
#   3  writes into FOLDER (build/release-VERSION): sources, debs, wheel, crates, the one C file, and their SHA-256 sums
#   4  tags the commit; sends nothing anywhere
#
# With --dry-run it goes on in spite of what step 1 finds, and sets no tag. Needs what the tests need.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
dry_run=false
if [[ ${1:-} == --dry-run ]]; then
    dry_run=true
    shift
fi
(($# <= 1)) && [[ ${1:-} != -* ]] || { echo "usage: tools/release.sh [--dry-run] [FOLDER]" >&2; exit 2; }

number() {
    sed -n "s/^#define HAK_VERSION_$1 //p" include/hakmem/hakmem.h
}
version=$(number MAJOR).$(number MINOR).$(number PATCH)
output=$(realpath -m -- "${1:-build/release-$version}")

# --- 1: what is in the way ---
problems=0
problem() {
    echo "release: $*" >&2
    problems=$((problems + 1))
}
today=$(date -u +%F)
[[ -z $(git status --porcelain) ]] || problem "the checkout has changes that are not committed"
[[ -z $(git tag --list "v$version") ]] || problem "the tag v$version exists"
first=$(grep -m 1 '^## ' CHANGELOG.md)
[[ $first == "## $version ($today)" ]] || problem "CHANGELOG.md begins with '$first', not '## $version ($today)'"
grep -qx "hakmem ($version) [a-z]*; urgency=.*" packaging/debian/changelog || problem "packaging/debian/changelog has no $version"
for crate in hakmem hakmem-sys; do
    grep -qx "version = \"$version\"" "bindings/rust/$crate/Cargo.toml" || problem "bindings/rust/$crate/Cargo.toml is not $version"
done
examples=$(git grep -lE 'hakmem[@.]example' -- . ':!tools/release.sh' || :)
[[ -z $examples ]] || problem "addresses are examples in ${examples//$'\n'/, }"
python3 tools/check_license.py >/dev/null || problem "sources lack the line of their licence: tools/check_license.py"
if ((problems != 0)); then
    $dry_run || { echo "release: $version is not released" >&2; exit 1; }
    echo "release: dry run, so it goes on" >&2
fi
[[ ! -e $output ]] || { echo "release: $output exists" >&2; exit 1; }

# --- 2: tests ---
./hakmem test

# --- 3: what users get ---
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/output"
git archive --prefix="hakmem-$version/" -o "$work/output/hakmem-$version.tar.gz" HEAD
tar -xzf "$work/output/hakmem-$version.tar.gz" -C "$work"
(
    cd "$work/hakmem-$version" # nothing but what the archive has
    cmake --preset package >/dev/null
    cmake --build build/package --target package >/dev/null
    cp build/package/*.*deb "$work/output/"
    python3 -m venv "$work/python"
    "$work/python/bin/pip" install --require-hashes --quiet -r tools/requirements.txt
    PATH=$work/python/bin:$PATH "$work/python/bin/pip" wheel --no-build-isolation --quiet --no-deps --wheel-dir "$work/output" .
    python3 tools/amalgamate.py "$work/single"
    tar -czf "$work/output/hakmem-$version-single.tar.gz" -C "$work/single" .
    python3 tools/amalgamate.py bindings/rust/hakmem-sys/vendor
    cd bindings/rust
    cargo package --quiet --workspace --allow-dirty --no-verify --target-dir "$work/crates"
    cp "$work"/crates/package/*.crate "$work/output/"
)
(cd "$work/output" && sha256sum -- * >SHA256SUMS)
mkdir -p "${output%/*}"
mv -- "$work/output" "$output"

# --- 4: the tag ---
if $dry_run; then
    echo "release: dry run of $version in $output; no tag"
else
    git tag -a "v$version" -m "hakmem $version"
    echo "release: $version in $output, tag v$version"
fi
