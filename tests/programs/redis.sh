#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# redis built against plain malloc (distributions link it with jemalloc, where a preloaded allocator
# serves next to nothing): its benchmark from many clients, scripts, large values, background saves
# (fork), io threads; the data at the end is the same as without hakmem.
#
# The source comes from the distribution by apt-get, once, and is built in the cache; the first run
# takes a few minutes. REDIS_SRC names a directory with redis already built by `make MALLOC=libc`.
. "$(dirname "$0")/lib.sh"
tools=$(cd "$(dirname "$0")/../../tools" && pwd) || exit 1

build() {
    local cache=$1/redis-libc folder program
    [[ -x $cache/redis-server ]] && echo "$cache" && return
    for program in apt-get dpkg-source make gcc; do
        command -v $program >/dev/null || return
    done
    rm -rf "$cache.new" && mkdir -p "$cache.new" || return
    {
        (cd "$cache.new" && "$tools/debian_source.sh" redis) && folder=$(ls -d "$cache.new"/redis-*/) &&
            make -C "$folder" -j 2 MALLOC=libc USE_SYSTEMD=no BUILD_TLS=no OPTIMIZATION=-O0 DEBUG=
    } >"$cache.log" 2>&1 </dev/null || return
    # The server last: it says that all is there.
    rm -rf "$cache" && mkdir "$cache" &&
        cp "$folder"src/redis-{cli,benchmark,server} "$cache" && rm -rf "$cache.new" &&
        echo "$cache"
}

cache=$(cache_directory) || skip "no place to build redis in"
redis=${REDIS_SRC:+$REDIS_SRC/src}
redis=${redis:-$(build "$cache")} || skip "redis cannot be built: $cache/redis-libc.log"
[[ -x $redis/redis-server ]] || skip "there is no redis-server in $redis"

cli() {
    "$redis/redis-cli" -s "$work/socket" "$@"
}

serve() {
    rm -rf "$work/data" && mkdir "$work/data"
    start "$work/log" "$@" "$redis/redis-server" --port 0 --unixsocket "$work/socket" \
        --dir "$work/data" --save '' --appendonly no --enable-debug-command local \
        --io-threads 2 --io-threads-do-reads yes --hz 50
    wait_until 120 cli ping || fail "redis does not start: $(tail -3 "$work/log")"
}

# use BENCHMARK: work whose outcome does not depend on time or order. What the benchmark leaves behind is random.
use() {
    local i
    cat <<'END' >"$work/fill.lua"
for i = 1, tonumber(ARGV[1]) do
    local value = string.rep('v', (i * 7919) % 900)
    redis.call('set', 'my:key:' .. i, value)
    redis.call('hset', 'my:hash:' .. i % 500, 'field' .. i, value:sub(1, 40))
    redis.call('zadd', 'my:set:' .. i % 100, i * 31 % 1009, 'member' .. i)
    redis.call('rpush', 'my:list:' .. i % 50, value:sub(1, i % 100))
    if i % 3 == 0 then redis.call('append', 'my:key:' .. i * 13 % 1009, value) end
    if i % 5 == 0 then redis.call('del', 'my:key:' .. i / 5) end
end
return redis.call('dbsize')
END
    cli --eval "$work/fill.lua" , "$(scale 10000 1000000)"
    for i in 1 2; do
        cli bgsave >/dev/null
        "$1" -s "$work/socket" -q -n "$(scale 3000 300000)" -c 50 -P 8 \
            -d 300 -r 5000 -t set,get,lpush,lpop,sadd,hset,spop,zadd,lrange_100,mset \
            >"$work/benchmark" 2>&1 ||
            fail "redis-benchmark: $(tail -3 "$work/benchmark")"
        wait_until 120 saved || fail "the background save does not end"
        cli info persistence | grep -o 'rdb_last_bgsave_status:[a-z]*'
    done
    cli --scan | grep -v '^my:' |
        xargs -r -n 500 "$redis/redis-cli" -s "$work/socket" unlink >/dev/null
    cli set my:large "$(head -c 100000 /dev/zero | tr '\0' x)"
    for i in 1 2 3 4 5 6 7 8; do
        cli append my:large "$(head -c 120000 /dev/zero | tr '\0' y)"
    done
    cli debug reload
    cli debug digest
    cli dbsize
    cli info memory | grep -o '^mem_allocator:.*[a-z]'
    cli memory doctor >/dev/null
    cli memory purge
    cli flushall async
    cli dbsize
}

saved() {
    [[ $(cli info persistence) == *rdb_bgsave_in_progress:0* ]]
}

prove "$redis/redis-server" --version
serve env
use true >"$work/reference" 2>&1
stop "$server_pid" TERM
grep -q '^mem_allocator:libc' "$work/reference" || skip "$redis is not built against plain malloc"
serve "${on_hakmem[@]}"
prove_process "$server_pid"
use "$redis/redis-benchmark" >"$work/actual" 2>&1
alike "answers" "$work/reference" "$work/actual"
stop "$server_pid" TERM || fail "redis ended with status $?: $(tail -3 "$work/log")"
! grep -i 'crash\|bug report\|assertion\|hakmem: ' "$work/log" >&2 || fail "redis complained"
say "alike; $(grep -c . "$work/actual") answers"
