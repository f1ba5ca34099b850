# SPDX-License-Identifier: MIT
"""The page of a timeline in a browser; PAGE names one of the trace that tests/launcher/trace.sh records."""
import os
from pathlib import Path

from browser import BrowserTest


class Browser(BrowserTest):
    def test_a_range(self):
        page = self.run_page(Path(os.environ["PAGE"]).read_text(), "choose(0, 63);")
        self.assertIn("195.3 KiB of them were still in use", page)
