# SPDX-License-Identifier: MIT
# run.sh: sourced by the launcher for run, record and replay: builds what they need if it is not up to date, and becomes
# hakmem-run (run/), which checks all words. $form is -secure or nothing, $traces yes or nothing, $build the folder.

# look_ahead COMMAND WORD...: what has to be known before hakmem-run, which checks all words, is built. Sets `form`,
# `program`, and `names` and `allocators` to those of --set and --alloc.
look_ahead() {
    local command=$1
    while shift && (($# > 0)); do
        case $1 in
        --profile | --set | --stats-file | --heap-map | --output | -o | --alloc | --runs)
            (($# > 1)) || return 0
            set -- '' "$1=$2" "${@:3}"
            continue
            ;;
        --set=*=*) REPLY=${1#*=} && names+=("${REPLY%%=*}") ;;
        --alloc=*) IFS=, read -r -a allocators <<<"${1#*=}" ;;
        --secure) form=-secure ;;
        --install | --no-install) take_install "$1" ;;
        --help | -h) show_help "$command" && exit ;;
        --) program=${2-} && return ;;
        -*) ;;
        *) [[ $command == replay ]] || { program=$1 && return; } ;;
        esac
    done
}

# A mistyped name is not worth an installation: looks at the names when what builds hakmem is missing.
check_names() {
    local name
    ! type -P cmake ninja gcc g++ >/dev/null || return 0
    for name in "${names[@]}"; do
        name=${name,,} name=${name#hakmem_}
        grep -qE "^    X\([A-Z_0-9]+, $name," "$root/src/core/option_list.h" ||
            die $STATUS_USAGE "run: there is no option '$name' (./hakmem run --help lists them)"
    done
    for name in "${allocators[@]}"; do
        [[ $name == @(hakmem|libc|glibc|system|*/*) ]] || grep -qsF "\"$name\"" "$(cache_directory)/peers/manifest.json" ||
            die $STATUS_USAGE "$1: there is no allocator '$name' (./hakmem peers list shows which are installed)"
    done
    [[ $program != */* || -e $program ]] || die $STATUS_NOT_FOUND "there is no program '$program'"
    [[ $program == */* || -z $program ]] || (PATH=$callers_path && type -P -- "$program" >/dev/null) ||
        die $STATUS_NOT_FOUND "there is no program '$program' in PATH"
}

# --- building ---

# is_fresh STAMP FOLDER...: whether nothing in these folders of the checkout has changed since the build of this name. To
# ask ninja takes twice as long as all the rest of `run`.
is_fresh() {
    local folder file
    [[ -e $1 ]] || return 1
    shopt -s globstar nullglob
    for folder in CMakeLists.txt cmake "${@:2}"; do
        for file in "$root/$folder"/** "$root/$folder"; do
            [[ $file -nt $1 ]] && return 1
        done
    done
    return 0
}

# is_built: whether $build has it all.
is_built() {
    local release=$build/release
    [[ -e $release/libhakmem$form.so && -x $release/hakmem-run ]] && is_fresh "$build/.release$form-stamp" src include run || return
    [[ -z $traces ]] || { [[ -x $release/hakmem-trace && -e $release/libhakmem-recorder.so ]] && is_fresh "$build/.trace-stamp" trace; }
}

# Leaves the program's input alone.
cmake_alone() {
    (leave_out_homes && exec cmake "$@") </dev/null 2>&1
}

# A build folder that came along with a copy of the checkout builds the original.
make_targets() {
    local release=$build/release
    if ! [[ -e $release/build.ninja ]] || ! grep -sqxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$release/CMakeCache.txt"; then
        rm -rf -- "$release"
        cmake_alone --preset release -S "$root" -B "$release" -DHAKMEM_TESTS=OFF -DHAKMEM_BENCH=OFF || return
    elif [[ -n $traces ]]; then
        cmake_alone "$release" || return # looks again for what makes traces smaller
    fi
    cmake_alone --build "$release" -j "$(($(nproc) < 8 ? $(nproc) : 8))" --target "$@"
}

# Builds one library and hakmem-run, and for traces the recorder. Two first runs at once: the second waits.
build_here() {
    local lock stamp stamps=("$build/.release$form-stamp") targets=(hakmem_shared hakmem_runner)
    check_names "$1"
    need 'to build hakmem' cmake ninja gcc g++ stdio.h
    [[ -z $form ]] || targets=(hakmem_secure hakmem_runner)
    [[ -z $traces ]] || { need 'to make traces a tenth as large' -- zstd.h && targets+=(hakmem_tracing) stamps+=("$build/.trace-stamp"); }
    [[ ! -L $build/.lock ]] && { [[ -f $build/.lock ]] || [[ ! -e $build/.lock ]]; } ||
        die $STATUS_FAILED "$build/.lock is no plain file; remove it"
    exec {lock}>>"$build/.lock"
    ! type -P flock >/dev/null || flock "$lock"
    if ! is_built; then
        [[ ! -t 2 ]] || echo "hakmem: building in $build/release, once; 15 s on an idle machine" >&2
        for stamp in "${stamps[@]}"; do
            : >"$stamp.new" # its time is the build's start
        done
        make_targets "${targets[@]}" >"$build/release.log" || {
            grep -vE '^\[[0-9]+/[0-9]+\]' "$build/release.log" >&2
            die $STATUS_FAILED "the build failed; its output is above"
        }
        for stamp in "${stamps[@]}"; do
            mv -f -- "$stamp.new" "$stamp"
        done
    fi
    exec {lock}>&-
}

# --- becoming hakmem-run ---

# preload_path NAME: an installed library for LD_PRELOAD: a link in the cache when LD_PRELOAD could not hold its path.
preload_path() {
    local path place
    path=$(part "$1")
    [[ -e $path ]] || die $STATUS_FAILED "this installation of hakmem has no $path"
    [[ $path != *[[:space:]:\$]* ]] || { place=$(own_cache installed) && ln -sfn -- "$path" "$place/" && path=$place/${path##*/}; }
    printf '%s\n' "$path"
}

# find_parts COMMAND: builds them if need be, and sets `options` to hakmem-run and its options that name them.
find_parts() {
    if ! is_checkout; then
        options=("$(part runner)" --installed "--library=$(preload_path "library$form")") || exit
        [[ -z $traces ]] || options+=("--tracer=$(part tracer)" "--recorder=$(preload_path recorder)") || exit
    else
        # Somebody else's checkout may be built already, though we cannot write to it.
        [[ $root != *[[:space:]:\$]* ]] && is_ours "$build" && is_built || build=$(build_directory) ||
            die $STATUS_FAILED "there is no place to build in"
        is_built || build_here "$1"
        options=("$build/release/hakmem-run" "--library=$build/release/libhakmem$form.so")
        [[ -z $traces ]] || options+=("--recorder=$build/release/libhakmem-recorder.so" "--tracer=$build/release/hakmem-trace")
    fi
}

# show_timeline WORD...: by Python, from what hakmem-trace says of a trace.
show_timeline() {
    local form='' traces=yes program='' names=() allocators=() build=$root/build options
    if [[ " $* " != *' '@(-h|--help)' '* ]]; then
        find_parts timeline
        for REPLY in "${options[@]}"; do
            [[ $REPLY != --tracer=* ]] || export HAKMEM_TRACE_TOOL=${REPLY#*=}
        done
    fi
    hand_over timeline "$@"
}

# run_command COMMAND WORD...
run_command() {
    local form='' traces='' program='' names=() allocators=() words build=$root/build options
    look_ahead "$@"
    [[ $1 == run ]] || traces=yes form=''
    [[ $1 != run ]] || install=${install:-yes}
    find_parts "$1"
    ((${#allocators[@]} == 0)) || options+=("--peers=$(cache_directory)/peers/manifest.json")
    [[ $has_path != *x* ]] || options+=("--path=$callers_path")
    become "${options[@]}" "$@"
}
