#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A program that needs a version of hakmem's functions which the library lacks is refused at its start (record 0092); one
# that was linked with a library without versions is served.
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
cd "$scratch"
program .

# link_with SCRIPT PROGRAM: with a library that has hakmem's functions in the versions of the script.
link_with() {
    printf 'int hak_owns(const void *p) { return p != 0; }\nconst char *hak_version(void) { return ""; }\n' >other.c
    gcc -shared -fPIC other.c "${@:2:$#-2}" -Wl,-soname,libhakmem.so.1 -o libhakmem.so.1
    gcc -I"$TEST_ROOT/include" program.c libhakmem.so.1 -o "${!#}"
}

printf 'HAKMEM_9.9 { global: hak_*; };\n' >newer.map
link_with newer -Wl,--version-script=newer.map newer
said=$(LD_LIBRARY_PATH=$TEST_BUILD LC_ALL=C ./newer 2>&1) && fail "an older library serves the program: $said"
[[ $said == *"version \`HAKMEM_9.9' not found"* ]] || fail "the loader says: $said"
link_with older older
expect "$served" "$(LD_LIBRARY_PATH=$TEST_BUILD ./older)"
gcc -I"$TEST_ROOT/include" program.c -L"$TEST_BUILD" -lhakmem -o current
readelf -V -W current | grep -q HAKMEM_1.0 || fail "a program does not say which version it needs"
expect "$served" "$(LD_LIBRARY_PATH=$TEST_BUILD ./current)"
echo "the loader compares versions"
