# SPDX-License-Identifier: MIT
"""Runs parts of python's own test suite and writes a line per test: MODULE:NAME and its outcome.

Usage: python_suite.py RESULTS SELECTION...
A selection is MODULE, MODULE:PART (only tests whose name contains PART), or MODULE:-PART,-PART
(only those that contain none). A module that is not installed is left out. The module
"multiprocessing_fork" is made here, as distributions do not always ship it.
"""

import faulthandler
import importlib
import sys
import types
import unittest


class Recorder(unittest.TextTestResult):
    """Keeps the outcome of each test; a subtest's failure is its test's."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.outcomes = {}

    def note(self, test, outcome):
        name = getattr(test, "test_case", test).id()
        if self.outcomes.get(name) != "failed":
            self.outcomes[name] = outcome

    def addSuccess(self, test):
        super().addSuccess(test)
        self.note(test, "passed")

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.note(test, "failed")

    def addError(self, test, error):
        super().addError(test, error)
        self.note(test, "failed")

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self.note(test, "failed")


def load_module(name):
    if name == "multiprocessing_fork":
        module = types.ModuleType("multiprocessing_fork")
        sys.modules[name] = module
        # It looks for the caller's module by its __name__.
        source = (
            "import test._test_multiprocessing as base\n"
            "base.install_tests_in_module_dict(globals(), 'fork')\n"
        )
        exec(compile(source, name, "exec"), module.__dict__)
        return module
    return importlib.import_module("test." + name)


def leaves(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from leaves(item)
        else:
            yield item


def select(selection, modules):
    name, _, parts = selection.partition(":")
    try:
        module = load_module(name)
    except ImportError:
        return
    without = [part[1:] for part in parts.split(",") if part.startswith("-")]
    only = [part for part in parts.split(",") if part and not part.startswith("-")]
    for test in leaves(unittest.defaultTestLoader.loadTestsFromModule(module)):
        words = test.id()
        if any(part in words for part in without):
            continue
        if not only or any(part in words for part in only):
            modules[words] = name
            yield test


def main():
    faulthandler.dump_traceback_later(600, exit=True)
    modules = {}  # of each test
    suite = unittest.TestSuite()
    for selection in sys.argv[2:]:
        suite.addTests(select(selection, modules))
    runner = unittest.TextTestRunner(resultclass=Recorder, verbosity=0)
    result = runner.run(suite)
    with open(sys.argv[1], "w") as results:
        for name in sorted(result.outcomes):
            results.write(f"{modules.get(name, '')}:{name} {result.outcomes[name]}\n")


if __name__ == "__main__":
    main()
