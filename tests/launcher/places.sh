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
maps=(run --quiet -- grep -m1 -o '[^ ]*libhakmem.*' /proc/self/maps)

# Two first runs at once, in a fresh checkout with spaces and a colon in its path.
place="$scratch/a place: with spaces"
copy_checkout "$place"
build_quickly "$place"
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

# A changed source is built, an unchanged one is not.
plain=$scratch/plain
copy_checkout "$plain"
build_quickly "$plain"
expect 0 five "$served" "$plain/hakmem" run -- echo five
before=$(stat -L -c %y "$plain/build/release/libhakmem.so")
expect 0 five "$served" "$plain/hakmem" run -- echo five
[[ $(stat -L -c %y "$plain/build/release/libhakmem.so") == "$before" ]] || fail "built again without need"
sed -i 's/^#define HAKMEM_VERSION_PATCH .*/#define HAKMEM_VERSION_PATCH 99/' "$plain/include/hakmem/hakmem.h"
expect 0 six 'hakmem: [0-9]+\.[0-9]+\.99 serves' "$plain/hakmem" run -- echo six

# A copy that brings its build directory along is its own checkout.
cp -R "$plain" "$scratch/copied"
sed -i 's/^#define HAKMEM_VERSION_PATCH .*/#define HAKMEM_VERSION_PATCH 98/' "$scratch/copied/include/hakmem/hakmem.h"
expect 0 seven 'hakmem: [0-9]+\.[0-9]+\.98 serves' "$scratch/copied/hakmem" run -- echo seven
expect 0 six 'hakmem: [0-9]+\.[0-9]+\.99 serves' "$plain/hakmem" run -- echo six

# Somebody else's checkout, which was built without the recorder: the recorder is built in the cache. For root, who may
# write everywhere, the other user is nobody.
cp -R "$TEST_ROOT/trace" "$plain"
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

# A build that fails says so, with the compiler's words, and does not run the program.
rm "$plain/build"
echo '#error broken on purpose' >>"$plain/src/hakmem.c"
expect 125 '' 'broken on purpose' "$plain/hakmem" run -- echo nine
finish
