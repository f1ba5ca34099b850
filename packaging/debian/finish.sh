#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Finishes the packages that CPack has made: adds what Debian's policy asks for, and packs them anew, so that equal files
# give equal packages. Usage: finish.sh PACKAGE.deb...
set -eu
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
umask 022

fail() {
    echo "finish.sh: $*" >&2
    exit 1
}

for tool in dpkg-deb dpkg-parsechangelog readelf strip gzip; do
    type -P "$tool" >/dev/null || fail "$tool is missing (Debian: dpkg-dev, binutils)"
done
log=$here/changelog
# The time of every file in the packages: that of the version.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(dpkg-parsechangelog -l "$log" -S Timestamp)}
export SOURCE_DATE_EPOCH
version=$(dpkg-parsechangelog -l "$log" -S Version)

# add_documents TREE NAME
add_documents() {
    local directory=$1/usr/share/doc/$2 licence=$here/../../LICENSE
    mkdir -p "$directory"
    gzip -9nc "$log" >"$directory/changelog.gz"
    cp "$here/copyright" "$directory/copyright"
    cat "$licence" >>"$directory/copyright"
}

# The loader's cache is renewed by a trigger instead of by scripts.
use_trigger() {
    local tree=$1 script had=''
    for script in "$tree"/DEBIAN/post{inst,rm}; do
        [[ -e $script ]] || continue
        grep -q '^[[:space:]]*ldconfig' "$script" || fail "$script is none of CPack's"
        rm "$script"
        had=yes
    done
    [[ -z $had ]] || echo 'activate-noawait ldconfig' >"$tree/DEBIAN/triggers"
}

# add_shlibs TREE NAME: which package has a library, for those that are linked with it.
add_shlibs() {
    local file soname
    for file in "$1"/usr/lib/*/lib*.so.*; do
        [[ -f $file && ! -L $file ]] || continue
        soname=$(readelf -d -W "$file" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
        echo "${soname%%.so.*} ${soname##*.so.} $2 (>= $version)" >>"$1/DEBIAN/shlibs"
    done
}

# set_field CONTROL NAME VALUE: in front of the description, which is the last field.
set_field() {
    sed -i "/^$2:/d; s/^Description:/$2: $3\n&/" "$1"
}

# finish TREE: changes an unpacked package.
finish() {
    local tree=$1 control=$1/DEBIAN/control name file size=0
    name=$(sed -n 's/^Package: //p' "$control")
    grep -qx "Version: $version" "$control" || fail "packaging/debian/changelog has version $version, $name has another one"
    if [[ $name == *-dbgsym ]]; then
        mkdir -p "$tree/usr/share/doc"
        ln -s "${name%-dbgsym}" "$tree/usr/share/doc/$name"
    else
        add_documents "$tree" "$name"
        add_shlibs "$tree" "$name"
        use_trigger "$tree"
    fi
    case $name in
    lib*-dbgsym | lib*) set_field "$control" Multi-Arch same ;;
    esac
    while IFS= read -r -d '' file; do
        gzip -9n "$file"
    done < <(find "$tree" -path '*/share/man/*' -type f -print0)
    while IFS= read -r -d '' file; do
        strip --strip-debug --enable-deterministic-archives "$file"
    done < <(find "$tree" -name '*.a' -type f -print0)
    chmod -R u=rwX,go=rX "$tree"
    while IFS= read -r -d '' file; do
        size=$((size + ($(stat -c %s "$file") + 1023) / 1024))
    done < <(find "$tree" -path "$tree/DEBIAN" -prune -o -type f -print0)
    set_field "$control" Installed-Size "$size"
    (cd "$tree" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums)
    chmod 644 "$tree"/DEBIAN/*
}

for package in "$@"; do
    rm -rf "$scratch/tree"
    dpkg-deb --raw-extract "$package" "$scratch/tree"
    finish "$scratch/tree"
    rm "$package"
    dpkg-deb --root-owner-group -Zxz --build "$scratch/tree" "$package" >/dev/null
done
