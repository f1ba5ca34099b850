#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `./hakmem stat`: what the memory is that is not hakmem's, by kind of mapping, in rows and in JSON, which add up.
# ctest: own-shm
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
cd -- "$scratch" || exit 1
library=$("$launcher" build)

compile maps.c maps -O1 -D_GNU_SOURCE <<'END'
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#define MIB (1 << 20)
static char *map(int flags, int file, int size)
{
    return mmap(NULL, size, PROT_READ | (file < 0 ? PROT_WRITE : 0), flags, file, 0);
}
int main(int argc, char **argv)
{
    volatile char sum = 0;
    memset(map(MAP_PRIVATE | MAP_ANONYMOUS, -1, 40 * MIB), 1, 40 * MIB);
    memset(map(MAP_SHARED | MAP_ANONYMOUS, -1, 20 * MIB), 1, 20 * MIB);
    const char *data = map(MAP_PRIVATE, open(argv[argc - 1], O_RDONLY), 10 * MIB);
    for (int i = 0; i < 10 * MIB; i += 4096) {
        sum += data[i];
    }
    (void)!write(1, "ready\n", 6);
    pause();
}
END
head -c 10485760 /dev/zero >data.bin
mkfifo ready
HAKMEM_OBSERVE=1 LD_PRELOAD=$library ./maps data.bin >ready &
process=$!
read -r _ <ready
for option in "" --full; do
    try "$launcher" stat $option "$process"
    [[ $status == 0 ]] || fail "status $status ($errors)"
    python3 - "$output" <<'END_PY' || fail "the rows are wrong: $output"
import re
import sys
lines = sys.argv[1].split("\n")
at = next(number for number, line in enumerate(lines) if line.startswith("  not hakmem's"))
figure = re.compile(r" +(\d+\.\d\d) MiB +\d+\.\d %")
whole = round(100 * float(figure.search(lines[at])[1]))
rows = {}
while (line := lines[at := at + 1]).startswith("    "):
    found = figure.search(line)
    rows[line[:found.start()].strip()] = round(100 * float(found[1]))
assert sum(rows.values()) == whole, (rows, whole)
assert rows["other files"] == 1000 and 2000 <= rows["shared memory"] < 2050 and 4000 <= rows["anonymous"] < 4200, rows
assert rows["program and libraries"] > 0, rows
assert "data.bin 10.00" in sys.argv[1]
END_PY
done
try "$launcher" stat --json "$process"
python3 - "$output" <<'END_PY' || fail "the fields are wrong: $status $errors $output"
import json
import sys
report = json.loads(sys.argv[1])
mapped = report["mapped"]
assert sum(mapped.values()) == report["summary"]["not_hakmem_bytes"], mapped
assert mapped["other_files_bytes"] == 10 << 20 and 40 << 20 <= mapped["anonymous_bytes"] < 42 << 20, mapped
END_PY
kill "$process"
wait "$process" 2>/dev/null
finish
