# SPDX-License-Identifier: MIT
"""What the tests of pages share: the form of a page, and a real browser, if BROWSER names a chromium."""
import html
import html.parser
import os
import re
import subprocess
from pathlib import Path

from place import PlaceTest

STARTS = 3
"""A browser sometimes hangs or crashes by itself: it is started again. What a page does is looked at once."""


def browse(directory, page, *words):
    """What chromium prints for the page, after 8 seconds of the page's own time. `words` are more of its arguments."""
    path = Path(directory, "page.html")
    path.write_text(page)
    for start in range(STARTS):
        profile = Path(directory, f"profile{start}")
        try:
            done = subprocess.run(
                [os.environ["BROWSER"], "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
                 "--window-size=1200,1500", "--hide-scrollbars", "--virtual-time-budget=8000", *words, f"file://{path}"],
                capture_output=True, timeout=240, check=True)
            return done.stdout.decode()
        except subprocess.SubprocessError:
            if start == STARTS - 1:
                raise


class Balance(html.parser.HTMLParser):
    """Every element is closed in order; `open` holds those that are not."""
    EMPTY = {"meta", "br", "img", "input"}

    def __init__(self, page):
        super().__init__()
        self.open, self.names = [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.names.append(tag)
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, (tag, self.open, self.getpos())


class BrowserTest(PlaceTest):
    def setUp(self):
        if not os.environ.get("BROWSER"):
            self.skipTest("BROWSER names no chromium")
        super().setUp()

    def run_page(self, page, script=""):
        """The page after its script, and then `script`, which may note() what it sees in self.noted."""
        script = f"<script>{{ const note = (name, value) => {{ document.documentElement.dataset[name] = value; }};{script} }}</script></body>"
        dom = browse(self.place, page.replace("</body>", script), "--dump-dom")
        root = re.search("<html[^>]*>", dom).group(0)
        self.assertNotIn("data-errors", root)
        self.assertIn('data-ready="yes"', root)
        self.noted = {name: html.unescape(value) for name, value in re.findall(r'data-([a-z]+)="([^"]*)"', root)}
        return dom
