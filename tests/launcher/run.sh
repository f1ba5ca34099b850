#!/usr/bin/env bash
# `./hakmem run`: the program keeps its status, signals, input and process id; refusals are one clear sentence.
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"

served='^hakmem: [0-9.]+ serves process [0-9]+ \(profile default\) from [^ ]*libhakmem[^ ]*\.so$'
sentence='^hakmem: [^'$'\n'']+$'

# The process is the program.
expect 0 hello "$served" "$launcher" run -- /bin/echo hello
expect 0 hello "$served" "$launcher" run /bin/echo hello
expect 0 '' '^$' "$launcher" run --quiet true
expect 7 '' "$served" "$launcher" run -- bash -c 'exit 7'
expect 143 '' '' bash -c '"$1" run --quiet -- bash -c "kill -TERM \$\$"; exit $?' _ "$launcher"
expect 0 'from outside' "$served" "$launcher" run -- cat <<<'from outside'
expect 0 same "$served" bash -c 'exec "$1" run -- bash -c "[[ \$\$ == $$ ]] && echo same"' _ "$launcher"
try "$launcher" run -- bash -c 'cat /proc/self/maps'
[[ $output == *libhakmem* ]] || fail "children are not served"
LD_PRELOAD=/nonexistent/other.so try "$launcher" run --quiet -- bash -c 'echo "$LD_PRELOAD"'
[[ $output == *libhakmem*.so:/nonexistent/other.so ]] || fail "an existing LD_PRELOAD became '$output'"

# Options become variables of the library.
expect 0 'small 5' '' "$launcher" run --quiet --profile small --set purge_delay=5 -- \
    bash -c 'echo "$HAKMEM_PROFILE $HAKMEM_PURGE_DELAY"'
expect 0 '' '.' "$launcher" run --quiet --stats -- true
try "$launcher" run --quiet --stats=json -- bash -c 'bash -c :; true'
((status == 0)) && python3 -m json.tool <<<"$errors" >"$scratch/json" || fail "--stats=json is not one JSON text"
(cd "$scratch" && "$launcher" run --quiet --stats-file report -- bash -c 'cd /') || fail "--stats-file"
[[ -s $scratch/report ]] || fail "--stats-file wrote nothing to a relative path"

# Refusals.
expect 2 '' "$sentence" "$launcher" run
expect 2 '' "$sentence" "$launcher" run --no-such-option true
expect 2 '' "$sentence" "$launcher" run --set purge_delay true
expect 2 '' "$sentence" "$launcher" run --set =5 true
expect 2 '' "$sentence" "$launcher" run --set
expect 2 '' "$sentence" "$launcher" run --profile huge true
expect 2 '' "$sentence" "$launcher" test --soak 0
expect 2 '' "$sentence" "$launcher" test --soak 1.5
expect 2 '' "$sentence" "$launcher" test --soak
expect 2 '' "$sentence" "$launcher" test --fuzz 0
expect 2 '' "$sentence" "$launcher" test --fuzz
expect 2 '' "$sentence" "$launcher" test --quick --fuzz 1
expect 2 '' "$sentence" "$launcher" run --stats=xml true
expect 2 '' "$sentence" "$launcher" no-such-command
expect 127 '' "$sentence" "$launcher" run no-such-program
expect 127 '' "$sentence" "$launcher" run ./no-such-program
expect 126 '' "$sentence" "$launcher" run "$TEST_ROOT/CMakeLists.txt"
touch "$scratch/plain"
expect 126 '' "$sentence" "$launcher" run "$scratch/plain"
expect 126 '' "$sentence" "$launcher" run "$scratch"

# Programs the loader would not load hakmem into.
echo 'int main(void) { return 0; }' >"$scratch/one.c"
for link in -static -static-pie; do
    if gcc "$link" "$scratch/one.c" -o "$scratch/static" 2>/dev/null; then
        expect 126 '' 'statically linked' "$launcher" run "$scratch/static"
        printf '#!%s\n' "$scratch/static" >"$scratch/script-of-static" && chmod +x "$scratch/script-of-static"
        expect 126 '' 'statically linked' "$launcher" run "$scratch/script-of-static"
    fi
done
if ((EUID == 0)) && cp /bin/true "$scratch/setuid" && chown 65534 "$scratch/setuid" && chmod u+s "$scratch/setuid"; then
    expect 126 '' "another user's rights" "$launcher" run "$scratch/setuid"
fi
printf '\x7fELF\x01\x01\x01' >"$scratch/elf32" && head -c 100 /dev/zero >>"$scratch/elf32" && chmod +x "$scratch/elf32"
expect 126 '' '64-bit' "$launcher" run "$scratch/elf32"

# Scripts: with an interpreter, through env, without a first line, with a missing interpreter.
script() {
    printf '%s\n' "$@" >"$scratch/script" && chmod +x "$scratch/script"
}
script '#!/bin/bash' 'echo "script $1"'
expect 0 'script one' "$served" "$launcher" run "$scratch/script" one
script '#!/usr/bin/env bash' 'echo "env $1"'
expect 0 'env one' '' "$launcher" run "$scratch/script" one
script 'echo "plain $1"'
expect 0 'plain one' "$served" "$launcher" run "$scratch/script" one
script '#!/no/such/interpreter'
expect 126 '' '/no/such/interpreter' "$launcher" run "$scratch/script"
script '#!/usr/bin/env no-such-interpreter'
expect 127 '' 'no-such-interpreter' "$launcher" run "$scratch/script"

expect 0 "$("$launcher" version)" '^$' "$launcher" --version
expect 0 "$("$launcher" help)" '^$' "$launcher"
finish
