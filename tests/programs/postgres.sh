#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# postgres: initdb, a server with parallel and compiled queries, pgbench from many clients; what it
# answers is the same as without hakmem, and pgbench's books balance.
. "$(dirname "$0")/lib.sh"

# Distributions keep the server's programs out of the way.
PATH=$(printf '%s:' /usr/lib/postgresql/*/bin /usr/pgsql-*/bin)$PATH
need initdb postgres psql pgbench pgrep
mkdir "$work/home" && export HOME=$work/home

# Postgres refuses to run as root: another user, who can read the library, or a user namespace.
as_user=(env)
if ((EUID == 0)); then
    as_user=()
    for user in postgres nobody; do
        id "$user" >/dev/null 2>&1 || continue
        try=(setpriv "--reuid=$user" "--regid=$(id -g "$user")" --clear-groups)
        if "${try[@]}" "$HAKMEM" run --quiet -- true 2>/dev/null; then
            as_user=("${try[@]}") && chown "$user" "$work" "$work/home" && break
        fi
    done
    if ((${#as_user[@]} == 0)); then
        unshare --user true 2>/dev/null || skip "needs a user who can read $HAKMEM and its library"
        as_user=(unshare --user)
    fi
fi
port=$(free_port)

sql() {
    "${as_user[@]}" "$@" \
        psql -X -q -A -t -v ON_ERROR_STOP=1 -h "$work/socket" -p "$port" -d postgres
}

rows=$(scale 30000 2000000)
queries() {
    cat <<END
create table item as select i as id, 'name ' || (i * 7919 % 100003) as name, i % 97 as kind,
    repeat(chr(97 + i % 26), i % 200) as text from generate_series(1, $rows) i;
create index on item (name); create index on item (kind, id); analyze item;
set max_parallel_workers_per_gather = 2; set parallel_setup_cost = 0; set parallel_tuple_cost = 0;
set min_parallel_table_scan_size = 0; set work_mem = '1MB';
select kind, count(*), sum(length(text)), max(name) from item group by kind order by kind limit 20;
select count(*) from item a join item b on a.name = b.name;
set jit = on; set jit_above_cost = 0;
set jit_inline_above_cost = 0; set jit_optimize_above_cost = 0;
select sum(id * 2 + kind), avg(length(text))::numeric(10, 4) from item where name like '%7%';
set work_mem = '64MB';
select md5(string_agg(name, ',' order by text, id)) from item;
select md5(json_agg(item order by id)::text) from item where id < 20000;
update item set text = text || 'x' where kind = 3; delete from item where kind = 4;
create function twice(n int) returns int language plpgsql as 'begin return n * 2; end';
select sum(twice(id)) from item; vacuum full item;
select count(*), sum(length(text)) from item;
select length(repeat('long', 20000000)), length(upper(repeat('ab', 100000)));
END
}

# run_server PREFIX...: everything, with the prefix before each program of postgres.
run_server() {
    local log=$work/log to=(-h "$work/socket" -p "$port") transactions backend
    transactions=$(scale 250 5000)
    rm -rf "$work/data" "$work/socket"
    "${as_user[@]}" mkdir "$work/socket"
    # initdb wants to be able to return to where it was started.
    (cd "$work/home" &&
        "${as_user[@]}" "$@" initdb -D "$work/data" -A trust -U tester --no-sync) >"$log" 2>&1 ||
        give_up "initdb: $*"
    export PGUSER=tester
    start "$log" "${as_user[@]}" "$@" postgres -D "$work/data" -h '' -k "$work/socket" -p "$port" \
        -c fsync=off -c shared_buffers=32MB -c max_connections=40
    wait_until 120 pg_isready -q -d postgres "${to[@]}" || give_up "postgres does not start: $*"
    if [[ $1 != env ]]; then
        prove_process "$server_pid"
        for backend in $(pgrep -P "$server_pid"); do
            prove_child "$backend"
        done
    fi
    queries | sql "$@" || give_up "queries: $*"
    "${as_user[@]}" "$@" pgbench -q -i -s 2 "${to[@]}" postgres >"$work/pgbench" 2>&1 ||
        give_up "pgbench -i: $*"
    "${as_user[@]}" "$@" pgbench -n -c 12 -j 4 -t "$transactions" "${to[@]}" postgres \
        >"$work/pgbench" 2>&1 || give_up "pgbench: $*"
    grep 'actually processed' "$work/pgbench"
    sql "$@" <<'END'
select sum(delta) = (select sum(abalance) from pgbench_accounts),
    sum(delta) = (select sum(bbalance) from pgbench_branches), count(*) from pgbench_history
END
    stop "$server_pid" INT || give_up "postgres ended with status $?: $*"
    # While it starts it refuses those who ask whether it has, and at its end it sends them away.
    ! grep 'PANIC\|FATAL:\|terminated by signal\|hakmem: ' "$log" |
        grep -v 'starting up\|shutting down\|administrator command' >&2 ||
        fail "postgres complained: $*"
}

give_up() {
    tail -5 "$work/log" "$work/pgbench" >&2
    fail "$*"
}

prove "$(command -v initdb)" --version
run_server env >"$work/reference"
run_server "${on_hakmem[@]}" >"$work/actual"
alike "answers" "$work/reference" "$work/actual"
say "alike; $(grep 'actually processed' "$work/actual")"
