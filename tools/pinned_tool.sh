# SPDX-License-Identifier: MIT
# pinned_tool.sh: sourced. pinned_tool NAME prints the path of clang-format or clang-tidy in the one version that
# judges this tree, or fails with a line that says why not.

PINNED_VERSION=14.0.6 # Debian 12's, so that most machines need no wheel

pinned_tool() {
    local name=$1 candidate venv=build/tools-venv
    for candidate in "$name-${PINNED_VERSION%%.*}" "$name" "$venv/bin/$name"; do
        if "$candidate" --version 2>/dev/null | grep -q "version $PINNED_VERSION"; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    # Two checks may run at once: the first one makes the environment.
    if mkdir -p build && (
        flock 9
        { [[ -x $venv/bin/python3 ]] || python3 -m venv "$venv"; } &&
            "$venv/bin/python3" -m pip install --quiet --disable-pip-version-check "$name==$PINNED_VERSION"
    ) 9>build/tools-venv.lock >/dev/null 2>&1; then
        printf '%s\n' "$venv/bin/$name"
        return 0
    fi
    echo "skipped: $name $PINNED_VERSION is neither installed nor to be had from pip" >&2
    return 1
}
