# SPDX-License-Identifier: MIT
"""What the pages of these tools share: the head with its style, the beginning of the script, and how they are filled in."""
import html
import json
import re
from pathlib import Path

from .text import plain


def escape(text):
    return html.escape(plain(str(text)), quote=True)


def script_json(data):
    """For a script of the page, which "<" could end."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def fill(page, **values):
    """The page, as text, by its template."""
    head, script, text = (Path(__file__).with_name(f"{name}.html").read_text(encoding="utf-8")
                          for name in ("page_head", "page_script", f"{page}_page"))
    text = text.replace("@@head@@\n", head).replace("@@script@@\n", script)
    return re.sub(r"@@(\w+)@@", lambda match: values[match.group(1)], text)
