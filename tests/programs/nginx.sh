#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# nginx under load: workers that compress, proxy and log, reloaded under way; every answer is the
# one given without hakmem, no request fails, no worker dies.
. "$(dirname "$0")/lib.sh"
PATH=$PATH:/usr/sbin:/sbin
need nginx curl pgrep
command -v wrk >/dev/null || command -v ab >/dev/null || skip "neither wrk nor ab is installed"

mkdir -p "$work/www" "$work/nginx"
chmod 755 "$work" "$work/www"
for i in 1 2 3 4 5; do
    seq $((i * 4000)) | sed "s/.*/<p>line & of page $i<\/p>/" >"$work/www/page$i.html"
done
head -c 3000000 /dev/zero | tr '\0' 'z' >"$work/www/large.txt"
port=$(free_port) || skip "no free port"
user=$( ((EUID == 0)) && echo "user $(id -un);")
cat >"$work/nginx.conf" <<END
$user
worker_processes 2;
daemon off;
pid $work/nginx/pid;
error_log $work/nginx/error.log warn;
events { worker_connections 256; }
http {
    access_log $work/nginx/access.log combined buffer=4k flush=1s;
    types { text/html html; text/plain txt; }
    client_body_temp_path $work/nginx/body; proxy_temp_path $work/nginx/proxy;
    fastcgi_temp_path $work/nginx/fastcgi; uwsgi_temp_path $work/nginx/uwsgi;
    scgi_temp_path $work/nginx/scgi;
    gzip on; gzip_min_length 100; gzip_types text/plain; etag off;
    server {
        listen 127.0.0.1:$port;
        root $work/www;
        location /again/ {
            proxy_pass http://127.0.0.1:$port/; proxy_buffers 16 32k; gzip_proxied any;
        }
        location /text { return 200 "host=\$host agent=\$http_user_agent args=\$args\n"; }
        location ~ ^/re(.*)/(?<tail>[a-z]+)\$ { return 200 "\$1 \$tail\n"; }
    }
}
END

# What clients see, without what changes by itself (dates).
ask_everything() {
    local path url
    for path in page1.html page5.html again/page3.html large.txt text?a=b rewrite/abc \
        again/again/page2.html none; do
        url=http://127.0.0.1:$port/$path
        echo "== $path"
        curl -sS -A test --compressed "$url" | cksum
        curl -sS -A test -H 'Accept-Encoding: gzip' "$url" | cksum
        curl -sS -A test -D - -o /dev/null "$url" | grep -vi '^\(date\|last-modified\):'
    done
}

# load PATH CONNECTION: no request may fail. CONNECTION close: one request each, as a reload ends
# kept ones.
load() {
    local url=http://127.0.0.1:$port/$1 seconds good
    seconds=$(scale 1 30)
    if command -v wrk >/dev/null; then
        wrk -t 2 -c 40 -d "${seconds}s" -H 'Accept-Encoding: gzip' -H "Connection: $2" "$url" \
            >"$work/load" 2>&1 && ! grep -q 'Non-2xx\|Socket errors' "$work/load"
    else
        ab -q -t "$seconds" -n 1000000 -c 40 -H 'Accept-Encoding: gzip' "$url" \
            >"$work/load" 2>&1 && ! grep -q 'Failed requests: *[1-9]\|Non-2xx' "$work/load"
    fi
    good=$?
    ((good == 0)) && return
    cat "$work/load"
    fail "requests of $1 failed"
}

# Three reloads one after the other, each ended: no worker from before it is left. A reload ends kept connections, so the
# next load must not begin before that.
reload_thrice() {
    local i before
    for i in 1 2 3; do
        sleep 0.3
        before=$(pgrep -P "$server_pid")
        kill -HUP "$server_pid"
        wait_until 120 all_new "$before" || return 1
    done
}

# all_new PIDS: whether nginx has two workers, none of which is one of these.
all_new() {
    local workers
    workers=$(pgrep -P "$server_pid")
    (($(wc -w <<<"$workers") == 2)) && ! grep -qxF "$1" <<<"$workers"
}

serve() {
    start "$work/nginx/output" \
        "$@" nginx -e "$work/nginx/error.log" -p "$work" -c "$work/nginx.conf"
    wait_until 120 curl -s "http://127.0.0.1:$port/text" ||
        fail "nginx does not start: $(cat "$work/nginx/output" "$work/nginx/error.log")"
}

prove nginx -v
serve env
ask_everything >"$work/reference"
stop "$server_pid" QUIT
runs=$(scale 1 2)
for ((run = 1; run <= runs; run++)); do
    : >"$work/nginx/error.log"
    serve "${on_hakmem[@]}"
    prove_process "$server_pid"
    for worker in $(pgrep -P "$server_pid"); do
        prove_process "$worker"
    done
    ask_everything >"$work/actual"
    alike "answers of run $run" "$work/reference" "$work/actual"
    load page2.html keep-alive
    reload_thrice &
    reloads=$!
    load again/page1.html close
    wait "$reloads" || fail "run $run: a reload does not end"
    load text keep-alive
    ask_everything >"$work/actual"
    alike "answers of run $run after the load" "$work/reference" "$work/actual"
    stop "$server_pid" QUIT || fail "nginx ended with status $?"
    ! grep -v 'open()\|could not build optimal\|client .* closed' "$work/nginx/error.log" >&2 ||
        fail "run $run: nginx complained"
done
say "runs alike: $runs; $(wc -l <"$work/nginx/access.log") requests"
