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


def fill(page, folder=Path(__file__).parent, **values):
    """The page, as text, by its template, which lies in the folder."""
    head, script = (Path(__file__).with_name(f"{name}.html").read_text(encoding="utf-8") for name in ("page_head", "page_script"))
    text = (folder / f"{page}_page.html").read_text(encoding="utf-8")
    text = text.replace("@@head@@\n", head).replace("@@script@@\n", script)
    return re.sub(r"@@(\w+)@@", lambda match: values[match.group(1)], text)
