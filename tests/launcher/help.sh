#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The help of every command prints all options that the command takes, in one form, without a network and without packages:
# Python sees its standard library alone. A wrong option is one sentence that names the help.
source "$(dirname -- "${BASH_SOURCE[0]}")/support.sh"
type -P python3 >/dev/null || { echo "skipped: no python3, which has the help of most commands"; exit 77; }
unset TERM COLUMNS PYTHONPATH LABORATORY_PYTHON ${!HAKMEM_*}
export HOME=$scratch XDG_CACHE_HOME=$scratch/cache
mkdir "$scratch/bin"
printf '#!/bin/sh\nexec "%s" -S "$@"\n' "$python" >"$scratch/bin/python3"
chmod +x "$scratch/bin/python3"
export PATH=$scratch/bin:$PATH
alone=()
! unshare -n true 2>/dev/null || alone=(unshare -n) # a machine that lets nobody do this has no way to show it

commands=($("$launcher" help | sed -nE 's/^  ([a-z]+)  .*/\1/p'))
((${#commands[@]} > 20)) || fail "help lists ${commands[*]}"
for command in "${commands[@]}"; do
    try "${alone[@]}" "$launcher" --no-install "$command" --help </dev/null
    [[ $status == 0 && -z $errors ]] || fail "$command --help: status $status, $errors"
    printf '%s\n' "$output" >"$scratch/$command.help"
    [[ $command == help ]] || expect 0 "$output" '^$' "$launcher" help "$command"
    [[ $command == help ]] || expect 0 "$output" '^$' "$launcher" "$command" -h
    [[ $command == help ]] || for words in --no-such-option '--no-such-option=1 x' '--no-such-option -- true'; do
        refuse 2 "^hakmem: $command: unknown option '--no-such-option.*' \\(\\./hakmem $command --help\\)$" \
            "$launcher" --no-install "$command" $words </dev/null
    done
done
refuse 2 "there is no command 'no-such'; ./hakmem help lists them" "$launcher" no-such
refuse 2 "bench: --runs needs a whole number of 1 or more, not 'x' \\(./hakmem bench --help\\)" "$launcher" bench --runs x
refuse 2 'compare: which program\? \(./hakmem compare --help\)' "$launcher" --no-install compare
refuse 2 'tune: which program' "$launcher" --no-install tune --
for command in compare tune 'ab --b purge_delay_ms=0'; do
    refuse 127 "there is no program 'no-such-program' in PATH" "$launcher" --no-install $command -- no-such-program
    refuse 127 "there is no program './no-such'" "$launcher" --no-install $command ./no-such x
done
refuse 2 "top: --batch needs a number, not 'x' \\(./hakmem top --help\\)" "$launcher" top --batch x
refuse 2 'stat: PID is missing \(./hakmem stat --help\)' "$launcher" stat
refuse 2 "peers: 'fly' is none of .*install.* \\(./hakmem peers --help\\)" "$launcher" peers fly
[[ ! -e $scratch/cache ]] || fail "a help has made files: $(find "$scratch/cache" | head -n 3)"

# The form, and that each option is in it. Reads what stands above.
"$python" -I -B - "$TEST_ROOT" "$scratch" "${commands[@]}" <<'END_PY' || failures=$((failures + 1))
import ast
import re
import sys
from pathlib import Path

root, folder, commands = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
sys.path.insert(0, str(root / "python"))
from hakmem import build, testing
from hakmem.lab import options
from hakmem.look.__main__ import COMMANDS, parser_of
from hakmem.words import term_of

IN_C = {"run": ("run",), "record": ("trace",), "replay": ("trace",)}  # files of run/
failed = []


def terms(command):
    """What the help has to have, from what reads the words."""
    if command in IN_C:
        code = "".join((root / f"run/{name}.c").read_text() for name in IN_C[command])
        if command != "run":
            start = code.index(f"read_{command}_options(")
            code = code[start:code.index("\n}\n", start)]
        return [*re.findall(r'"(--?[a-z][a-z-]*)=?"', code), "-h, --help"]
    if command == "version":
        return ["-h, --help"]
    parsers = {"build": build.parser, "test": testing.parser}
    parser = parsers[command]() if command in parsers else \
        options.parser_of(command) if command in options.COMMANDS else parser_of(command)[1]
    return [term_of(action) for action in parser._actions if action.option_strings]


def check(command, text):
    lines = text.split("\n")
    usage, about, *_ = text.split("\n\n")
    yield max(map(len, lines)) <= 80, "wider than 80 columns"
    yield all(re.match(rf"{'Usage:' if i == 0 else '      '} ./hakmem {command}( |$)", line)
              for i, line in enumerate(usage.split("\n"))), "its first lines are no usage"
    yield re.fullmatch(r"[A-Z][^\n]*.*[.?]", about, re.S), "no sentence says what it does"
    yield not re.search(r"^\S.*:$", text.replace(about, "").partition("The options for --set")[0], re.M), "a heading"
    # One table of two columns: a term, at least two spaces, what it means. The help itself is the last.
    table = re.search(r"\n\n((?: .*\n)+)", text)[1].rstrip("\n").split("\n")
    column = len(re.match(r"  -h, --help +", table[-1])[0]) if table[-1].startswith("  -h, --help ") else 0
    yield column, "its table does not end with --help"
    for row in table:
        yield re.match(r"  \S.*  $| +$", row[:column]) and row[column:column + 1].strip(), f"the form of: {row}"
    yield max(len(row[:column].rstrip()) for row in table) == column - 2, "a column too wide"
    for term in terms(command):
        yield re.search(rf"^  (-\w, )?{re.escape(term)}[ =,\[]", text, re.M), f"no {term}"


for command in commands:
    if command != "help":
        text = (folder / f"{command}.help").read_text()
        failed += [f"{command} --help: {what}" for is_right, what in check(command, text) if not is_right]

# Python 3.9 reads `X | None` in an annotation only where annotations are not evaluated.
for path in [*root.glob("python/hakmem/*.py"), *root.glob("python/hakmem/look/*.py"), root / "python/hakmem/lab/options.py"]:
    tree = ast.parse(path.read_text())
    if any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body):
        continue
    notes = [note for node in ast.walk(tree) for note in (getattr(node, "annotation", None), getattr(node, "returns", None)) if note]
    failed += [f"{path.name}:{note.lineno}: Python 3.9 cannot read this annotation" for note in notes
               for part in ast.walk(note) if isinstance(part, ast.BinOp)]
print(*failed, sep="\n", file=sys.stderr)
sys.exit(1 if failed else 0)
END_PY
finish
