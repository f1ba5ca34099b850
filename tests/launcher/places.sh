#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ctest: slow
# `./hakmem run` from odd places: a symbolic link, a path with spaces, no HOME, a checkout that cannot be written,
# two first runs at once, a source that changed, a build directory that came along with a copy.
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
unset XDG_CACHE_HOME
export HOME=$scratch/home
mkdir -p "$HOME" "$scratch/elsewhere"

served='hakmem: [0-9.]+ serves process'
# checkout DIRECTORY: with a library that only says that it serves: what is asked is where and when it is built.
checkout() {
    copy_checkout "$1"
    build_quickly "$1"
    cp -R "$TEST_ROOT/trace" "$1"
    local file
    for file in "$1"/src/override/{dlopen.c,direct.c,early.c,*.cc}; do
        : >"$file"
    done
    cat >"$1/src/hakmem.c" <<'END'
#include "hakmem/hakmem.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
__attribute__((constructor)) static void announce(int argc, char **argv, char **environment) /* libc has none yet */
{
    for (; argc > 0 && argv != NULL && *environment != NULL; environment++) {
        if (strncmp(*environment, "HAKMEM_ANNOUNCE=", 16) == 0) {
            dprintf(2, "hakmem: %d.%d.%d serves process %d\n", HAK_VERSION_MAJOR, HAK_VERSION_MINOR,
                    HAK_VERSION_PATCH, getpid());
        }
    }
}
END
}
maps=(run --quiet -- grep -m1 -o '[^ ]*libhakmem.*' /proc/self/maps)

# Two first runs at once, in a fresh checkout with spaces and a colon in its path.
place="$scratch/a place: with spaces"
checkout "$place"
(cd "$scratch/elsewhere" && "$place/hakmem" run --quiet -- echo one >"$scratch/one" 2>&1) &
first=$!
expect 0 two "$served" "$place/hakmem" run -- echo two
wait "$first" && [[ $(<"$scratch/one") == one ]] || fail "two first runs at once: $(<"$scratch/one")"
try "$place/hakmem" "${maps[@]}"
[[ $output == "$HOME/.cache/hakmem/"* ]] || fail "a path with spaces is served from '$output'"

# Through symbolic links, from another directory.
ln -s "$place/hakmem" "$scratch/elsewhere/link"
ln -s link "$scratch/elsewhere/link2"
cd "$scratch/elsewhere" || exit 1
expect 0 three "$served" ./link2 run -- echo three

# No HOME at all.
expect 0 four "$served" env -u HOME TMPDIR="$scratch" "$place/hakmem" run -- echo four

# Each command builds what it needs, and no more.
plain=$scratch/plain
checkout "$plain"
expect 126 '' "process $$ does not run on hakmem" "$plain/hakmem" stat $$
[[ -x $plain/build/release/hakmem-attach && ! -e $plain/build/release/hakmem-run ]] || fail "stat builds: $(ls "$plain/build/release")"
exec {lock}>>"$plain/build/.lock" && flock "$lock" # somebody builds something else
expect 126 '' "process $$ does not run on hakmem" timeout 600 "$plain/hakmem" stat $$
exec {lock}>&-
try "$plain/hakmem" timeline /dev/null
[[ $status != 0 && -x $plain/build/release/hakmem-trace ]] || fail "timeline: $status $output $errors"
[[ -z $(find "$plain/build/release" -name 'libhakmem*') ]] || fail "stat and timeline build: $(ls "$plain/build/release")"

# A changed source is built, an unchanged one is not.
told="^hakmem: building hakmem in [^"$'\n'"]*/build/release; [^"$'\n'"]*"$'\n'"hakmem: built in [0-9]+ s"$'\n'"$served"
expect 0 five "$told" "$plain/hakmem" run -- echo five
before=$(stat -L -c %y "$plain/build/release/libhakmem.so")
expect 0 five "^$served" "$plain/hakmem" run -- echo five
[[ $(stat -L -c %y "$plain/build/release/libhakmem.so") == "$before" ]] || fail "built again without need"
sed -i 's/^#define HAK_VERSION_PATCH .*/#define HAK_VERSION_PATCH 99/' "$plain/include/hakmem/hakmem.h"
expect 0 six 'hakmem: [0-9]+\.[0-9]+\.99 serves' "$plain/hakmem" run -- echo six

# A copy that brings its build directory along is its own checkout.
cp -R "$plain" "$scratch/copied"
sed -i 's/^#define HAK_VERSION_PATCH .*/#define HAK_VERSION_PATCH 98/' "$scratch/copied/include/hakmem/hakmem.h"
expect 0 seven 'hakmem: [0-9]+\.[0-9]+\.98 serves' "$scratch/copied/hakmem" run -- echo seven
expect 0 six 'hakmem: [0-9]+\.[0-9]+\.99 serves' "$plain/hakmem" run -- echo six

# Somebody else's checkout, which was built without the recorder: the recorder is built in the cache. For root, who may
# write everywhere, the other user is nobody.
chmod -R a+rX "$scratch" && chmod -R a-w "$plain/build" && mkdir -m 777 "$scratch/other"
other=(env HOME="$scratch/other")
((EUID != 0)) || chown 65534 "$scratch/other"
((EUID != 0)) || other=(setpriv --reuid 65534 --regid 65534 --clear-groups "${other[@]}")
expect 0 ten 'calls of 1 thread' "${other[@]}" "$plain/hakmem" record -o "$scratch/other/trace" -- echo ten
chmod -R u+w "$plain/build"

# No build directory possible (a plain file is in its place, so that root cannot write either).
rm -rf "$plain/build"
touch "$plain/build"
expect 0 eight "$served" "$plain/hakmem" run -- echo eight
try "$plain/hakmem" "${maps[@]}"
[[ $output == "$HOME/.cache/hakmem/"* ]] || fail "a checkout that cannot be written is served from '$output'"

# Without Python: what `run` and `replay` need is built in the checkout, once, and again when a source has changed.
bare=$scratch/bare
checkout "$bare"
mkdir "$scratch/bin"
for file in /usr/local/bin/* /usr/bin/*; do
    [[ ${file##*/} == python* ]] || ln -sf "$file" "$scratch/bin/"
done
alone=(env PATH="$scratch/bin" "$bare/hakmem" --no-install)
expect 0 one "$told" "${alone[@]}" run -- echo one
before=$(stat -L -c %y "$bare/build/release/libhakmem.so")
expect 0 two "^$served" "${alone[@]}" run -- echo two
[[ $(stat -L -c %y "$bare/build/release/libhakmem.so") == "$before" ]] || fail "built again without need and without Python"
expect 0 three 'calls of 1 thread' "${alone[@]}" record -o "$scratch/trace" -- echo three
try "${alone[@]}" replay --alloc glibc --runs 1 "$scratch/trace"
[[ $status == 0 && $output == *glibc* ]] || fail "replay without Python: $status $errors"
expect 125 '' '^hakmem: missing for stat: python3; install them' "${alone[@]}" stat 1
echo '#error broken on purpose' >>"$bare/src/hakmem.c"
expect 125 '' 'broken on purpose.*the build failed; its output is above' "${alone[@]}" run -- echo four

# A build that fails says so, with the compiler's words, and does not run the program.
rm "$plain/build"
echo '#error broken on purpose' >>"$plain/src/hakmem.c"
expect 125 '' 'broken on purpose' "$plain/hakmem" run -- echo nine
finish
