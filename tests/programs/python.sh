#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Python: a program with threads, processes and C extensions, then parts of python's own test suite:
# what passes without hakmem passes with it. The program runs with and without python's own allocator
# for small objects, the suite without, so that everything comes to hakmem.
# ctest: timeout=2400
. "$(dirname "$0")/lib.sh"
need python3
# The interpreter itself, not a script that chooses one.
python=$(python3 -c 'import sys; print(sys.executable)') || skip "python3 does not run"
suite=$(cd "$(dirname "$0")" && pwd)/python_suite.py
export PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=1

cat >"$work/work.py" <<'END'
import concurrent.futures, ctypes, functools, hashlib, json, multiprocessing, os, random, re
import subprocess, sys, threading, zlib

def records(seed, count):
    rng = random.Random(seed)
    return [{"id": i, "name": "".join(rng.choices("abcdef ", k=rng.randrange(60))),
             "tags": rng.sample(range(1000), rng.randrange(9)), "part": {"x": rng.random()}}
            for i in range(count)]

def digest(seed, count=800):
    text = json.dumps(records(seed, count))
    back = json.loads(text)
    words = sorted(re.findall(r"[a-f]+", text), key=lambda word: (len(word), word))
    packed = zlib.compress(text.encode())
    assert zlib.decompress(packed).decode() == text
    return hashlib.sha256((text + repr(back[-1]) + "".join(words)).encode()).hexdigest()

def grow():
    data = bytearray()
    for i in range(20000):
        data += b"%d," % i
    buffer = ctypes.create_string_buffer(bytes(data), 1000000)
    return hashlib.md5(buffer.raw).hexdigest()

def main():
    print([digest(seed)[:12] for seed in range(3)])
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        print([result[:12] for result in pool.map(digest, range(8))])
    with multiprocessing.get_context("fork").Pool(4) as pool:
        print([result[:12] for result in pool.map(functools.partial(digest, count=200), range(20))])
    print(grow())
    children = [subprocess.run([sys.executable, "-c", f"print(sum(range({n})))"],
                               capture_output=True, text=True).stdout for n in range(10)]
    print(children)
    lists = []
    def fill():
        lists.append([str(i) * 10 for i in range(10000)])
    threads = [threading.Thread(target=fill) for _ in range(16)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(len(lists), sum(len(text) for text in lists[-1]))
    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            os._exit(len(digest(7, 200)) % 256)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 64

if __name__ == "__main__":
    main()
END

prove "$python" -c pass
same 1 "$python" "$work/work.py"
export PYTHONMALLOC=malloc
same_again 1 "$python" "$work/work.py"
unset PYTHONMALLOC

parts=(test_json test_ctypes test_fork1 test_threading:-imeout,-wait
    test_subprocess:-NoPoll,-timeout,-_dead,-swap,-leak,-close_fds,-pass_fds
    multiprocessing_fork:WithProcessesTestProcess
    multiprocessing_fork:WithProcessesTestQueue,WithProcessesTestLock,WithProcessesTestHeap
    multiprocessing_fork:WithProcessesTestSharedMemory,WithProcessesTestConnection
    multiprocessing_fork:WithProcessesTestPool)
[[ $long == 1 ]] && parts=(test_json test_ctypes test_fork1 test_threading test_subprocess
    multiprocessing_fork:WithProcesses multiprocessing_fork:WithThreads)
"$python" -c 'import test.test_json' 2>/dev/null || {
    say "python's test package is not installed: its tests are left out"
    exit 0
}

# run_part DIRECTORY PART COMMAND...: a part that does not come to its end, so that it has no results, runs once more.
run_part() {
    local to=$1 part=$2 try
    shift 2
    mkdir "$to"
    for try in 1 2; do
        (cd "$to" && exec_or_call "$@" "$python" "$suite" results "$part") >"$to/log" 2>&1 </dev/null
        [[ -e $to/results ]] && return
        say "$part: no results of run $try"
        tail -30 "$to/log"
    done
    return 1
}

# passes NAME COMMAND...: a test passes, alone, in one of two tries: some fail by chance on a busy machine.
passes() {
    local name=$1 try
    shift
    for try in 1 2; do
        (cd "$work" && exec_or_call "$@" "$python" "$suite" alone "$name") >"$work/alone.log" 2>&1
        grep -qxF "$name passed" "$work/alone" && return
    done
    tail -30 "$work/alone.log"
    return 1
}

# All parts on hakmem, three at a time (they sleep a lot). What fails there must fail without it as well.
export PYTHONMALLOC=malloc
for i in "${!parts[@]}"; do
    run_part "$work/part$i" "${parts[i]}" on_hakmem &
    (((i + 1) % 3)) || wait
done
wait
for i in "${!parts[@]}"; do
    [[ -s $work/part$i/results ]] || ! run_part "$work/part$i.again" "${parts[i]}" env || [[ ! -s $work/part$i.again/results ]] ||
        fail "comes to its end without hakmem only: ${parts[i]}"
done
cat "$work"/part?/results >"$work/results"
passed=$(grep -c ' passed$' "$work/results")
((passed > 0)) || fail "nothing of python's test suite passes"
while IFS= read -r line; do
    name=${line% failed}
    if [[ $name == *' '* ]]; then # what prepares a class or a module
        rm -rf "$work/module" && run_part "$work/module" "${name%%:*}" env
        grep -qxF "$line" "$work/module/results" || fail "passes without hakmem only: $name"
    elif ! passes "$name" on_hakmem && passes "$name" env; then
        fail "passes without hakmem only: $name"
    fi
done < <(grep ' failed$' "$work/results")
say "$passed tests of python's own pass on hakmem"
