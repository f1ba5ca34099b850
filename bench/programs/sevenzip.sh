#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# 7z packs generated text and tables with LZMA2 and two threads.
#
# Imitates: backups and release archives. Dictionaries, hash chains and the buffers of the threads
# are blocks of megabytes that are allocated at the start of a block and freed at its end.
#
# Does not show: small objects; many small files.
#
# packages: p7zip-full gawk
here=${0%"${0##*/}"}
. "${here:-./}common.sh"
needs=(7z gawk)

make_inputs() {
    gawk 'BEGIN {
        for (i = 1; i <= 90000; i++) {
            state = (state * 1103 + 12345) % 1000003
            printf "%d;%s;name %d;%d.%d\n", i, substr("the quick brown fox jumps", 1 + state % 20),
                state % 5003, state % 1000, i % 97
        }
    }' >table
    # Text that people wrote is at hand.
    cat /usr/include/linux/*.h >headers 2>/dev/null
    [[ -s headers ]] || cp table headers
}

run_program() {
    exec 7z a -bd -bso0 -bsp0 -t7z -m0=lzma2:d=2m:c=2m -mx=5 -mmt=2 archive.7z "$inputs/table" \
        "$inputs/headers" >/dev/null </dev/null
}

main "$@"
