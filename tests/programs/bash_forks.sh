#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Bash forks for every $( ), ( ) and pipe: thousands of short children of a process with a heap.
. "$(dirname "$0")/lib.sh"

cat >"$work/forks.bash" <<'END'
declare -A table
for ((i = 0; i < $1; i++)); do
    value=$(echo "$i $((i * i))")
    table[$i]=$value
    (( i % 10 )) || table[pipe$i]=$(printf '%s\n' "${table[@]}" | sort -n | md5sum | cut -c1-8)
    (( i % 50 )) || { (sleep 0; echo "background $i" >/dev/null) & }
done
wait
text=
for ((i = 0; i < 20000; i++)); do
    text+="line $i;"
done
echo "${#text} ${#table[@]}"
for ((i = 0; i < $1; i += 10)); do
    echo "${table[$i]} ${table[pipe$i]}"
done
cat <(echo one) <(echo two) | while read -r line; do echo "$line"; done
mapfile -t lines < <(seq 1 20000)
echo "${lines[*]: -3}"
exec sh -c 'echo last; exit 7'
END

prove bash -c true
same 1 bash "$work/forks.bash" "$(scale 400 3000)"
