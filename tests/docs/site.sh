#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# ctest: slow
# tools/site.sh builds the site: every link to a page, file or heading holds, and no page loads anything from elsewhere.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Its packages are for those who build the site, so a test run does not install them.
shopt -s nullglob
installed=("${XDG_CACHE_HOME:-$HOME/.cache}"/hakmem/site-*/complete)
((${#installed[@]} != 0)) || { echo "skipped: tools/site.sh has not installed its packages"; exit 77; }

bash "$TEST_ROOT/tools/site.sh" "$scratch/site" >/dev/null
[[ -s $scratch/site/index.html && -s $scratch/site/docs/options.html ]] || { echo "FAILED: pages are missing" >&2; exit 1; }
if grep -rohE --include='*.html' '<(script|link|img)[^>]* (src|href)="?(https?:)?//[^" >]*' "$scratch/site" | sort -u | grep .; then
    echo "FAILED: the site loads these" >&2
    exit 1
fi
echo "$(find "$scratch/site" -name '*.html' | wc -l) pages"
