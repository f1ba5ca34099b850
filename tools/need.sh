#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs what is missing of the given commands and headers, if it may: as root, with apt-get, by $HAKMEM_INSTALL (yes,
# no, or else a question on a terminal). Without one of those before -- it fails with the line to type, and without
# others it says the line.
# Usage: need.sh PURPOSE ITEM... [-- ITEM...]
set -u
here=$(dirname -- "${BASH_SOURCE[0]}")

say() {
    printf 'hakmem: %s\n' "$*" >&2
}

# The Debian package of a command or header.
package_of() {
    case $1 in
    ninja) echo ninja-build ;;
    stdio.h) echo libc6-dev ;;
    cmocka.h) echo libcmocka-dev ;;
    zstd.h) echo libzstd-dev ;;
    readelf) echo binutils ;;
    ensurepip) echo python3-venv ;;
    musl-gcc) echo musl-tools ;;
    libfuzzer) echo libclang-rt-dev ;;
    aarch64-linux-gnu-*) echo "${1#aarch64-linux-gnu-}-aarch64-linux-gnu" ;;
    qemu-aarch64) echo qemu-user ;;
    dpkg-source | dpkg-shlibdeps) echo dpkg-dev ;;
    abidiff) echo abigail-tools ;;
    man) echo man-db ;;
    afl-fuzz) echo afl++ ;;
    *) echo "$1" ;;
    esac
}

have() {
    case $1 in
    *.h) [[ -e /usr/include/$1 || -e /usr/local/include/$1 ]] ;;
    ensurepip) python3 -I -c 'import ensurepip, venv' 2>/dev/null ;;
    libfuzzer)
        echo 'int LLVMFuzzerTestOneInput(const char *bytes, unsigned long size) { return bytes == 0 && size; }' |
            clang -fsanitize=fuzzer -x c - -o /dev/null 2>/dev/null
        ;;
    *) type -P "$1" >/dev/null ;;
    esac
}

# missing ITEM...: sets `packages` to those that bring the commands and headers that are not here.
missing() {
    local item
    packages=()
    for item in "$@"; do
        have "$item" || packages+=("$(package_of "$item")")
    done
}

# install_line PACKAGE...: what to type for them.
install_line() {
    local line="with the system's package manager"
    have apt-get && line="type: apt-get install -y $*" && ((EUID != 0)) && line=${line/apt-get/sudo apt-get}
    have dnf && line="type: sudo dnf install -y cmake ninja-build gcc gcc-c++ clang libcmocka-devel binutils"
    have pacman && line="type: sudo pacman -S --needed cmake ninja gcc clang cmocka"
    have zypper && line="type: sudo zypper install -y cmake ninja gcc gcc-c++ clang libcmocka-devel"
    echo "$line"
}

may_install() {
    local answer
    case ${HAKMEM_INSTALL-} in
    yes | no) [[ $HAKMEM_INSTALL == yes ]] ;;
    *) [[ -t 0 && -t 2 ]] && read -r -p "hakmem: install $1? [y/N] " answer && [[ $answer == [yY]* ]] ;;
    esac
}

purpose=$1 required=()
shift
while (($# > 0)) && [[ $1 != -- ]]; do
    required+=("$1") && shift
done
missing "${required[@]}" "${@:2}"
((${#packages[@]} != 0)) || exit 0
if have apt-get && ((EUID == 0)) && may_install "${packages[*]} $purpose"; then
    say "installing with apt-get $purpose: ${packages[*]}"
    missing "${@:2}"
    wanted=("${packages[@]}")
    missing "${required[@]}"
    "$here/install_packages.sh" "${packages[@]}" -- "${wanted[@]}"
fi
missing "${required[@]}"
((${#packages[@]} == 0)) || { say "missing $purpose: ${packages[*]}; install them, $(install_line "${packages[@]}")" && exit 125; }
missing "${@:2}"
((${#packages[@]} == 0)) || say "skipped is what needs ${packages[*]}; to have it, $(install_line "${packages[@]}")"
