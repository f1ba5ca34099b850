# SPDX-License-Identifier: MIT
# servers.sh: what the snippets of servers.toml share; read before each of them.
set -eu
export LC_ALL=C PATH=$PATH:/usr/sbin:/sbin HOME=$PWD TMPDIR=$PWD

# write_file NAME BYTES
write_file() {
    printf "%0$2d" 0 >"$1"
}

# nginx_configure PORT [LOCATION]: without a location it serves the file `file`.
nginx_configure() {
    write_file file 12000
    cat >nginx.conf <<END
daemon off;
worker_processes 2;
pid $PWD/nginx.pid;
error_log $PWD/error.log;
events { worker_connections 1024; }
http {
    access_log off;
    keepalive_requests 1000000;
    client_body_temp_path $PWD/body;
    proxy_temp_path $PWD/proxy;
    fastcgi_temp_path $PWD/fastcgi;
    uwsgi_temp_path $PWD/uwsgi;
    scgi_temp_path $PWD/scgi;
    server { listen 127.0.0.1:$1 backlog=1024; root $PWD; ${2:-} }
}
END
}

backend() {
    nginx_configure "$port2"
    env -u LD_PRELOAD -u LD_DEBUG nginx -p "$PWD" -e error.log -c "$PWD/nginx.conf" &
}

write_php() {
    cat >index.php <<'END'
<?php
$rows = [];
$count = ($_GET["n"] % 100 + 1) * (isset($_GET["big"]) ? 10 : 1);
for ($i = 0; $i < $count; $i++) $rows[] = ["id" => $i, "name" => "row $i"];
$text = json_encode($rows);
header("Content-Length: " . strlen($text));
echo $text;
END
}
