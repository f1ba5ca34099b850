#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that what the documents name exists. Usage: check_docs.py [ROOT]

In the documents (PAGES and docs/**/*.md), of everything in `backticks` (and of relative links):
links                    lead to files and headings that exist
paths and file names     exist (under the root, src/, include/, or beside the document)
functions, identifiers   stand somewhere in the code
HAKMEM_NAME, --option    are known to the code (HAKMEM_NAME: as NAME or as the run option `name`)
./hakmem COMMAND         is a command of the launcher
docs/decisions/          each record has a number of its own and its sections, and stands once in README.md of the folder
words                    all Markdown of the tree together has at most WORDS_MAX
lines                    have at most 120 columns, but for table rows, fenced code, and lines that are one link
history                  is told in docs/decisions/ and CHANGELOG.md only: HISTORY lists words that betray it, in
                         the other documents, src/ and include/ (where `no longer` may be said of a run)
sources                  that comments of src/ and include/ name by their layer, such as core/lock.h, exist
Fenced code blocks are examples and not looked at, but for ./hakmem commands and HAKMEM_ names. In docs/migration.md, the
first column of a table has names of other allocators, which are not looked for.
"""
import re
import sys
from pathlib import Path

CODE_PLACES = ["src", "include", "bench", "trace", "run", "tests", "tools", "cmake", "packaging", "lab", "python", "bindings",
               "docs/examples"]
CODE_FILES = ["hakmem", "CMakeLists.txt", "CMakePresets.json", ".ci/run"]
SUFFIXES = r"(?:c|h|cc|cpp|py|sh|md|txt|toml|json|cmake|in|rs|so|a)"
DESIGN_SECTIONS = ["context", "decision", "consequences"]
PAGES = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "src/README.md", "tests/README.md", "lab/README.md", "trace/README.md"]
WORDS_MAX = 52_000
EXPERIMENT_SECTIONS = ["question", "expectation", "result", "decision", "learned"]
LINE_MAX = 120
FOREIGN_NAMES = "migration.md"
ONE_LINK = re.compile(r"\s*([-*] )?(!?\[[^]]*\]\([^)]*\)|<?\w+://\S+|\[[^]]*\]:\s+\S+)[.,;:]?$")
HISTORY = ["used to", "once was", "was once", "there was once", "was replaced", "formerly", "previously", "originally",
           "prototype", r"(since|until|before) (record |decision )?\[?0\d{3}\b"]
NO_LONGER = ["no longer"]
BUILT = re.compile(r"^build/|libhakmem(-recorder|-secure)?\.(so|a)|^/|^~|://")


class Tree:
    def __init__(self, root):
        self.root = root
        files = [p for place in CODE_PLACES for p in (root / place).rglob("*") if p.is_file()]
        files = [p for p in files + [root / name for name in CODE_FILES] if p.is_file() and p.suffix != ".pyc"]
        self.names = {p.name for p in root.rglob("*") if ".git" not in p.parts and "build" not in p.parts}
        text = "\n".join(p.read_text(errors="replace") for p in files if p.name != "check_docs.py")
        self.words = set(re.findall(r"\w+", text))
        self.options = set(re.findall(r"--[a-z][\w-]*", text))
        places = [root / "python/hakmem/help/help.txt", root / "python/hakmem/cli.py"]
        self.commands = {a or b for place in places if place.exists() for a, b in re.findall(r'^~?  ([a-z]+)  |"([a-z]+)"', place.read_text(), re.M)}

    def has_path(self, name, beside):
        places = [self.root, self.root / "src", self.root / "include", beside]
        name = name.removeprefix("./").rstrip("/")
        if "*" in name:
            return any(any(True for _ in place.glob(name)) for place in places)
        if any((place / name).exists() for place in places):
            return True
        return "/" not in name and name in self.names

    def knows_option(self, name):
        """HAKMEM_NAME in full, or NAME as a lower-case word of the options table."""
        return name in self.words or name.removeprefix("HAKMEM_").lower() in self.words


def problem_of(token, tree, beside):
    """None, or what is wrong with the token in backticks."""
    if re.search(r"[<>{}$…]|NNNN|\.\.\.", token) and not token.startswith("./hakmem"):
        return None
    command = re.match(r"\./hakmem\s+([a-z][\w-]*)", token)
    if command:
        return None if command.group(1) in tree.commands else f"no command {command.group(1)} of ./hakmem"
    for name in re.findall(r"\bHAKMEM_[A-Z0-9_]+\b", token):
        if not tree.knows_option(name):
            return f"{name} is known to no code"
    for option in re.findall(r"(?:^|\s)(--[a-z][\w-]*)", token):
        if option not in tree.options:
            return f"{option} is an option of nothing"
    if BUILT.search(token) or re.search(r"\s", token.split("(")[0].strip()):
        match = re.fullmatch(r"struct (\w+)", token)
        return f"no struct {match.group(1)}" if match and match.group(1) not in tree.words else None
    if re.fullmatch(rf"[\w./*-]*\w\.{SUFFIXES}|\.?[\w.-]+(/[\w.*-]+)*/", token) or \
            re.fullmatch(r"(src|include|bench|tests|tools|docs|cmake|packaging|\.ci)/[\w./*-]+", token):
        return None if tree.has_path(token, beside) else f"no file {token}"
    call = re.fullmatch(r"(\w+)(?:\(.*\))?", token)
    if call and ("(" in token or "_" in token) and not re.fullmatch(r"[A-Z]\w*|\d\w*", call.group(1)):
        return None if call.group(1) in tree.words else f"no {call.group(1)} in the code"
    if call and re.match(r"(HAK|hak)_", token) and token not in tree.words:
        return f"no {token} in the code"
    return None


def heading_names(path):
    """What links to the headings of a document call them, as GitHub does."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S)
    return {re.sub(r"[^\w\- ]", "", line.lower()).strip().replace(" ", "-") for line in re.findall(r"^#+ (.*)", text, re.M)}


def problem_of_link(path, target):
    """None, or what is wrong with a link of the document."""
    name, _, heading = target.partition("#")
    place = path.parent / name if name else path
    if not place.exists():
        return f"link to {name}, which does not exist"
    if heading and place.suffix == ".md" and heading not in heading_names(place):
        return f"link to {target}: there is no such heading"
    return None


def check_document(path, tree):
    problems, fenced = [], False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        if fenced:
            tokens = re.findall(r"\./hakmem +[a-z][\w-]*|\bHAKMEM_[A-Z0-9_]+\b", line)
        else:
            if len(line) > LINE_MAX and not line.lstrip().startswith("|") and not ONE_LINK.match(line):
                problems.append((number, f"line of {len(line)} columns, {LINE_MAX} allowed"))
            own = re.sub(r"^\|[^|]*\|", "|", line) if path.name == FOREIGN_NAMES else line
            tokens = re.findall(r"`([^`]+)`", own)
            for target in re.findall(r"\]\(([^)\s]+)[^)]*\)", line):
                if "://" not in target and (text := problem_of_link(path, target)):
                    problems.append((number, text))
        for token in tokens:
            if text := problem_of(token.strip(), tree, path.parent):
                problems.append((number, f"`{token}`: {text}"))
    return problems


def check_history(path, words):
    """The words may stand in two lines, also of a comment; fenced code is not looked at."""
    text = re.sub(r"^```.*?^```", lambda block: "\n" * block.group().count("\n"), path.read_text(), flags=re.M | re.S)
    pattern = r"\b(" + "|".join(word.replace(" ", r"[\s*#>]+") for word in words) + r")(?!\w)"
    return [(text.count("\n", 0, match.start()) + 1, f"'{' '.join(match.group().split())}' tells history")
            for match in re.finditer(pattern, text, re.I)]


def check_sources(path, root):
    """The files of src that a comment names; check_layers.py looks at includes."""
    text = re.sub("^#include.*", "", path.read_text(), flags=re.M)
    layers = "|".join(place.name for place in (root / "src").iterdir() if place.is_dir())
    return [(text.count("\n", 0, match.start()) + 1, f"no file src/{match.group()}")
            for match in re.finditer(rf"(?<![\w/])(?:{layers})/\w+\.[ch]\b", text)
            if not (root / "src" / match.group()).exists()]


def check_records(root):
    problems, numbers = [], {}
    folder = root / "docs/decisions"
    for path in sorted(folder.glob("*.md")):
        match = re.fullmatch(r"(\d{4})-[a-z0-9-]+\.md", path.name)
        if not match:
            if path.name != "README.md":
                problems.append(f"{path.relative_to(root)}: not named NNNN-title.md")
            continue
        number = int(match.group(1))
        if number in numbers:
            problems.append(f"{path.relative_to(root)}: number {number} is also {numbers[number]}")
        numbers[number] = path.name
        headings = [line.lstrip("# ").lower() for line in path.read_text().splitlines() if line.startswith("##")]
        design = any("context" in heading for heading in headings)
        for section in DESIGN_SECTIONS if design else EXPERIMENT_SECTIONS:
            if not any(section in heading for heading in headings):
                problems.append(f"{path.relative_to(root)}: no section '{section}'")
    return problems


def check_index(root):
    """README.md of the records lists each of them once."""
    folder = root / "docs/decisions"
    index = folder / "README.md"
    if not index.exists():
        return ["docs/decisions/README.md: missing"]
    text = index.read_text()
    listed = re.findall(r"^- \[\d{4}\]\((\d{4}-[a-z0-9-]+\.md)\) ", text, re.M)
    return [f"docs/decisions/README.md: {path.name} stands in {listed.count(path.name)} lines, not in one"
            for path in sorted(folder.glob("[0-9]*.md")) if listed.count(path.name) != 1]


def check_words(root):
    pages = [path for path in root.rglob("*.md") if not any(part == "build" or part[0] == "." for part in path.relative_to(root).parts)]
    count = sum(len(path.read_text().split()) for path in pages)
    return [f"{len(pages)} Markdown files have {count} words, at most {WORDS_MAX}"] if count > WORDS_MAX else []


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    tree = Tree(root)
    documents = [*(root / name for name in PAGES), *sorted((root / "docs").rglob("*.md"))]
    count = 0
    for path in documents:
        if not path.exists():
            print(f"{path.relative_to(root)}: missing")
            count += 1
            continue
        past = path.name == "CHANGELOG.md" or path.parent.name == "decisions"
        for number, text in check_document(path, tree) + ([] if past else check_history(path, HISTORY + NO_LONGER)):
            print(f"{path.relative_to(root)}:{number}: {text}")
            count += 1
    for path in sorted(file for place in ("src", "include") for file in (root / place).rglob("*.[ch]*")):
        for number, text in check_history(path, HISTORY) + check_sources(path, root):
            print(f"{path.relative_to(root)}:{number}: {text}")
            count += 1
    for text in check_records(root) + check_index(root) + check_words(root):
        print(text)
        count += 1
    print(f"check_docs: {len(documents)} documents, {count} problems")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
