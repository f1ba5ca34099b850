# SPDX-License-Identifier: MIT
"""A page in a real browser, for the tests: BROWSER names a chromium."""
import os
import subprocess
from pathlib import Path

STARTS = 3
"""A browser sometimes hangs or crashes by itself: it is started again. What a page does is looked at once."""


def browse(directory, page, *words, fragment=""):
    """What chromium prints for the page, after 8 seconds of the page's own time. `words` are more of its arguments."""
    path = Path(directory, "page.html")
    path.write_text(page)
    for start in range(STARTS):
        profile = Path(directory, f"profile{start}")
        try:
            done = subprocess.run(
                [os.environ["BROWSER"], "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
                 "--window-size=1200,1500", "--hide-scrollbars", "--virtual-time-budget=8000", *words, f"file://{path}{fragment}"],
                capture_output=True, timeout=240, check=True)
            return done.stdout.decode()
        except subprocess.SubprocessError:
            if start == STARTS - 1:
                raise
