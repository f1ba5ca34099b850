#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Real programs under a filter of system calls (seccomp) that ends them at each call that they do not make with the C
# library's malloc. What they call with that one is found by strace, and they run again on hakmem, ordinary and secure:
# python, redis, nginx, some of the benchmark programs. sshd sets a filter by itself, for each connection.
. "$(dirname "$0")/lib.sh"
need strace gcc python3
PATH=$PATH:/usr/sbin:/sbin
gcc -O1 "$(dirname "$0")/filter_helper.c" -o "$work/filter" || fail "the helper does not build"
"$work/filter" 59 60 231 -- /no/such/program
(($? == 126)) || skip "no seccomp here"
forms=("" --secure)
traced=(strace -f -n -X raw -qq -e signal=none -o "$work/calls")

# allowed: arguments for the helper from the last trace.
allowed() {
    grep -oE '^([0-9]+ +)?\[ *[0-9]+\]' "$work/calls" | grep -oE '\[ *[0-9]+' | tr -d '[ ' | sort -un
    sed -nE 's/.* madvise\([^,]*, [^,]*, (0x[0-9a-f]+|[0-9]+)\).*/a\1/p' "$work/calls" | sort -u
}

# filtered FORM COMMAND...: an array `filtered` that runs the command on hakmem under the filter of the last trace.
filtered() {
    local form=$1 calls
    shift
    mapfile -t calls < <(allowed)
    filtered=("$HAKMEM" run --quiet ${form:+"$form"} -- "$work/filter" "${calls[@]}" -- "$@")
}

# alone COMMAND...: a program that ends by itself prints the same.
alone() {
    local form status
    (cd "$work" && "${traced[@]}" "$@") >"$work/reference" 2>&1 </dev/null || fail "$1 fails on the C library's malloc"
    for form in "${forms[@]}"; do
        filtered "$form" "$@"
        (cd "$work" && "${filtered[@]}") >"$work/actual" 2>&1 </dev/null
        status=$?
        ((status == 0)) || fail "${1##*/} $form: status $status: $(tail -3 "$work/actual")"
        [[ -n ${volatile:-} ]] || alike "${1##*/} $form" "$work/reference" "$work/actual"
    done
    say "${1##*/}: alike"
}

cat >"$work/work.py" <<'END'
import hashlib, json, random, re, threading
def work(seed):
    rng = random.Random(seed)
    rows = [{"id": i, "name": "ab" * rng.randrange(40), "tags": rng.sample(range(1000), 8)} for i in range(4000)]
    text = json.dumps(rows)
    words = sorted(re.findall("[ab]+", text))
    blocks = [bytearray(rng.randrange(4 << 20)) for _ in range(60)]
    assert not any(any(block[::4096]) for block in blocks)
    grown = bytearray()
    for i in range(40):
        grown += bytes(100000 + i)
    digests[seed] = hashlib.md5((text + "".join(words)).encode()).hexdigest(), len(grown)
digests = {}
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
work(9)
print(sorted(digests.items()))
END
python=$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')
PYTHONMALLOC=malloc alone "$python" "$work/work.py"
PYTHONMALLOC=pymalloc alone "$python" "$work/work.py"
if [[ -n ${TEST_BUILD:-} ]]; then
    volatile=1 # they print times
    for bench in buffers large_objects mixed realloc_growth; do
        alone "$TEST_BUILD/bench/$bench" --smoke
    done
    volatile=
fi

# server NAME START USE STOP: a server that `START COMMAND...` starts (with what runs it before the command), USE asks and
# STOP ends, answers the same.
server() {
    local form
    $2 || fail "$1 does not start"
    $3 >"$work/reference" 2>&1
    $4
    for form in "${forms[@]}"; do
        form_of_server=$form
        $2 again || fail "$1 $form does not start: $(tail -3 "$work/log")"
        prove_process "$server_pid"
        $3 >"$work/actual" 2>&1
        alike "$1 $form" "$work/reference" "$work/actual"
        kill -0 "$server_pid" 2>/dev/null || fail "$1 $form has ended: $(tail -3 "$work/log")"
        $4
    done
    say "$1: $(wc -l <"$work/reference") lines alike"
}

# run_server AGAIN COMMAND...: traced the first time, then filtered.
run_server() {
    local again=$1
    shift
    if [[ -z $again ]]; then
        filtered=("${traced[@]}" "$@")
    else
        filtered "$form_of_server" "$@"
    fi
    start "$work/log" "${filtered[@]}"
}

redis=${REDIS_SRC:+$REDIS_SRC/src}
redis=${redis:-$(cache_directory)/redis-libc} # redis.sh builds it
cli() {
    "$redis/redis-cli" -s "$work/socket" "$@"
}
start_redis() {
    run_server "${1:-}" "$redis/redis-server" --port 0 --unixsocket "$work/socket" --dir "$work" --save '' \
        --appendonly no --enable-debug-command local --io-threads 2 --hz 50
    wait_until 120 cli ping
}
use_redis() {
    cli debug populate 40000 key 300
    cli set large "$(head -c 100000 /dev/zero | tr '\0' x)"
    for i in 1 2 3 4 5 6 7 8; do
        cli append large "$(head -c 120000 /dev/zero | tr '\0' y)"
    done
    cli bgsave
    wait_until 120 saved
    cli debug digest
    cli flushall
    cli memory purge
    sleep 1.2
    cli dbsize
}
saved() {
    [[ $(cli info persistence) == *rdb_bgsave_in_progress:0* ]]
}
stop_redis() {
    cli shutdown nosave >/dev/null 2>&1
    wait "$server_pid"
}
if [[ -x $redis/redis-server ]]; then
    server redis start_redis use_redis stop_redis
else
    say "left out: redis (redis.sh builds it)"
fi

start_nginx() {
    run_server "${1:-}" nginx -e "$work/error.log" -p "$work" -c "$work/nginx.conf"
    wait_until 120 curl -sf "http://127.0.0.1:$port/text"
}
use_nginx() {
    local i
    for i in {1..30}; do
        curl -sS --compressed "http://127.0.0.1:$port/page.html" | cksum
        curl -sS "http://127.0.0.1:$port/again/page.html" | cksum
    done
    curl -sS "http://127.0.0.1:$port/text"
}
stop_nginx() {
    local master=$server_pid
    [[ -f $work/nginx.pid ]] && kill -QUIT "$(cat "$work/nginx.pid")"
    wait "$master"
}
if command -v nginx >/dev/null && command -v curl >/dev/null; then
    seq 200000 >"$work/page.html"
    chmod 755 "$work"
    port=$(free_port) || skip "no free port"
    cat >"$work/nginx.conf" <<END
$( ((EUID == 0)) && echo "user $(id -un);")
worker_processes 2; daemon off; pid $work/nginx.pid; error_log $work/error.log warn;
events { worker_connections 64; }
http {
    access_log off; gzip on; gzip_types text/plain text/html;
    client_body_temp_path $work/t1; proxy_temp_path $work/t2; fastcgi_temp_path $work/t3;
    uwsgi_temp_path $work/t4; scgi_temp_path $work/t5;
    server {
        listen 127.0.0.1:$port; root $work;
        location /again/ { proxy_pass http://127.0.0.1:$port/; proxy_buffers 16 64k; }
        location /text { return 200 "here\n"; }
    }
}
END
    server nginx start_nginx use_nginx stop_nginx
else
    say "left out: nginx is not installed"
fi

# sshd closes each connection's process in before anybody has proved who he is.
start_sshd() {
    local command=("$(command -v sshd)" -D -e -f "$work/sshd_config")
    [[ -n ${1:-} ]] && command=("$HAKMEM" run --quiet ${form_of_server:+"$form_of_server"} -- "${command[@]}")
    start "$work/log" "${command[@]}"
    wait_until 120 log_in true
}
log_in() {
    ssh -F none -i "$work/key" -p "$port" -o BatchMode=yes -o StrictHostKeyChecking=no -o LogLevel=ERROR \
        -o UserKnownHostsFile="$work/known" 127.0.0.1 "$@" </dev/null
}
use_sshd() {
    local i
    for i in 1 2 3 4 5; do
        log_in seq $((i * 20000)) | cksum
    done
    grep -i 'sigsys\|violation\|bad system call' "$work/log"
}
stop_sshd() {
    kill "$server_pid"
    wait "$server_pid"
}
if command -v sshd >/dev/null && command -v ssh-keygen >/dev/null && { ((EUID != 0)) || getent passwd sshd >/dev/null; }; then
    ((EUID != 0)) || mkdir -p /run/sshd
    port=$(free_port) || skip "no free port"
    ssh-keygen -q -t ed25519 -N '' -f "$work/host" && ssh-keygen -q -t ed25519 -N '' -f "$work/key" ||
        fail "no keys"
    cp "$work/key.pub" "$work/keys"
    printf '%s\n' "ListenAddress 127.0.0.1" "Port $port" "HostKey $work/host" "AuthorizedKeysFile $work/keys" \
        "PidFile none" "StrictModes no" "UsePAM no" "PermitRootLogin yes" >"$work/sshd_config"
    server sshd start_sshd use_sshd stop_sshd
else
    say "left out: sshd is not installed"
fi
