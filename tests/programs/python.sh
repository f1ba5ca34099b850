#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Python: a program with threads, processes and C extensions, with and without python's own allocator for small objects.
. "$(dirname "$0")/lib.sh"
need python3
# The interpreter itself, not a script that chooses one.
python=$(python3 -c 'import sys; print(sys.executable)') || skip "python3 does not run"
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
