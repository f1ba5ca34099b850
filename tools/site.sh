#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Builds a site of all documents that needs no network. Usage: site.sh [DIRECTORY]
# The site goes to DIRECTORY, or build/site: open index.html. Only its search needs a server, such as
# `python3 -m http.server --directory build/site`. A link to a page, file or heading that does not exist is an error.
# The packages of tools/site/requirements.txt are installed into a cache on first use, from PyPI.
set -eu
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
site=$(realpath -m -- "${1:-$root/build/site}")
cache=${XDG_CACHE_HOME:-$HOME/.cache}/hakmem
sum=$({ cat -- "$root/tools/site/requirements.txt" && python3 -V; } | cksum)
python=$cache/site-${sum// /-}

if [[ ! -e $python/complete ]]; then
    echo "site: installing mkdocs into $python" >&2
    rm -rf -- "$python"
    mkdir -p -- "$cache"
    python3 -m venv -- "$python"
    "$python/bin/python" -m pip install --require-hashes --quiet --disable-pip-version-check -r "$root/tools/site/requirements.txt"
    : >"$python/complete"
fi

# The pages keep their places, beside the files of the tree that they link to.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p -- "$work/pages"
cd -- "$root"
cp -R -- README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE docs "$work/pages/"
cp --parents -- src/README.md tests/README.md lab/README.md trace/README.md "$work/pages/"
while IFS= read -r file; do
    [[ -f $file ]] && mkdir -p -- "$work/pages/${file%/*}" && cp -- "$file" "$work/pages/$file"
done < <(grep -rhoE '\]\((\.\./)+[a-z][a-zA-Z_/.]*\)' docs --include='*.md' | sed -E 's/^\]\((\.\.\/)+//; s/\)$//' |
    grep / | grep -v '\.md$' | sort -u)
cp -- tools/site/mkdocs.yml "$work/"
# --quiet would hide warnings from --strict, too.
if ! said=$(NO_MKDOCS_2_WARNING=1 "$python/bin/python" -m mkdocs build --strict \
    --config-file "$work/mkdocs.yml" --site-dir "$site" 2>&1); then
    grep -E '^(WARNING|ERROR)|rror' <<<"$said" >&2
    exit 1
fi
echo "$site/index.html"
