#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `./hakmem run --heap-map` and `./hakmem heap`: maps of real programs, refusals, and the page in a browser.
#
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
cd -- "$scratch" || exit 1

# A relative name is the caller's, wherever the program goes. Children write no map.
expect 0 '' '^$' "$launcher" run --quiet --heap-map map.json -- bash -c 'cd /; bash -c :; true'
try "$launcher" heap map.json
((status == 0)) && [[ $output == 'bash, process '*'could go back now'*'The picture is in map.html' ]] || fail "heap: $output $errors"
[[ $(<map.html) == '<!doctype html>'* ]] || fail "no page"

# As text, without a page: what holds most, or what changed most.
cp map.json text.json
try "$launcher" heap text.json --text
[[ $status == 0 && -z $errors && $output == 'bash, process '*'could go back now'*$'\n'size\ classes$'\n'*'  objects of'$'\n'* && ! -e text.html ]] ||
    fail "heap --text: $status: $output $errors"
refuse 2 'writes no page' "$launcher" heap map.json --text -o page.html

# Each process of a tree has a map of its own.
expect 0 '' '^$' "$launcher" run --quiet --all-processes --heap-map tree.%p.json -- bash -c '/bin/true; /bin/true; true'
count=0
for map in tree.*.json; do
    count=$((count + 1))
    expect_page=$("$launcher" heap "$map" -o page.html) && [[ $expect_page == *"page.html" ]] || fail "$map"
done
((count == 3)) || fail "$count maps of three processes"

# What cannot be written is said before the program runs, or at its end.
refuse 2 'needs a value' "$launcher" run --heap-map
refuse 2 'name of a file' "$launcher" run --heap-map= echo hello
refuse 2 'no such directory' "$launcher" run --heap-map none/map echo hello
refuse 2 'is a directory' "$launcher" run --heap-map . echo hello
mkdir gone
expect 0 '' "hakmem: cannot write the heap map to $scratch/gone/map: there is no such directory" \
    "$launcher" run --quiet --heap-map gone/map -- bash -c 'rm -r gone; true'

# The command line of heap, and a file that is no map; test_heap.py asks for all others.
refuse 2 "'-1' is neither a file nor the id" "$launcher" heap -1
"$launcher" run --quiet --stats=json --stats-file report.json true
refuse 126 'is a report of hakmem' "$launcher" heap report.json

# The reader, the page and its script, on a map with much in it.
cat >work.py <<'END'
words = [f"word{i * 7919 % 100003}" * (1 + i % 50) for i in range(20000)]
large = [bytearray(100_000 + i * 300_000) for i in range(12)]
del words[::3], large[::2]
import ctypes
sink = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t)
with open("python.json", "wb") as file:
    ctypes.CDLL(None).hak_heap_map(sink(lambda argument, text, size: file.write(text[:size]) and None), None)
END
expect 0 '' '^$' "$launcher" run --quiet --set sample_bytes=16384 python3 work.py
grep -q '"slices": "[^"]*h0z' python.json || fail "the map has no slabs of sampled objects"
try "$launcher" heap map.json --compare python.json --text
[[ $status == 0 && -z $errors && $output == *'what changed in the resident'*' +'*'  in use'*'size classes'*'change in use'*'call sites'* ]] ||
    fail "heap --compare --text: $status: $output $errors"
HEAP_MAP=$scratch/python.json python_tests heap
finish
