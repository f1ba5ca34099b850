#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Installs Debian packages, as root, by one run of apt-get that no signal cuts short: a dpkg that ends halfway leaves a
# system that installs nothing until somebody repairs it. A signal is obeyed when apt-get has ended.
# Usage: install_packages.sh PACKAGE... [-- PACKAGE...]
# Those after -- are left out where the distribution does not have them or they cannot be installed.
set -u

# install PACKAGE... [-- PACKAGE...]: in a session of its own, which has no terminal.
install() {
    local package packages=() wanted=() extra=''
    local get=(apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::http::Timeout=30)
    export DEBIAN_FRONTEND=noninteractive
    "${get[@]}" update # fails where one of many sources cannot be reached
    for package in "$@"; do
        if [[ $package == -- ]]; then
            extra=yes
        elif [[ -z $extra ]]; then
            packages+=("$package")
        elif "${get[@]}" install -s --no-install-recommends "$package" >/dev/null; then
            wanted+=("$package")
        fi
    done
    "${get[@]}" install -y --no-install-recommends "${packages[@]}" "${wanted[@]}" && return
    ((${#wanted[@]} != 0 && ${#packages[@]} != 0)) && "${get[@]}" install -y --no-install-recommends "${packages[@]}"
}

if [[ ${1-} == --apart ]]; then
    trap '' INT TERM HUP
    install "${@:2}"
    exit
fi

came=
for name in INT TERM HUP; do
    trap "came=$name; echo 'hakmem: the installation goes on to its end, so that it leaves no package half installed' >&2" $name
done
output=$(mktemp) || exit 1 # no pipe: what writes into it must not end with its reader
setsid bash "$0" --apart "$@" </dev/null >"$output" 2>&1 &
while :; do
    wait $!
    status=$?
    kill -0 $! 2>/dev/null || break
done
((status == 0)) || cat -- "$output" >&2
rm -f -- "$output"
[[ -z $came ]] || { trap - "$came" && kill -"$came" $$; }
exit $status
