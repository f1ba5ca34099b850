#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# docs/install.md: the Debian packages. Two builds, in different folders, are equal byte by byte; lintian finds nothing;
# unpacked in an empty folder, the command runs programs and a program is built; debug symbols are in packages of their own.
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
for tool in dpkg-deb dpkg-shlibdeps file; do
    command -v "$tool" >/dev/null || skip "no $tool here (Debian: dpkg-dev, file)"
done
commands=$(block 'Debian packages' sh | grep -v '^apt ')
export DPKG_DEB_COMPRESSOR_LEVEL=1 # quicker; what is in the packages is the same

# build DIRECTORY UMASK
build() {
    copy_sources "$1"
    cd "$1"
    umask "$2"
    run_block "$commands" >"$1.log" 2>&1 || { cat "$1.log" >&2; return 1; }
}
build "$scratch/one" 022 &
first=$!
(build "$scratch/the second" 077)
wait "$first" || fail "the first build"
cd "$scratch"
mkdir packages
cp one/build/package/*.{deb,ddeb} packages/
count=0
for package in packages/*; do
    cmp "$package" "the second/build/package/${package##*/}" || fail "two builds differ"
    count=$((count + 1))
done
((count == 7)) || fail "$count packages: $(ls packages)"
echo "two builds are equal: $(cd packages && echo *)"

mkdir tree
for package in packages/*; do
    dpkg-deb -x "$package" tree
    if grep -rlF -e "$scratch" -e "$TEST_ROOT" tree; then
        fail "the package has paths of this machine: $package"
    fi
done
export PATH=$scratch/tree/usr/bin:$PATH
expect '.*libhakmem\.so\.1.*' "$(run_block "$(block 'Debian packages' sh 2)" 2>/dev/null)"
[[ $(command -v hakmem) == "$scratch/tree/usr/bin/hakmem" ]] || fail "the command is $(command -v hakmem)"
hakmem record -o trace sort --version >/dev/null 2>/dev/null
expect '.*calls.*' "$(hakmem replay trace --summary)"
for file in tree/usr/share/doc/{libhakmem1,libhakmem-secure1,libhakmem-dev,hakmem}/copyright; do
    grep -q '^License: MIT$' "$file" && grep -q '^Permission is hereby granted' "$file" || fail "$file has no licence"
done
libraries=$(dirname "$(find tree -name libhakmem.a)")
program .
read -r -a flags < <(PKG_CONFIG_PATH=$libraries/pkgconfig pkg-config --cflags --libs hakmem)
gcc program.c "${flags[@]}" -o program
expect "$served" "$(LD_LIBRARY_PATH=$libraries ./program)"
gcc -I"tree/usr/include" program.c "$libraries/libhakmem.a" -pthread -o static
expect "$served" "$(./static)"
readelf -n -W static | grep -q stapsdt || fail "stripping the archive has taken its probes"
readelf -S -W static | grep -q ' hakmem_text ' || fail "the archive's code has no section of its own"
for library in libhakmem libhakmem-secure; do
    bash "$TEST_ROOT/tools/check_library.sh" "$libraries/$library.so" || fail "the packaged $library"
done
expect '.*libhakmem-secure\.so\.1.*' "$(hakmem run --quiet --secure -- grep libhakmem /proc/self/maps)"
echo "the unpacked packages work"

# Stripped; a debugger finds the symbols by the build id.
id=$(readelf -n "$libraries/libhakmem.so.1" | sed -n 's/.*Build ID: //p')
[[ -e tree/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug ]] || fail "no debug symbols of $id"
for file in "$libraries"/libhakmem*.so.1 "$libraries"/hakmem/*.so tree/usr/libexec/hakmem/hakmem-*; do
    if readelf -S -W "$file" | grep -qE ' \.(debug_info|symtab) '; then
        fail "$file is not stripped"
    fi
done
depends() {
    dpkg-deb -f packages/"$1"_*.deb Depends
}
[[ $(depends libhakmem1) =~ ^libc6\ \(\>=\ [0-9.]+\)$ ]] || fail "libhakmem1 depends on $(depends libhakmem1)"
[[ $(depends hakmem) == *'libhakmem1 (= '*python3*libc6* ]] || fail "hakmem depends on $(depends hakmem)"
[[ $(depends libhakmem-dev) == 'libhakmem1 (= '*'libhakmem-secure1 (= '* ]] || fail "libhakmem-dev depends on $(depends libhakmem-dev)"
dpkg-deb -I packages/libhakmem1_*.deb shlibs | grep -q '^libhakmem 1 libhakmem1' || fail "no shlibs"
if command -v man >/dev/null; then
    for page in tree/usr/share/man/man?/*; do
        said=$(LC_ALL=C.UTF-8 MANROFFSEQ='' MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>&1 >/dev/null)
        [[ -z $said ]] || fail "$page: $said"
    done
fi

if command -v lintian >/dev/null; then
    said=$(lintian --allow-root --fail-on none --tag-display-limit 0 packages/* 2>&1)
    [[ -z $said ]] || fail "lintian says: $said"
    echo "lintian finds nothing"
else
    echo "no lintian here (Debian: lintian)"
fi
