# SPDX-License-Identifier: MIT
"""Names that tests may have, without any tool that builds: each kind with each word of the tree that names a test
somewhere. All real names are among them."""
import re

from .ground import ROOT


def words_of_the_tree():
    tests = ROOT / "tests"
    files = [path for folder in (*tests.glob("*/"), ROOT / "bench", ROOT / "python/tests/lab")
             for path in folder.glob("*.*")]
    stems = {re.sub("^test_", "", re.sub(r"\.[a-z]*$", "", path.name)) for path in files}
    yield from stems
    yield from (f"{stem}_{form}" for stem in stems for form in ("static", "secure", "libc"))
    for path in tests.glob("attach/*.py"):
        yield from re.findall(r"^def case_([a-z0-9_]*)", path.read_text(), re.M)
    yield from re.findall("[a-z0-9_]+", (ROOT / "cmake/hakmem_tests.cmake").read_text())
    bugs = re.findall(r"^BUG\((?:tags_)?(\w+),", (tests / "secure/bugs.cc").read_text(), re.M)
    yield from (*bugs, *(f"tags_{bug}" for bug in bugs))


def likely_tests(preset, regex):
    """Whether one of the names of this form matches."""
    try:
        match = re.compile(regex).search
    except re.error:
        return False
    kinds = [path.name for path in (ROOT / "tests").glob("*/")] + ["bench", "lab", "check"]
    return any(match(f"{preset}/{kind}/{word}") for word in set(words_of_the_tree()) for kind in kinds)


def has_case(name):
    """Whether a test in C has a case of this name: TEST(name), or one with a fixture, such as OS_TEST(name)."""
    pattern = re.compile(rf"^\w*TEST\w*\({re.escape(name)}[,)]", re.M)
    return any(pattern.search(path.read_text()) for path in (ROOT / "tests").glob("*/*.c*"))
