#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# povray renders a scene of a few thousand objects with two threads.
#
# Imitates: rendering. The parser makes each object and texture of the scene by malloc and new;
# while rendering, threads take and give back small vectors and blocks of pixels.
#
# Does not show: pictures and meshes from files.
#
# packages: povray
here=${0%"${0##*/}"}
. "${here:-./}common.sh"
needs=(povray)

make_inputs() {
    cat >scene.pov <<'EOF'
#version 3.7;
global_settings { assumed_gamma 1.0 }
#declare numbers = seed(42);
camera { location <0, 9, -22> look_at 0 }
light_source { <20, 40, -30> rgb 1 }
light_source { <-30, 20, -10> rgb <0.3, 0.3, 0.5> }
plane { y, -3 pigment { checker rgb 0.2, rgb 0.9 } finish { reflection 0.2 } }
#for (i, 1, 6000)
    #declare place = <rand(numbers) - 0.5, rand(numbers) - 0.4, rand(numbers) - 0.5> * 20;
    union {
        sphere { place, 0.25 }
        box { place - 0.2, place + 0.2 rotate 0 }
        cylinder { place, place + <0, 0.6, 0>, 0.1 }
        texture {
            pigment { rgb <rand(numbers), rand(numbers), rand(numbers)> }
            normal { bumps 0.3 scale 0.2 }
            finish { phong 0.7 reflection 0.1 }
        }
    }
#end
EOF
}

run_program() {
    export HOME=$inputs
    exec povray "+I$inputs/scene.pov" -O/dev/null +FN +W200 +H150 +A0.3 -D +WT2 -GA \
        </dev/null >/dev/null 2>&1
}

main "$@"
