#!/usr/bin/env bash
# `./hakmem record` and `./hakmem replay`: the program keeps its status, signals and output; one line says what was
# recorded; refusals are one clear sentence.
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
cd -- "$scratch" || exit 1

recorded='^hakmem: [0-9]+ calls of [0-9]+ threads?, [0-9]+ bytes in [^ ]*, [0-9.]+ bytes a call(; [0-9]+ calls of [0-9]+ other process(es)? in files [^ ]*\.PID)?$'
sentence='^hakmem: [^'$'\n'']+$'

"$launcher" record true 2>/dev/null # builds it if need be, and may say so on a terminal
expect 0 hello "$recorded" "$launcher" record -- /bin/echo hello
[[ -s hakmem.trace ]] || fail "no hakmem.trace"
expect 0 hello "$recorded" "$launcher" record --alloc libc -o other /bin/echo hello
expect 7 '' "$recorded" "$launcher" record --output=other bash -c 'exit 7'
expect 143 '' '' bash -c '"$1" record -o other -- bash -c "kill -TERM \$\$"; exit $?' _ "$launcher"
expect 0 'from outside' "$recorded" "$launcher" record -o other -- cat <<<'from outside'
printf '#!/usr/bin/env bash\nexec /bin/echo "$@"\n' >script && chmod +x script
expect 0 'a b' "$recorded" "$launcher" record -o other ./script a b
"$launcher" replay other --summary >summary || fail "no summary of a script's program"
[[ $(<summary) == echo* ]] || fail "the trace is not of what the script became: $(head -n 1 summary)"
expect 0 x '^hakmem: [0-9]+ calls .*/with space,' "$launcher" record -o "with space" /bin/echo x
expect 0 '' '^hakmem: 0 calls: nothing was recorded' "$launcher" record -o other true # which makes no call
expect 0 "$scratch" "$recorded" "$launcher" record -o other pwd
try "$launcher" record -o other -- bash -c 'kill -TERM $PPID; sleep 100'
((status == 143)) || fail "a signal to the recorder's parent is not passed on: status $status"

"$launcher" record -o sample -- bash -c 'for i in {1..2000}; do x[i]=$i; done' 2>/dev/null
try "$launcher" replay sample
[[ $status == 0 && $output == *$'\n'hakmem\ * && $output == *$'\n'libc\ * ]] || fail "replay: $status: $output $errors"
try "$launcher" replay --runs 1 --alloc="$(dirname "$("$launcher" build)")/libhakmem.so" sample
[[ $status == 0 && $output == *libhakmem.so* ]] || fail "replay of a library: $status: $output $errors"
for command in record replay; do
    try "$launcher" "$command" --help
    [[ $status == 0 && $output == Usage:* && -z $errors ]] || fail "$command --help"
    [[ $output == "$("$launcher" help "$command")" ]] || fail "help $command"
done

# refuse STATUS WORDS COMMAND...
refuse() {
    local wanted=$1 words=$2
    shift 2
    expect "$wanted" '' "$sentence" "$@"
    [[ $errors =~ $words ]] || fail "errors '$errors' instead of '$words': $*"
}

refuse 2 'which program' "$launcher" record
refuse 2 'which program' "$launcher" record -o x --
refuse 2 "unknown option '--nothing'" "$launcher" record --nothing true
refuse 2 '-o needs a value' "$launcher" record -o
refuse 2 "no allocator 'nothing'" "$launcher" record --alloc nothing true
refuse 2 "no library './nothing.so'" "$launcher" record --alloc ./nothing.so true
refuse 127 "no program 'no-such-program'" "$launcher" record no-such-program
refuse 126 'is a directory' "$launcher" record /
refuse 125 'is there already and is no trace' "$launcher" record -o script true
refuse 125 'cannot write' "$launcher" record -o "$scratch/no/such/folder" true
refuse 2 'which trace' "$launcher" replay
refuse 2 "one trace at a time" "$launcher" replay sample other
refuse 2 "unknown option '--nothing'" "$launcher" replay --nothing sample
refuse 2 '--runs needs a number' "$launcher" replay sample --runs 0
refuse 2 '--alloc needs a value' "$launcher" replay sample --alloc
refuse 2 "no allocator 'nothing'" "$launcher" replay sample --alloc hakmem,nothing

# An allocator of `./hakmem peers`, as its list has it.
mkdir -p "$scratch/cache/hakmem/peers" "$scratch/a library"
cp "$(dirname "$("$launcher" build)")/libhakmem.so" "$scratch/a library/"
for place in "$(dirname "$("$launcher" build)")" "$scratch/a library" "$scratch/none"; do
    echo "{\"peers\": {\"mine\": {\"library\": \"$place/libhakmem.so\", \"environment\": {\"MINE\": \"yes\"}}}}" \
        >"$scratch/cache/hakmem/peers/manifest.json"
    XDG_CACHE_HOME=$scratch/cache try "$launcher" record --alloc mine -o other -- bash -c 'echo "$MINE"'
    case $place in
    */release) [[ $status == 0 && $output == yes && $errors =~ $recorded ]] || fail "record --alloc mine: $status $output $errors" ;;
    *library) [[ $status == 2 && $errors =~ $sentence && $errors == *'LD_PRELOAD cannot hold'* ]] || fail "a library: $errors" ;;
    *) [[ $status == 2 && $errors =~ $sentence && $errors == *"library of 'mine' is gone"* ]] || fail "no library: $errors" ;;
    esac
done
XDG_CACHE_HOME=$scratch/cache refuse 2 "no allocator 'other'" "$launcher" replay sample --alloc other

refuse 127 "no file 'nothing'" "$launcher" replay nothing
refuse 125 'is no trace' "$launcher" replay script
refuse 125 'is no trace' "$launcher" replay script --summary
finish
