# SPDX-License-Identifier: MIT
# common.sh: what the program workloads share; each sources it, defines two functions and calls
# `main "$@"` as its last line.
#
#   NAME.sh prepare DIRECTORY        makes the inputs there, the same each time; nothing is done
#                                    where this version of the script has made them before; installs
#                                    what it needs, as root on Debian, if LABORATORY_INSTALL=yes
#   NAME.sh run DIRECTORY [WORD]     becomes the program, so that an LD_PRELOAD of the caller
#                                    serves it, and nothing else but this shell on the way there
#   NAME.sh load DIRECTORY [WORD]    loads the program when it is a server, and ends
#
# The script defines
#   needs=(PROGRAM ...)   what must be installed
#   make_inputs           called in DIRECTORY, without LD_PRELOAD, with $root, the checkout; what it
#                         prints goes to DIRECTORY/log; it may end with `stop 77 SENTENCE`
#   run_program [WORD]    called with $inputs; builtins only, then exec; output to /dev/null
#   load_program [WORD]   of servers; called with $inputs, in the folder in which the server runs
# and names in a line "# packages: A B" the Debian packages that bring what it needs. Where a program
# in PATH is not all that it needs, it defines find_absent anew.
#
# Exit status: 0, 1 preparing failed, 2 wrong call or not prepared, 77 what it needs is not here
# (one sentence says what); of `run` the program's own.
set -u
export LC_ALL=C

script=${BASH_SOURCE[1]}
name=${script##*/}
name=${name%.sh}

# stop STATUS SENTENCE
stop() {
    printf '%s: %s\n' "$name" "$2" >&2
    exit "$1"
}

# Sets `absent` to the first program that is not there, or to nothing.
find_absent() {
    for absent in "${needs[@]}"; do
        command -v "$absent" >/dev/null || return
    done
    absent=
}

install_absent() {
    local packages
    read -r -a packages < <(sed -n 's/^# packages: //p' "$script")
    find_absent
    if [[ -n $absent && $EUID == 0 && ${LABORATORY_INSTALL:-} == yes ]] && command -v apt-get >/dev/null; then
        "$root/tools/install_packages.sh" "${packages[@]}" >>"$inputs/log" 2>&1 </dev/null
        find_absent
    fi
    [[ -z $absent ]] || stop 77 "$absent is not installed; on Debian: apt-get install ${packages[*]}"
}

prepare() {
    local version
    unset LD_PRELOAD
    mkdir -p "$inputs" 2>/dev/null || stop 1 "cannot make the directory $inputs"
    root=$(cd -- "${BASH_SOURCE[0]%"${BASH_SOURCE[0]##*/}"}../.." && pwd) || exit 1
    install_absent
    version=$(cat "${BASH_SOURCE[0]}" "$script" | cksum)
    [[ -e $inputs/prepared && $(<"$inputs/prepared") == "$version" ]] && exit 0
    rm -f "$inputs/prepared"
    (cd "$inputs" && make_inputs) >"$inputs/log" 2>&1 </dev/null
    case $? in
    0) ;;
    77) tail -n 1 "$inputs/log" >&2; exit 77 ;;
    *) stop 1 "cannot make the inputs; $inputs/log says why" ;;
    esac
    printf '%s\n' "$version" >"$inputs/prepared"
}

main() {
    local verb=${1:-}
    if [[ $# -lt 2 || $verb != @(prepare|run|load) || ($verb == prepare && $# -gt 2) ]]; then
        stop 2 "the call is: $name.sh prepare DIRECTORY, or $name.sh run DIRECTORY"
    fi
    inputs=$2
    shift 2
    if [[ $verb == prepare ]]; then
        prepare
    else
        [[ -e $inputs/prepared ]] || stop 2 "no inputs in $inputs; make them by: $name.sh prepare"
        "${verb}_program" "$@"
    fi
}
