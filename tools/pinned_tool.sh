# SPDX-License-Identifier: MIT
# pinned_tool.sh: sourced. pinned_tool NAME prints the path of clang-format or clang-tidy in the one version that
# judges this tree, or fails with a line that says why not. pinned_uv prints that of uv.

PINNED_VERSION=$(sed -n 's/^clang-format==//p' tools/requirements.in) # Debian 12's, so that most machines need no wheel

# pinned_packages: prints the folder with the programs of tools/requirements.txt.
pinned_packages() {
    local sum venv
    sum=$({ cat tools/requirements.txt && python3 -V; } | cksum) || return 1
    venv=build/tools-venv-${sum%% *}
    # Two checks may run at once: the first one makes the environment.
    mkdir -p build && (
        flock 9
        [[ -e $venv/complete ]] || {
            python3 -m venv "$venv" &&
                "$venv/bin/python3" -m pip install --quiet --disable-pip-version-check --require-hashes \
                    -r tools/requirements.txt && : >"$venv/complete"
        }
    ) 9>build/tools-venv.lock >/dev/null 2>&1 && printf '%s\n' "$venv/bin"
}

pinned_uv() {
    local bin
    # Without pins, as in a tree where they are made for the first time, the machine's own does.
    bin=$(pinned_packages) && printf '%s\n' "$bin/uv" || command -v uv
}

pinned_tool() {
    local name=$1 candidate bin
    for candidate in "$name-${PINNED_VERSION%%.*}" "$name"; do
        if "$candidate" --version 2>/dev/null | grep -q "version $PINNED_VERSION"; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    if bin=$(pinned_packages); then
        printf '%s\n' "$bin/$name"
        return 0
    fi
    echo "skipped: $name $PINNED_VERSION is neither installed nor to be had from pip" >&2
    return 1
}
