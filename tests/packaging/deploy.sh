#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The examples of docs/deploy/README.md: systemd accepts the settings, a program that runs with them writes its report
# there, and the YAML is well-formed. What has no tool here is left out.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
page=$TEST_ROOT/docs/deploy/README.md

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# block LANGUAGE: the first fenced block of that language.
block() {
    awk -v fence="\`\`\`$1" '/^```/ && inside { exit } inside { print } $0 == fence { inside = 1 }' "$page"
}

mkdir "$scratch/proved.service.d" "$scratch/logs"
printf '[Service]\nExecStart=/bin/true\n' >"$scratch/proved.service"
block ini >"$scratch/proved.service.d/hakmem.conf"
if command -v systemd-analyze >/dev/null; then
    said=$(systemd-analyze verify "$scratch/proved.service" 2>&1 | grep -E 'hakmem\.conf|proved\.service' || true)
    [[ -z $said ]] || fail "systemd says: $said"
    echo "systemd accepts the settings"
fi

settings=()
while IFS= read -r setting; do
    setting=${setting//\/usr\/local\/lib/$TEST_BUILD}
    settings+=("${setting//\/var\/log\/hakmem\/%N/$scratch/logs}")
done < <(sed -n 's/^Environment=//p' "$scratch/proved.service.d/hakmem.conf")
((${#settings[@]} == 4)) || fail "${#settings[@]} settings of the environment"
env "${settings[@]}" bash -c 'exit 0'
grep -q '"bytes_mapped"' "$scratch/logs/report.json" || fail "no report"
echo "a program with these settings writes its report"

python3 -c 'import yaml' 2>/dev/null || exit 0
block yaml | python3 -c '
import sys, yaml
pod = yaml.safe_load(sys.stdin)["spec"]
volumes = {volume["name"] for volume in pod["volumes"]}
for container in pod["initContainers"] + pod["containers"]:
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(mounts) <= volumes, mounts
    for variable in container.get("env", []):
        value = variable["value"]
        assert isinstance(value, str) and (value[0] != "/" or value.rpartition("/")[0] in mounts.values()), value
' || fail "the pod is not right"
echo "the pod is well-formed"
