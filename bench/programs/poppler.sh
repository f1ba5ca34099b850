#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# pdftocairo draws the pages of a PDF file that ghostscript made of generated text and curves.
#
# Imitates: viewers and thumbnailers. Objects, dictionaries and streams of the file are C++ objects;
# fonts, paths and the bands of a page are malloc calls of all sizes to megabytes.
#
# Does not show: scanned pages.
#
# packages: poppler-utils ghostscript
here=${0%"${0##*/}"}
. "${here:-./}common.sh"
needs=(pdftocairo gs)

make_inputs() {
    cat >work.ps <<'EOF'
%!PS-Adobe-3.0
/state 42 def
/number { /state state 16807 mul 2147483647 mod def state exch mod } bind def
/fonts [/Times-Roman /Helvetica-Bold /Courier /Times-Italic] def
60 {
    200 {
        fonts 4 number get 6 10 number add selectfont
        550 number 780 number moveto (text of the page and more of it) show
    } repeat
    80 {
        newpath 600 number 800 number moveto
        10 { 6 { 600 number } repeat curveto } repeat
        256 number 255 div 256 number 255 div 256 number 255 div setrgbcolor stroke
    } repeat
    showpage
} repeat
EOF
    gs -q -dSAFER -dBATCH -dNOPAUSE -sDEVICE=pdfwrite -sOutputFile=work.pdf work.ps
}

run_program() {
    exec pdftocairo -svg "$inputs/work.pdf" /dev/null >/dev/null </dev/null
}

main "$@"
