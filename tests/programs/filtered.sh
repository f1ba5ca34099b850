#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Real programs under a filter of system calls (seccomp) that ends them at each call that they do not make with the C
# library's malloc. What they call with that one is found by strace, and they run again on hakmem, ordinary and secure:
# python and some of the benchmark programs. sshd sets a filter by itself, for each connection.
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

# sshd closes each connection's process in before anybody has proved who he is.
start_sshd() {
    start "$work/log" "$@" "$(command -v sshd)" -D -e -f "$work/sshd_config"
    wait_until 120 log_in true || fail "sshd does not start: $(tail -3 "$work/log")"
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
    start_sshd
    use_sshd >"$work/reference" 2>&1
    for form in "${forms[@]}"; do
        start_sshd "$HAKMEM" run --quiet ${form:+"$form"} --
        prove_process "$server_pid"
        use_sshd >"$work/actual" 2>&1
        alike "sshd $form" "$work/reference" "$work/actual"
    done
    say "sshd: alike"
else
    say "left out: sshd is not installed"
fi
