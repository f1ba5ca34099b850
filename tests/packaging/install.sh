#!/usr/bin/env bash
# The installed files serve a program by pkg-config, by CMake and by LD_PRELOAD, also after they were moved.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cmake --install "$TEST_BUILD" --prefix "$scratch/first" >/dev/null
mv "$scratch/first" "$scratch/moved"
prefix=$scratch/moved
libraries=$(dirname "$(find "$prefix" -name libhakmem.so)")

cat >"$scratch/program.c" <<'END'
#include <hakmem/hakmem.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    char *block = malloc(100);
    printf("%s %d\n", hak_version(), hak_owns(block));
    free(block);
    return 0;
}
END

check() {
    local said
    said=$("$@")
    [[ $said == *' 1' ]] || { echo "FAILED: '$said': $*" >&2; exit 1; }
}

export PKG_CONFIG_PATH=$libraries/pkgconfig
gcc -fno-builtin-malloc "$scratch/program.c" -o "$scratch/by-pkg-config" $(pkg-config --cflags --libs hakmem)
LD_LIBRARY_PATH=$libraries check "$scratch/by-pkg-config"

mkdir "$scratch/project"
cp "$scratch/program.c" "$scratch/project/"
cat >"$scratch/project/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.22)
project(user C)
find_package(hakmem REQUIRED)
add_executable(shared program.c)
target_link_libraries(shared hakmem::hakmem)
add_executable(static program.c)
target_link_libraries(static hakmem::static)
END
cmake -G Ninja -S "$scratch/project" -B "$scratch/project/build" -DCMAKE_PREFIX_PATH="$prefix" >/dev/null
cmake --build "$scratch/project/build" >/dev/null
check "$scratch/project/build/shared"
check "$scratch/project/build/static"
if readelf -d "$scratch/project/build/static" | grep -E 'NEEDED.*(libstdc|libhakmem)'; then
    echo "FAILED: the static program needs one of these" >&2
    exit 1
fi
