#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ffmpeg makes a test picture that moves and a tone, and encodes both (MPEG-4 and AAC) with two
# threads.
#
# Imitates: a service that transcodes uploads. Frames and packets are reference-counted buffers of
# 1 kB to some hundred kB, mostly from pools that fill by aligned allocation; the codecs' tables are
# megabytes that are allocated once.
#
# Does not show: reading of files, hardware codecs.
#
# packages: ffmpeg
here=${0%"${0##*/}"}
. "${here:-./}common.sh"
needs=(ffmpeg)

make_inputs() {
    :
}

run_program() {
    exec ffmpeg -nostdin -loglevel error -threads 2 -filter_threads 2 \
        -f lavfi -i testsrc2=size=960x540:rate=25:duration=20 -f lavfi -i sine=duration=20 \
        -vf scale=640:360,hflip -c:v mpeg4 -q:v 4 -threads 2 -c:a aac -f mp4 \
        -movflags frag_keyframe -y /dev/null >/dev/null </dev/null
}

main "$@"
