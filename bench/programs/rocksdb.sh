#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# RocksDB's own benchmark, db_bench: random writes, compaction and random reads of a database.
#
# Imitates: a storage engine under load. Keys and values go through arenas, blocks of 4 KiB through
# a cache; iterators, versions and the buffers of background threads are C++ objects of all sizes,
# allocated by one thread and often freed by another.
#
# Does not show: a device that is slow (the database is in the folder of the run, and small).
#
# packages: rocksdb-tools
here=${0%"${0##*/}"}
. "${here:-./}common.sh"
needs=(db_bench)

make_inputs() {
    :
}

run_program() {
    exec db_bench --db=database --benchmarks=fillrandom,readrandom,readseq --num=150000 --seed=42 \
        --value_size=100 --compression_type=none --disable_wal=1 --write_buffer_size=4194304 \
        --cache_size=4194304 --threads=1 >/dev/null </dev/null
}

main "$@"
