#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# chromium without a window: it has a malloc of its own, child processes from a zygote, and many threads. A page that
# builds, sorts, draws and throws away is loaded, and what it has become is the same. Not with HAKMEM_SCAVENGER=1: its
# helpers insist on being single-threaded at their start. Its sandbox cannot start as root, and is left out then.
. "$(dirname "$0")/lib.sh"
program=/usr/lib/chromium/chromium
[[ -x $program ]] || skip "chromium is not installed"

cat >"$work/page.html" <<'END'
<!DOCTYPE html>
<title>before</title>
<canvas id="canvas" width="300" height="200"></canvas>
<ul id="list"></ul>
<script>
let state = 42;
const next = n => (state = (state * 1103515245 + 12345) % 2147483648) % n;
let words = [];
for (let round = 0; round < 20; round++) {
  words = [];
  for (let i = 0; i < 20000; i++) words.push('word' + next(1e6).toString(36).repeat(1 + next(9)));
  words.sort();
}
const list = document.getElementById('list');
for (let i = 0; i < 3000; i++) {
  const item = document.createElement('li');
  item.textContent = words[next(words.length)];
  list.appendChild(item);
  if (i % 3 === 0) list.removeChild(list.firstChild);
}
const context = document.getElementById('canvas').getContext('2d');
for (let i = 0; i < 500; i++) {
  context.fillStyle = `rgb(${next(256)}, ${next(256)}, ${next(256)})`;
  context.fillRect(next(300), next(200), 20, 20);
}
const pixels = context.getImageData(0, 0, 300, 200).data;
const buffers = [...Array(200).keys()].map(i => new Uint8Array(1000 * next(1000)).fill(i));
document.title = [pixels.reduce((a, b) => (a * 31 + b) % 1000000007, 7),
                  buffers.reduce((a, b) => a + b.length, 0)].join(' ');
</script>
END

# A browser that hangs or crashes at its start, which happens without hakmem too, is started again: once in all runs.
starts_left=1
load() {
    local sandbox=()
    ((EUID == 0)) && sandbox=(--no-sandbox)
    # What it says on standard error has process ids and times in it.
    timeout -k 10 200 "$@" "$program" --headless "${sandbox[@]}" --disable-gpu --disable-dev-shm-usage --no-first-run \
        --user-data-dir="$work/place/profile" --timeout=180000 --dump-dom "file://$work/page.html" 2>"$work/said"
}
load_plain() { load; }
load_on_hakmem() { load "${on_hakmem[@]}"; }
run() {
    run_in_place "$@" && return
    local status=$?
    ((starts_left-- > 0)) || return $status
    say "$2: exit status $status, started again: $(tail -1 "$work/said")"
    run_in_place "$@"
}

run reference load_plain || skip "chromium cannot load a page here: $(tail -1 "$work/said")"
grep -q '<title>[0-9]* [0-9]*</title>' "$work/reference" || skip "chromium's page has no title: $(tail -1 "$work/said")"
for run in 1 2; do
    run actual load_on_hakmem || fail "run $run: exit status $?: $(tail -3 "$work/said")"
    alike "the page of run $run" "$work/reference" "$work/actual"
done
say "2 loads alike, $(wc -c <"$work/actual") bytes"
