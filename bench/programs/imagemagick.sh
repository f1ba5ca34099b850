#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ImageMagick draws, scales, blurs, turns and compresses pictures of some megapixels.
#
# Imitates: a web site that prepares uploaded pictures. Pixels are buffers of many MB that live for
# one step; lines, kernels and the encoders' tables are smaller ones. Two threads work on each step.
#
# Does not show: files larger than memory, thousands of small pictures.
#
# packages: imagemagick
here=${0%"${0##*/}"}
. "${here:-./}common.sh"
needs=(convert)

# A distribution may give the program a longer name, and `convert` may be a script around it.
make_inputs() {
    local name
    for name in convert-im6.q16 convert-im7.q16 magick convert; do
        command -v "$name" >program && break
    done
}

run_program() {
    local program
    read -r program <"$inputs/program"
    unset MAGICK_CONFIGURE_PATH
    export MAGICK_THREAD_LIMIT=2 MAGICK_MEMORY_LIMIT=1GiB MAGICK_MAP_LIMIT=1GiB HOME=/nonexistent
    exec "$program" -seed 42 -size 1600x1200 plasma:red-blue \
        '(' -clone 0 -resize 50% -sharpen 0x1 -quality 85 -write jpg:/dev/null ')' \
        '(' -clone 0 -blur 0x3 -rotate 7 -resize 800x600 -write png:/dev/null ')' \
        '(' -clone 0 -colorspace Gray -edge 2 -thumbnail 200x200 ')' \
        -delete 0 -append -depth 8 png:/dev/null >/dev/null </dev/null
}

main "$@"
