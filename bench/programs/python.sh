#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# python3 with a program full of objects: records, JSON and back, regular expressions, sorting,
# trees, a table that grows and shrinks, long strings.
#
# Imitates: a script that works on data in memory. Python's own allocator takes arenas of 1 MiB for
# objects up to 512 bytes, so the allocator under test sees large lists, tables and strings only:
# that is what a user of python gets from it. With the word `malloc` after the directory every
# object comes from the allocator (PYTHONMALLOC=malloc), as in builds without that layer.
#
# Does not show: threads, and extension modules that bring allocators of their own.
#
# packages: python3
here=${0%"${0##*/}"}
. "${here:-./}common.sh"
needs=(python3)

make_inputs() {
    # The interpreter itself, not a script or an environment that leads to one.
    python3 -c 'import os, sys; print(os.path.realpath(sys.executable))' >interpreter || return
    cat >work.py <<'END'
import json, random, re, sys, zlib

def records(rng, count):
    return [{"id": i, "name": "".join(rng.choices("abcdef ", k=rng.randrange(60))),
             "tags": rng.sample(range(1000), rng.randrange(9)), "part": {"x": rng.random()}}
            for i in range(count)]

class Node:
    def __init__(self, depth):
        self.children = [Node(depth - 1) for _ in range(3)] if depth else []
        self.label = "node %d" % depth
    def count(self):
        return 1 + sum(child.count() for child in self.children)

def table(rng, count):
    entries = {}
    for i in range(count):
        entries["key %d" % rng.randrange(count // 2)] = [i, str(i)]
        if i % 3 == 0:
            entries.pop("key %d" % rng.randrange(count // 2), None)
    return len(entries)

def text(count):
    parts = bytearray()
    for i in range(count):
        parts += b"%d," % i
    return zlib.crc32(b";".join(bytes(parts).split(b",")))

def main():
    rng = random.Random(42)
    for _ in range(2):
        data = records(rng, 12000)
        written = json.dumps(data)
        if json.loads(written) != data:
            sys.exit("what was read is not what was written")
        words = sorted(re.findall(r"[a-f]+", written), key=lambda word: (len(word), word))
        print(len(words), words[-1], Node(8).count(), table(rng, 100000), text(200000))

main()
END
}

run_program() {
    local python
    read -r python <"$inputs/interpreter"
    export PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1
    unset PYTHONMALLOC PYTHONPATH PYTHONHOME
    case ${1:-} in
    '') ;;
    malloc) export PYTHONMALLOC=malloc ;;
    *) stop 2 "the word after the directory can only be 'malloc', not '$1'" ;;
    esac
    exec "$python" -S -s "$inputs/work.py" >/dev/null </dev/null
}

main "$@"
