#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The benchmark of the key-value store Kyoto Cabinet on its database in memory, a tree of strings.
#
# Imitates: caches and indexes inside a program. Each record is one node of a C++ map with a key and
# a value of its own; the benchmark stores, reads, changes and removes all of them.
#
# Does not show: databases in files, several threads.
#
# packages: kyotocabinet-utils
here=${0%"${0##*/}"}
. "${here:-./}common.sh"
needs=(kcprototest)

make_inputs() {
    :
}

run_program() {
    exec kcprototest order -tree -rnd -etc 200000 >/dev/null </dev/null
}

main "$@"
