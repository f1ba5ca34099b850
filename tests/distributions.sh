#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The commands of README on fresh distributions, by hand and before a release: it takes a quarter of an hour or more each.
# For each suite debootstrap makes a system without a compiler. There root types `./hakmem run` and `./hakmem test`, and then
# an ordinary user without a network does so with what is installed. tests/README.md has the results.
# Usage, as root: distributions.sh [--full] [SUITE...]   (bookworm trixie sid)
# --full runs all tests instead of the quick ones, TESTS='--only REGEX' those. The systems are made in /var/tmp and deleted at the end; KEEP=1 keeps them.
# The package sources and the network settings of this machine are used, and stand nowhere else.
set -u
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
place=${PLACE:-/var/tmp/hakmem-distributions}
quick=${TESTS---quick}
failures=0

# inside TREE COMMAND: runs it there, as root, with what this machine's network needs.
inside() {
    unshare --mount --propagation private ${network:+--net} bash -c '
        tree=$1
        [[ -z $2 ]] || ip link set lo up
        mount --rbind /dev "$tree/dev" && mount -t proc proc "$tree/proc" && mount -t sysfs sys "$tree/sys" &&
            mount -t tmpfs shm "$tree/dev/shm" || exit
        shift 2
        exec env -i LANG=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
    ' - "$tree" "${network:-}" "${machine[@]}" HOME=/root chroot "$tree" bash -c "$1" </dev/null
}

# What the network of this machine needs, which is copied into the new system: names, certificates, settings of apt and pip.
read_machine() {
    local line
    machine=()
    while IFS= read -r line; do
        machine+=("$line")
    done < <(env | grep -iE '^(pip_index_url|pip_default_timeout|[a-z]+_proxy)=')
    # By a name that the package ca-certificates does not write to.
    [[ ! -f ${SSL_CERT_FILE:-} ]] || machine+=(SSL_CERT_FILE=/etc/machine.pem PIP_CERT=/etc/machine.pem)
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | grep -m 1 '/debian/$')
}

copy_machine() {
    cp -L /etc/resolv.conf /etc/hosts "$tree/etc/"
    apt-config dump | grep -E '^Acquire::(http|https|Check|Retries)' >"$tree/etc/apt/apt.conf.d/99machine"
    [[ ! -f ${SSL_CERT_FILE:-} ]] || cp -L "$SSL_CERT_FILE" "$tree/etc/machine.pem"
    [[ ! -f /etc/pip.conf ]] || cp -L /etc/pip.conf "$tree/etc/"
}

# say WHAT STATUS SECONDS
say() {
    local result=passed
    (($2 == 0)) || { result="FAILED ($2)" && failures=$((failures + 1)); }
    printf '%-9s %-60s %s, %d s\n' "$suite" "$1" "$result" "$3" | tee -a "$place/results"
}

# try WHAT COMMAND: its output goes to a log, and its last lines to the terminal if it fails.
try() {
    local start=$SECONDS status log=$place/$suite-$((++count)).log
    inside "$2" >"$log" 2>&1
    status=$?
    say "$1" $status $((SECONDS - start))
    ((status == 0)) || tail -n 30 "$log"
    return $status
}

check_suite() {
    local tree=$place/$suite count=0 network='' user='setpriv --reuid 1000 --regid 1000 --clear-groups env HOME=/home/user'
    if [[ ! -d $tree ]]; then
        debootstrap --variant=minbase "$suite" "$tree.new" $mirror >"$place/$suite.log" 2>&1 && mv "$tree.new" "$tree" ||
            { say debootstrap 1 0 && return; }
    fi
    copy_machine
    mkdir -p "$tree/opt/hakmem" "$tree/home/user/hakmem"
    (cd -- "$root" && git ls-files -z | tar -c --null -T -) | tee >(tar -x -C "$tree/opt/hakmem") | tar -x -C "$tree/home/user/hakmem"
    chown -R 1000:1000 "$tree/home/user"
    try './hakmem record installs nothing' '/opt/hakmem/hakmem record -- true; [[ $? == 125 && ! -e /usr/bin/gcc ]]' || return
    try './hakmem run, as root' 'cd /opt/hakmem && ./hakmem run -- cat /etc/os-release 2>said && grep serves said && [[ -z $(dpkg --audit) ]]' ||
        return
    try "./hakmem test $quick, as root" "cd /opt/hakmem && nice ./hakmem test $quick && [[ -z \$(dpkg --audit) ]]"
    inside 'gcc --version; ldd --version; cmake --version' 2>/dev/null | grep -E '^(gcc|ldd|cmake)' | tee -a "$place/results"
    network=none
    try './hakmem run, as a user without network' "cd /home/user/hakmem && $user ./hakmem run -- cat /etc/os-release"
    try "./hakmem test $quick, as a user without network" "cd /home/user/hakmem && nice $user ./hakmem test $quick"
    [[ -n ${KEEP-} ]] || rm -rf --one-file-system -- "$tree"
}

((EUID == 0)) || { echo "distributions.sh: needs root" >&2; exit 2; }
type -P debootstrap >/dev/null || { echo "distributions.sh: needs debootstrap; type: apt-get install -y debootstrap" >&2; exit 2; }
[[ ${1-} != --full ]] || { quick='' && shift; }
mkdir -p "$place" && : >"$place/results"
read_machine
(($# != 0)) || set -- bookworm trixie sid
for suite in "$@"; do
    check_suite
done
((failures == 0)) || echo "$failures failures; logs are in $place"
exit $((failures != 0))
