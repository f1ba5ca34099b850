#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Pins the packages that the tree takes from PyPI: makes each requirements.txt of the requirements.in beside it, with all
# packages that these need, for all versions of Python, and with the hashes of all files of each release. pip installs
# nothing else then. Pins stay as they are unless requirements.in wants another version, or with --upgrade.
# Usage: pin_packages.sh [--upgrade | --check]
# --check asks no network whether each requirements.txt has all that its requirements.in names, and hashes for all.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
folders=(tools tools/site lab) # the first one has uv, which makes them all

# check FOLDER: says what is wrong.
check() {
    awk -v place="$1/requirements.txt" '
        FNR == NR { if ($0 !~ /^(#|$)/) wanted[$1]; next }
        /^[a-z0-9]/ { if (name != "" && !hashes) print place ": no hash of " name; name = $1; hashes = 0; delete wanted[name]
                      if (name !~ /^[a-z0-9._-]+==[0-9][0-9a-z.]*$/) print place ": no version of " name }
        /^    --hash=sha256:[0-9a-f]+( \\)?$/ { hashes++; if (length($1) != 78) print place ": no hash of " name }
        END { if (name == "" || !hashes) print place ": no hash of " name
              for (one in wanted) print place ": lacks " one }' "$1/requirements.in" "$1/requirements.txt"
}

if [[ ${1-} == --check ]]; then
    said=$(for folder in "${folders[@]}"; do check "$folder"; done
        git grep -nE 'pip.*["( ](install|wheel)[", ]' -- '*.sh' '*.py' .ci ':!tests' ':!tools/pin_packages.sh' |
            grep -vE 'require-hashes|no-build-isolation' | sed 's/$/: pip without --require-hashes/' || true)
    [[ -z $said ]] || { printf '%s\n' "$said" && exit 1; }
    exit 0
fi

. tools/pinned_tool.sh
for folder in "${folders[@]}"; do
    least=$(sed -n '1s/.* Python \(3\.[0-9]*\) or newer.*/\1/p' "$folder/requirements.in")
    [[ -n $least ]] || { echo "$folder/requirements.in does not say for which Python" >&2 && exit 1; }
    uv=$(pinned_uv)
    "$uv" pip compile --quiet "$@" --universal --generate-hashes --no-annotate --python-version "$least" \
        --custom-compile-command tools/pin_packages.sh --output-file "$folder/requirements.txt" "$folder/requirements.in"
done
