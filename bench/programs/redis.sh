#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# redis-server, built against plain malloc: a fixed file of commands, then redis-benchmark's clients.
#
# Imitates: a cache under load. Keys, values, replies and the buffers of the clients are malloc
# calls of one thread, from 16 bytes to some KiB; tables and lists grow while it serves. First one
# client sends 75,000 commands that store, overwrite and delete values of 1 to 1000 bytes, then 20
# clients send 240,000 requests of eight kinds. Distributions link redis with an allocator of its
# own, so the distribution's source is built anew by `prepare` with MALLOC=libc, which takes a
# minute or two. The server is the process measured, from its start to the SHUTDOWN that the load
# ends with; the load runs beside it, without LD_PRELOAD.
#
# With the word `idle` the load is another one, and comes from outside (the verb `load`): 80 MB of
# values are stored, then all are deleted at once (FLUSHALL). The server is left with its own timer
# only, ten times a second, and what memory it still holds is read then.
#
# Does not show: forks (background saves), threads for input and output, days of fragmentation; nor
# the server alone where there is but one core. redis-benchmark draws its keys by the clock: which
# of them are hit differs between runs, how many and how large does not.
#
# packages: dpkg-dev gcc libc6-dev make
here=${0%"${0##*/}"}
. "${here:-./}common.sh"
needs=(apt-get awk dpkg-source gcc make)

make_inputs() {
    local folders
    rm -rf build && mkdir build && cd build || return
    "$root/tools/debian_source.sh" redis ||
        stop 77 "apt-get cannot fetch the source of redis; $inputs/log says why"
    folders=(redis-*/)
    make -C "${folders[0]}" -j 2 MALLOC=libc USE_SYSTEMD=no BUILD_TLS=no OPTIMIZATION=-O2 || return
    cp "${folders[0]}"src/redis-{server,cli,benchmark} .. && cd .. && rm -rf build &&
        print_commands >commands && print_values >values
}

# Of four commands one overwrites an older key, one deletes.
print_commands() {
    awk 'BEGIN {
        while (length(text) < 1000) text = text "value"
        for (i = 1; i <= 75000; i++) {
            value = substr(text, 1, 1 + i * 7919 % 1000)
            older = int(i * (i * 31 % 1009) / 1009)
            if (i % 4 == 0) print "DEL item:" older
            else if (i % 4 == 1) print "SET item:" older, value
            else if (i % 4 == 2) print "HSET table:" i % 3001, "field" i % 47, substr(value, 1, 60)
            else print "SET item:" i, value
        }
    }'
}

# 80 MB with what redis adds to each.
print_values() {
    awk 'BEGIN {
        while (length(text) < 1400) text = text "value"
        for (i = 1; i <= 100000; i++) print "SET item:" i, substr(text, 1, 1 + i * 7919 % 1400)
    }'
}

# ask COMMAND...: the server's answer.
ask() {
    ./redis-cli -s "$socket" "$@"
}

# Beside the server: waits for it, loads it, ends it. If something fails the server is killed, so
# that the run fails.
load() {
    local i
    unset LD_PRELOAD LD_DEBUG # the load is not what is measured, nor asked who serves it
    for ((i = 0; i < 1000; i++)); do
        [[ -S $socket ]] && break
        kill -0 $$ || return
        sleep 0.01
    done
    ask --pipe <commands &&
        ./redis-benchmark -s "$socket" -q -c 20 -P 16 -n 30000 -r 30000 -d 200 \
            -t set,get,incr,lpush,rpop,sadd,hset,zadd &&
        [[ $(ask dbsize) -gt 25000 && $(ask info memory) == *mem_allocator:libc* ]] &&
        ask shutdown nosave && return
    kill -KILL $$
    rm -f "$socket"
}

# serve SOCKET PROGRAM
serve() {
    exec "$2" --port 0 --unixsocket "$1" --save '' --appendonly no --daemonize no \
        >/dev/null </dev/null
}

run_program() {
    case ${1:-} in
    '') ;;
    idle) serve socket "$inputs/redis-server" ;;
    *) stop 2 "the word after the directory can only be 'idle', not '$1'" ;;
    esac
    cd "$inputs" || exit 1
    # A short name relative to the directory: the path of a socket is limited to 107 bytes.
    socket=socket-$$
    load >/dev/null 2>&1 </dev/null &
    serve "$socket" ./redis-server
}

load_program() {
    local client=("$inputs/redis-cli" -s socket)
    "${client[@]}" --pipe <"$inputs/values" && [[ $("${client[@]}" dbsize) == 100000 ]] &&
        "${client[@]}" flushall && [[ $("${client[@]}" dbsize) == 0 ]]
} >/dev/null

main "$@"
