#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tools/check_figures.py finds each figure that is changed in a document, and each statement that the code contradicts.
cd -- "${TEST_ROOT:-$(dirname -- "${BASH_SOURCE[0]}")/../..}" || exit 1
exec python3 -B - <<'END'
import re
import sys

sys.argv[1:] = []
sys.path.insert(0, "tools")
import check_figures as check  # noqa: E402

real, failures = check.read, []


def found(page, text):
    """Whether a check objects to the page if it has this text."""
    check.read = lambda name: text if name == page else real(name)
    problems = [*check.check_facts(), *check.check_locks(), *check.check_glossary(), *check.check_test_folders()]
    check.read = real
    return bool(problems) or any(re.search(pattern, text, re.M) for pattern, _ in check.FALSE)


for page, pattern, _ in check.FACTS:
    text = real(page)
    match = re.search(pattern, text)
    for group in range(1, len(match.groups()) + 1):
        start, end = match.span(group)
        if not found(page, text[:start] + match[group] + "1" + text[end:]):
            failures.append(f"{page}: another figure than {match[group]} in: {match[0][:60]}")
    if not found(page, text[:match.start()] + text[match.end():]):
        failures.append(f"{page}: without: {match[0][:60]}")

for page, statement in [line.split(": ", 1) for line in r"""docs/options.md: A process that ends by `_exit` or by a signal writes none
docs/design/sizes.md: It must stay below 240, because a class code has 8 bits
docs/tour.md: The owner word holds the id of the owner heap and the size class.
docs/tour.md: If this heap owns the slab, the result\n   is the size class.
docs/tour.md: | object of a slab | the size class in the owner word |
docs/tour.md: malloc takes the slow path, `hak__malloc_slow`, in two cases.
docs/tour.md: a second compare-and-swap\n   tells it
docs/design/overview.md: By the owner word of the slice of p: it has the heap and the size class.
docs/glossary.md: The low 8 bits of an owner word: a size class, or the mark of a span.
docs/glossary.md: The other locks: FORK, SAMPLES, HEAPS
docs/glossary.md: - **L2.5**: Another name for the span tier
docs/tuning.md: | "free of a foreign pointer" in the log | `abort_on_foreign=1` |
docs/performance.md: less time than the fastest of seven others in each workload
docs/observability/README.md: The first screen installs the Python package rich
docs/design/laboratory.md: there are 9 samples, each is saved at once
README.md: Eighteen short answers with links.
docs/README.md: Nineteen questions about the inside
docs/benchmarking.md: INCONCLUSIVE is the usual answer. It says that nobody will notice.
docs/migration.md: Each process of hakmem has one pool of memory for all threads.
docs/guarantees.md: the only lock that allocation holds over the kernel
docs/guarantees.md: Each bound on this page has its number, its reason, and the test that fails
README.md: many writes to freed memory, end the program
packaging/debian/finish.sh: holds none: all rights are reserved""".splitlines()]:
    if not found(page, real(page) + "\n" + statement.replace("\\n", "\n") + "\n"):
        failures.append(f"{page}: {statement}")

locks = real("docs/design/overview.md")
if not found("docs/design/overview.md", re.sub(r"^\| 14 .*\n", "", locks, flags=re.M)):
    failures.append("a lock less in the table")
if not found("docs/testing.md", re.sub(r"^\| `tests/secure`.*\n", "", real("docs/testing.md"), flags=re.M)):
    failures.append("a folder of tests less in the table")
print("\n".join(f"FAILED: not noticed: {failure}" for failure in failures) or "each one is noticed")
sys.exit(bool(failures))
END
