#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ctest: slow own-shm
# Processes of another user that lie to root's tools, or keep them waiting: each command ends with one sentence, prints
# nothing of it, and serves the others. That the tools wait for a bounded time only is told by their sentences.
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
((EUID == 0)) || { echo "skipped: only root can be two users" && exit 77; }
stranger=64125 victim=64127
as() { setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; }
unset PYTHONPATH LD_PRELOAD ${!HAKMEM_*}
for reachable in "$python" /usr/bin/python3 ''; do
    ! as $stranger env "$reachable" -c '' 2>/dev/null || break
done
[[ -n $reachable ]] || { echo "skipped: another user can run no Python" && exit 77; }
mkdir -m 755 "$scratch/public" && chmod 755 "$scratch"
cp "$("$launcher" build)" "$scratch/public/libhakmem.so"
cp "$TEST_ROOT/tests/launcher/liar.py" "$scratch/public"
cp /bin/sleep "$scratch/public/hakmem-nap"
cd "$scratch/public" || exit 1

# lie KIND: sets `liar`.
liars=()
lie() {
    local preload=
    [[ $1 != mappings ]] || preload=LD_PRELOAD=$PWD/libhakmem.so
    as $stranger env $preload "$reachable" -B liar.py "$1" "$PWD/libhakmem.so" <"$scratch/until" >"$scratch/liar-$1" &
    await test -s "$scratch/liar-$1" || exit 1 # its own words say why
    liar=$(<"$scratch/liar-$1")
    liars+=("$liar")
}
mkfifo "$scratch/until"
exec {until}<>"$scratch/until"
commands=(stat 'stat --full' 'stat --json' 'top --once' 'heap --text' 'profile --seconds 1')

lie mappings
try timeout 300 "$launcher" stat "$liar"
[[ $status == 0 && $output == *'resident memory (RSS)'* ]] || fail "mappings of terabytes: $status $output $errors"

lie huge
for command in "${commands[@]}"; do
    refuse 125 'gives no report: its answer has 209715200 bytes, and hakmem writes at most [0-9]+' "$launcher" $command "$liar"
done
lie silent
for command in stat 'profile --seconds 1'; do
    refuse 125 'gives no report: it does not answer in [0-9.]+ s; ask as its user' timeout 300 "$launcher" $command "$liar"
done
lie many
for command in stat 'stat --json' 'heap --text'; do
    try timeout 300 "$launcher" $command "$liar"
    [[ $status == 12[56] && -z $output && $errors =~ $sentence ]] || fail "many: $command: $status $output $errors"
done
lie locked
try timeout 300 "$launcher" stat "$liar"
[[ $status == 12[56] && -z $output && $errors =~ $sentence ]] || fail "locked: $status $output $errors"

# All have one name, and two of those who have it are good.
good=()
for user in $victim 0; do
    setpriv --reuid $user --regid $user --clear-groups env LD_PRELOAD="$PWD/libhakmem.so" ./hakmem-nap 1000 &
    good+=($!)
    await grep -qs ' rw.*libhakmem' "/proc/$!/maps"
done
for ((i = 0; i < 10; i++)); do # a good one on a busy machine may need more than a scrape's time
    try timeout 300 "$launcher" metrics --once --name hakmem-nap
    [[ $output != *"hakmem_up{pid=\"${good[0]}\"} 1"* || $output != *"hakmem_up{pid=\"${good[1]}\"} 1"* ]] || break
done
for process in "${good[@]}"; do
    [[ $status == 0 && $output == *"hakmem_up{pid=\"$process\"} 1"* ]] || fail "metrics --once: no $process: $output $errors"
done
try timeout 300 "$launcher" metrics --once --name hakmem-nap --user $victim
[[ $status == 0 && $(grep -c '^hakmem_up' <<<"$output") == 1 && $output == *"hakmem_up{pid=\"${good[0]}\"} 1"* ]] ||
    fail "metrics --user: $status $output $errors"
refuse 2 "there is no user 'no-such'" "$launcher" metrics --once --name hakmem-nap --user no-such
refuse 2 'user goes with' "$launcher" metrics --once --user 0 $$
"$launcher" metrics --name hakmem-nap --port 0 --profile >"$scratch/served" &
server=$!
await test -s "$scratch/served"
python3 - "$(sed 's/.* //' "$scratch/served")" "${good[@]}" <<'END' || fail "metrics does not serve the good ones each time"
import socket, sys, urllib.request
from urllib.parse import urlsplit
url, *good = sys.argv[1:]
def missing():
    said = urllib.request.urlopen(url, timeout=60).read().decode()
    return [pid for pid in good if f'hakmem_up{{pid="{pid}"}} 1' not in said]
for scrape in range(10):
    if not missing():
        break
idle = [socket.create_connection((urlsplit(url).hostname, urlsplit(url).port)) for _ in range(300)]
for scrape in range(6):
    assert not missing(), scrape
profile = urllib.request.urlopen(url.replace("/metrics", f"/debug/pprof/heap?pid={good[0]}"), timeout=60)
assert profile.status == 200 and profile.read()
END
end "$server" "${good[@]}"
exec {until}<&-
kill "${liars[@]}"
wait 2>/dev/null
rm -f "/dev/shm/hakmem.$stranger."*
finish
