#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ghostscript turns a PostScript file of text, curves and dictionaries into a PDF file.
#
# Imitates: a print server or a converter of documents. The interpreter's objects live in chunks of
# some ten KiB that it gets from malloc and collects itself; fonts, paths, the resources and the
# streams of the PDF are separate blocks, some of them buffers of many KiB.
#
# Does not show: pictures (decoders, band buffers of megabytes), reading of PDF.
#
# packages: ghostscript
here=${0%"${0##*/}"}
. "${here:-./}common.sh"
needs=(gs)

make_inputs() {
    cat >work.ps <<'END'
%!PS-Adobe-3.0
/state 42 def
/number { /state state 16807 mul 2147483647 mod def state exch mod } bind def
/fonts [/Times-Roman /Helvetica-Bold /Courier /Times-Italic /Symbol] def
/line {
    fonts 5 number get 6 10 number add selectfont
    550 number 780 number moveto
    20 20 number add string dup 0 1 2 index length 1 sub { 97 26 number add put dup } for pop show
} bind def
/curve {
    newpath 600 number 800 number moveto
    12 { 6 { 600 number } repeat curveto } repeat
    256 number 255 div 256 number 255 div 256 number 255 div setrgbcolor
    closepath 2 number 0 eq { fill } { stroke } ifelse
} bind def
/table {
    /entries 500 dict def
    500 { entries 1000 number 20 string cvs cvn [ 8 { 100 number } repeat ] put } repeat
    /sum 0 def
    entries { exch pop { sum add /sum exch def } forall } forall
} bind def
50 {
    150 { line } repeat
    60 { curve } repeat
    6 { table } repeat
    showpage
} repeat
END
}

run_program() {
    unset GS_OPTIONS GS_LIB GS_DEVICE
    exec gs -q -dSAFER -dBATCH -dNOPAUSE -sDEVICE=pdfwrite -sOutputFile=/dev/null \
        "$inputs/work.ps" >/dev/null </dev/null
}

main "$@"
