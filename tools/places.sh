# SPDX-License-Identifier: MIT
# places.sh: sourced by the launcher, which sets $root: places to write to that are the caller's own.

# is_own FILE: only root and the caller can write to it, or put another one in its place. It need not exist yet.
is_own() {
    local path user group mode place paths=()
    path=$(readlink -m -- "$1") || return
    for ((place = ${#path}; place > 0; place--)); do
        [[ $place != "${#path}" && ${path:place:1} != / ]] || paths+=("${path:0:place}")
    done
    while read -r user group mode place; do
        ((user == 0 || user == EUID)) || return
        # In a sticky folder such as /tmp, others cannot replace what is ours.
        ((mode & 0022)) && { ((!(mode & 01000))) || [[ $place == "$path" ]]; } || continue
        # Many users have a group of their own, and let it write.
        ((mode & 0002)) || ((group != 0 && group != GROUPS)) || continue
        return 1
    done < <(stat -c '%u %g 0%a %n' -- "${paths[@]}" / 2>/dev/null)
}

# Settings and caches are the caller's own: `sudo -E` keeps another user's HOME. Not for what becomes a program.
leave_out_homes() {
    local name
    for name in HOME XDG_CACHE_HOME XDG_DATA_HOME XDG_CONFIG_HOME; do
        [[ -z ${!name-} ]] || is_own "${!name}" || printf -v "$name" %s ''
    done
    [[ -n ${HOME-} ]] || { unset HOME && export HOME=~; }
}

# A place to write to, whose path LD_PRELOAD can hold (no spaces, colons or dollars).
cache_directory() {
    local place
    leave_out_homes
    for place in "${XDG_CACHE_HOME:-}" "${HOME:+$HOME/.cache}"; do
        [[ $place == /* && $place != *[[:space:]:\$]* ]] && is_own "$place/hakmem" || continue
        mkdir -p -- "$place/hakmem" 2>/dev/null && [[ -w $place/hakmem ]] && echo "$place/hakmem" && return
    done
    place=${TMPDIR:-/tmp}
    [[ $place == /* && $place != *[[:space:]:\$]* ]] && is_own "$place/hakmem-$EUID" || place=/tmp
    place+=/hakmem-$EUID
    mkdir -m 700 -- "$place" 2>/dev/null
    # Somebody else's directory of that name is not to be trusted.
    [[ -d $place && ! -L $place ]] && is_own "$place" || place=$(mktemp -d "$place-XXXXXX") || return
    echo "$place"
}

# own_cache NAME: a folder for this checkout in the cache.
own_cache() {
    local sum cache
    sum=$(printf '%s' "$root" | cksum)
    cache=$(cache_directory) && mkdir -p -- "$cache/$1-${sum// /-}" && echo "$cache/$1-${sum// /-}"
}

# is_ours DIRECTORY: it belongs to the caller, to root or to the owner of this launcher, and not everybody may write to it.
is_ours() {
    local about
    about=($(stat -Lc '%u 0%a' -- "$1" "$root/hakmem" 2>/dev/null)) && ((${#about[@]} == 4)) &&
        ((!(about[1] & 0002))) && ((about[0] == 0 || about[0] == EUID || about[0] == about[2]))
}

# Where presets are built: build/ of the checkout, or the cache when that cannot be written or LD_PRELOAD could not hold
# its path.
build_directory() {
    if [[ $root != *[[:space:]:\$]* ]] && mkdir -p -- "$root/build" 2>/dev/null && [[ -w $root/build ]] && is_ours "$root/build"; then
        echo "$root/build"
    else
        own_cache build
    fi
}
