#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Whether blocks lie on the memory node of their thread: starts a machine with four nodes (qemu, without KVM) whose only
# program is guest.c on the library, and checks what it prints. It takes one to five minutes, so no test run starts it.
#
#   bash tests/numa/numa.sh LIBRARY [NAME=VALUE...]     the options go to the library, such as HAKMEM_NUMA=0
#
# KERNEL names the kernel, else the newest one of /boot is taken, else apt-get downloads one. The status is 77 if
# something is missing.
set -u
library=$(realpath -- "${1:?usage: numa.sh LIBRARY [NAME=VALUE...]}")
shift
cd -- "$(dirname -- "${BASH_SOURCE[0]}")" || exit 1
[[ -f $library ]] || { echo "numa.sh: there is no library $library; build it first" >&2; exit 1; }

missing() {
    echo "numa.sh: skipped: $1"
    exit 77
}
for tool in qemu-system-x86_64 cpio cc; do
    command -v "$tool" >/dev/null || missing "$tool is not installed (Debian: qemu-system-x86, cpio, gcc)"
done
[[ $(uname -m) == x86_64 ]] || missing "the guest is an x86-64 machine, and this is none"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

kernel=${KERNEL:-$(find /boot -name 'vmlinuz*' 2>/dev/null | sort -V | tail -1)}
if [[ -z $kernel ]]; then
    package=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -1)
    (cd "$scratch" && apt-get download "${package:-linux-image-amd64}" >/dev/null 2>&1 &&
        dpkg-deb --fsys-tarfile ./*.deb | tar -x --wildcards './boot/vmlinuz*') 2>/dev/null
    kernel=$(find "$scratch" -name 'vmlinuz*' | head -1)
fi
[[ -r $kernel ]] || missing "there is no kernel in /boot, and apt-get has none (KERNEL=FILE names one)"

# The program, the library, and what the loader needs, each under its own path.
root=$scratch/root
mkdir -p "$root"
cc -O1 -pthread -o "$root/init" guest.c || exit 1
cp -- "$library" "$root/libhakmem.so"
for file in $(ldd "$root/init" "$library" | grep -o '/[^ ]*\.so[^ ]*' | grep -v ':$' | sort -u); do
    mkdir -p "$root$(dirname -- "$file")"
    cp -L -- "$file" "$root$file"
done
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$scratch/initramfs" || exit 1

machine=(-machine q35 -cpu max -accel tcg,thread=multi -smp 4 -m 2G -display none -nodefaults -serial stdio -no-reboot)
for node in 0 1 2 3; do
    machine+=(-object "memory-backend-ram,id=m$node,size=512M" -numa "node,nodeid=$node,cpus=$node,memdev=m$node")
done
# The kernel passes words that it does not know to the program's environment. Free memory stays for a minute: memory
# that went back would be touched anew, wherever it was.
timeout 900 qemu-system-x86_64 "${machine[@]}" -kernel "$kernel" -initrd "$scratch/initramfs" -append \
    "console=ttyS0 quiet panic=-1 numa_balancing=disable LD_PRELOAD=/libhakmem.so HAKMEM_PURGE_DELAY_MS=60000 $*" \
    </dev/null >"$scratch/output" 2>&1
tr -d '\r' <"$scratch/output" | grep '^numa:' | sed 's/^numa: //'
tr -d '\r' <"$scratch/output" | awk '
    /^numa: moved/ { moves++; bad += $6 < 0 || $6 > 1000 }
    /^numa: .* of [1-9]/ { phases++; bad += $(NF - 2) < 0.99 * $NF }
    /^numa: end/ { ended = 1 }
    END { exit !(ended && bad == 0 && phases == 4 && moves == 4) }' ||
    { tail -5 "$scratch/output" >&2; echo "numa.sh: blocks lie on other nodes, or the guest did not end" >&2; exit 1; }
