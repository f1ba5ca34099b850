#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Unpacks the distribution's source of a package in the working directory, by apt-get with package
# lists of its own below apt/, as most machines have none of sources.
# Usage: debian_source.sh PACKAGE
set -u
lists=$PWD/apt
mkdir -p "$lists/parts" "$lists/state/lists/partial" "$lists/cache/archives/partial" || exit 1
for list in /etc/apt/sources.list.d/*.sources; do
    [[ -e $list ]] || continue
    sed 's/^Types:.*/Types: deb-src/' "$list" >"$lists/parts/${list##*/}"
done
for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [[ -e $list ]] || continue
    sed -n 's/^deb\(-src\)\? /deb-src /p' "$list" >"$lists/parts/from-${list##*/}.list"
done
options=(-o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$lists/parts"
    -o "Dir::State=$lists/state" -o Dir::State::status=/var/lib/dpkg/status
    -o "Dir::Cache=$lists/cache" -o APT::Sandbox::User=root)
apt-get -q "${options[@]}" update # may fail for the source of something else
apt-get -q "${options[@]}" source "$1"
