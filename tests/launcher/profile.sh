#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `./hakmem profile`: sites of C++, C and Python programs, a planted leak, the files for other programs, refusals.
#
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
cd -- "$scratch" || exit 1

act
compile leak.cc leak -O2 -g -fomit-frame-pointer <<'END'
#include <cstdlib>
#include <map>
#include <string>
#include <unistd.h>
struct Session {
    std::string name = std::string(400, 's');
};
std::map<int, Session *> sessions;
__attribute__((noinline)) void log_in(int user)
{
    sessions[user % 10] = new Session; // the one before is lost
}
__attribute__((noinline)) void answer()
{
    for (int i = 0; i < 50; i++) {
        std::string row(100 + i, 'r');
        asm volatile("" : : "r"(row.data()) : "memory");
    }
}
int main(int argc, char **)
{
    for (int i = 0; i < 30000; i++) {
        log_in(i);
        answer();
        if (i % 500 == 0) {
            usleep(2000);
        }
    }
    return argc == 1 ? 3 : 0;
}
END

# The leak is a suspect, with the line; the program's status is kept.
succeed 3 "$launcher" profile --leaks -o kept -- ./leak
has "$output" 'Suspects: [^'$'\n'']*'$'\n''[^'$'\n'']*blocks? +Session::Session\(\) \(.*leak\.cc:5\)'
has "$output" 'log_in\(int\) \(.*leak\.cc:11\)'
has "$output" 'over time: '
succeed 0 "$launcher" profile --allocated --stacks --sites 2 kept
has "$output" 'answer\(\) \(.*leak\.cc:1[0-9]\)'
succeed 0 "$launcher" profile --folded folded kept
has "$(<folded)" 'main;log_in\(int\);Session::Session\(\);?[^'$'\n'']* [0-9]+'

# The page, also in a browser if there is one.
succeed 0 "$launcher" profile --html page.html kept
[[ $(<page.html) == '<!doctype html>'*'Heap profile of leak'*'about one block in every '*'</html>' ]] || fail "no page"
PROFILE=$scratch/kept python_tests profile_page

# Sums of the table: 30,000 strings of 400 bytes are left, 12 MB; 750 samples, five standard deviations are 18 %.
"$launcher" profile kept | head -1 | python3 -c '
import re, sys
value, unit = re.search(r"about ([0-9.]+) (\w+) in use", sys.stdin.read()).groups()
mebibytes = float(value) / {"KiB": 1024, "MiB": 1}[unit]
sys.exit(not 9.5 < mebibytes < 16)' || fail "totals: $("$launcher" profile kept | head -1)"

# A line for each way to a site, though none grew.
succeed 0 "$launcher" profile --leaks --period 1 -- ./acts load:30:102400 parse:10:102400
has "$output" '40 blocks +make \(.*acts\.c:[0-9]+\)'$'\n'' +2\.9 MiB by load:[0-9, a-z]+:[0-9]+, main:[0-9]+'$'\n'' +1000\.0 KiB by parse:'

# In a test: the status says whether more leaks than allowed, beside what is ignored; the program's own status comes first.
leaks=("$launcher" profile --leaks --period 1)
forget=(./acts alpha:1:300000 beta:100:1000)
succeed 0 "${leaks[@]}" --fail-above 400k -- "${forget[@]}"
complain 1 'has not freed about 390\.6 KiB, more than 390\.0 KiB' "${leaks[@]}" --fail-above 390k -o kept_leaks -- "${forget[@]}"
succeed 0 "${leaks[@]}" --fail-above 98k --ignore 'al*' -- "${forget[@]}"
has "$output" 'about 97\.7 KiB not freed'
succeed 0 "$launcher" profile --leaks --fail-above 0 --ignore beta --ignore alpha kept_leaks
complain 7 'has not freed' "${leaks[@]}" --fail-above 0 -- "${forget[@]}" exit:7
refuse 2 'go with --leaks' "$launcher" profile --fail-above 0 kept_leaks
try "$launcher" profile --leaks --fail-growing kept
[[ $status == 1 && $errors =~ 'hakmem: Session::Session()'[^$'\n']*' grew all through the run' ]] || fail "--fail-growing: $status: $errors"
succeed 0 "$launcher" profile --leaks --fail-growing --ignore 'Session::Session' --ignore 'log_in' kept

# Two versions of a program: what the second has more, less, and new.
succeed 0 "$launcher" profile --period 1 -o one.kept -- ./acts alpha:20:10240 beta:80:20480 load:1:3000
succeed 0 "$launcher" profile --period 1 --compare one.kept --folded difference --html difference.html -- \
    ./acts alpha:50:10240 beta:50:20480 gamma:1:1048576 load:1:3000
has "$output" '  *\+724\.0 KiB  *1\.8 MiB  *2\.5 MiB  *\+1  all sites'$'\n''  *\+1\.0 MiB  *0 bytes  *1\.0 MiB  *\+1  gamma'$'\n''  *-600\.0 KiB .* -30  beta'$'\n''  *\+300\.0 KiB .* \+30  alpha$'
[[ $(sed 's,.*;main;,main;,' difference | LC_ALL=C sort | tr '\n' ' ') == 'main;act;alpha 204800 512000 main;act;beta 1638400 1024000 main;act;gamma 0 1048576 main;act;load;make 3000 3000 ' ]] ||
    fail "folded difference: $(<difference)"
refuse 126 "cannot read 'none'" "$launcher" profile --compare none one.kept
[[ $(<difference.html) == *'Heap profiles of acts, compared'*'+724.0 KiB in use'*'</html>' ]] || fail "the page of the difference"
refuse 2 'goes with neither' "$launcher" profile --compare one.kept --pprof page one.kept
refuse 2 'takes a number of bytes' "$launcher" profile --leaks --fail-above much kept_leaks

# The peak is that of the whole run, not what is left at the end.
succeed 0 "$launcher" profile --peak -o kept_peak -- ./acts alpha:200:100000 free:200 beta:20:50000
has "$output" 'about 19\.[0-9] MiB in use at the peak, '
has "$output" '19\.[0-9] MiB [0-9. %]* 200 blocks? +alpha \(.*acts\.c:[0-9]+\)'
[[ $output != *beta* ]] || fail "beta held nothing at the peak: $output"
succeed 0 "$launcher" profile kept_peak
has "$output" ' 20 blocks? +beta '
has "$("$launcher" profile --peak kept_peak)" 'so few samples the peak is a rough estimate'
refuse 2 'goes neither with' "$launcher" profile --peak --leaks kept_peak

# A C program has stacks, too; each process of a tree has a table; a process without samples has none.
fill=(./acts alpha:1000:10000)
succeed 0 "$launcher" profile --period 64k -- "${fill[@]}" fork
has "$output" 'alpha \(.*acts\.c:[0-9]+\).*alpha \(.*acts\.c:[0-9]+\)'
succeed 0 "$launcher" profile --sites 3 -- python3 -c 'import json; text = json.dumps(list(range(100000)))'
has "$output" '[^'$'\n'']*python3[^'$'\n'']* \(process [0-9]+\): about '

# Of a program that a script starts, the program's own report comes last, and all others are one line.
for start in exec ''; do
    printf '#!/usr/bin/env bash\nfor i in 1 2 3; do j=$(dirname a/b) k=$(sort /dev/null); done\n%s ./acts load:30:102400 parse:10:102400\n' "$start" >shim
    chmod +x shim
    succeed 0 "$launcher" profile --leaks --period 1 -o shim.profile -- ./shim
    lines=$(grep -E '\(process [0-9]+\)|processes of' <<<"$output")
    [[ $lines =~ ^[0-9]+' processes of other programs ('[^$'\n']*$'\n'[^$'\n']*acts\ \(process\ [0-9]+\)[^$'\n']*$ ]] ||
        fail "a program behind a script ($start): $output"
done
succeed 0 "$launcher" profile shim.profile
lines=$(grep -E '\(process [0-9]+\)' <<<"$output")
[[ $lines == *"bash (process "*$'\n'*"acts (process "* ]] || fail "all processes of a file: $output"

refuse 2 'name a program' "$launcher" profile
refuse 2 'name a program' "$launcher" profile kept -- ./leak
refuse 2 'takes a number from 1 on' "$launcher" profile --sites 0 kept
refuse 2 'takes a number of bytes' "$launcher" profile --period 1x -- ./leak
refuse 2 'taken for the file of a profile' "$launcher" profile --period 4k kept
refuse 127 'there is no process' "$launcher" profile 2147483000
refuse 2 'unknown option' "$launcher" profile --what kept
refuse 126 'cannot read .none.: No such file' "$launcher" profile none
refuse 126 'not a profile of hakmem, or it is cut; .*profile -- ./leak' "$launcher" profile ./leak
refuse 126 'cannot write' "$launcher" profile --folded none/folded kept
refuse 126 'cannot write' "$launcher" profile --html none/page -- ./leak
refuse 126 'cannot write' "$launcher" profile -o /dev/full -- "${fill[@]}"
# Of several profiles of one process the last one counts, in files for other programs, too.
cat kept kept >twice
succeed 0 "$launcher" profile --folded folded_twice twice
has "$output" 'leak \(process [0-9]+, profile 2 of 2\): about '
cmp folded folded_twice || fail "two profiles of one process are added"
succeed 0 "$launcher" profile --nth 1 twice
has "$output" 'profile 1 of 2'
refuse 126 'no profile number 3: no process wrote more than 2' "$launcher" profile --nth 3 twice
refuse 2 'nth is for the file' "$launcher" profile --nth 1 -- ./leak
# What is cut, as by a full disk, is left out, and all else is read, also in the same line.
{ cat kept; head -c 300 kept; cat kept; } >damaged
try "$launcher" profile damaged
[[ $status == 0 && $errors =~ ^hakmem:\ .*\ 1\ profile\ of\ it\ is\ cut[^$'\n']*$ ]] || fail "status $status: a damaged file: $errors"
has "$output" 'profile 2 of 2'
# Without a profile no file is made, and an old one stays. A pipe can have the profile.
echo old >old
refuse 127 'no program' "$launcher" profile -o none.profile --pprof none.pb.gz --html none.html --folded none.folded -- ./none
refuse 127 'no program' "$launcher" profile -o old --html old -- ./none
[[ $(echo none.*) == 'none.*' && $(<old) == old ]] || fail "files without a profile: $(ls)"
mkfifo pipe
timeout 60 cat pipe >piped &
succeed 0 "$launcher" profile -o pipe -- "${fill[@]}"
wait $!
[[ $(head -c 18 piped) == '{"hakmem_profile":' ]] || fail "the pipe's reader has: $(head -c 100 piped)"

# Without binutils and LLVM functions have names but no lines, which the table says.
mkdir bare
ln -s /usr/bin/* bare/
ln -sf "$(type -P python3)" bare/python3
rm -f bare/addr2line bare/c++filt bare/tail bare/llvm-*
PATH=$scratch/bare succeed 0 "$launcher" profile -- "${fill[@]}"
has "$output" ' alpha \(acts\)'$'\n''.*Lines and inlined functions are missing: addr2line [^'$'\n'']* not installed\.'

head -c 300 kept >cut
refuse 126 'not a profile of hakmem, or it is cut' "$launcher" profile cut
: >empty
refuse 126 'is empty' "$launcher" profile empty
refuse 127 'no program' "$launcher" profile -- ./none
HAKMEM_OBSERVE=0 refuse 137 'left no profile' "$launcher" profile -- sh -c 'kill -KILL $$'
finish
