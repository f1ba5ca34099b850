# SPDX-License-Identifier: MIT
"""What the pages of these tools share: the head with its style, the beginning of the script, and how they are filled in."""
import html
import json
import re
from pathlib import Path

from .text import plain


def escape(text):
    return html.escape(plain(str(text)), quote=True)


def cell(text, value=None, style=""):
    """`value`: what it is sorted by, if not by its text."""
    return "<td" + (f' class="{style}"' if style else "") + (f' data-value="{value}"' if value is not None else "") + f">{text}</td>"


def pick_cell(label, name="", place="", full=""):
    """A site that a click searches for by its name, which is its label if none is given."""
    label, name = escape(label), escape(name or label)
    below = f'<small title="{escape(full)}">{escape(place)}</small>' if place else ""
    return (f'<td class="name" data-value="{label}"><button type="button" class="pick" data-name="{name}" title="{label}">{label}</button>'
            f"{below}</td>")


def change_cell(change, text, style=""):
    return cell(text, change, f"{style} {'dim' if change == 0 else 'more' if change > 0 else 'less'}".strip())


def number_change_cell(change):
    return change_cell(change, "–" if change == 0 else f"{change:+,}".replace("-", "−"))


def table(attributes, heads, rows, foot="", sorted_by=None):
    """`heads`: (text, note or nothing)."""
    head = "".join(f'<th scope="col"' + (f' title="{escape(note)}"' if note else "") + (" aria-sort=descending" if text == sorted_by else "")
                   + f'><button type="button">{escape(text)}</button></th>' for text, note in heads)
    foot = f"<tfoot><tr>{foot}</tr></tfoot>" if foot else ""
    return (f'<div class="scroll" tabindex="0"><table {attributes}><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody>{foot}'
            "</table></div>")


def script_json(data):
    """For a script of the page, which "<" could end."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def fill(page, folder=Path(__file__).parent, **values):
    """The page, as text, by its template, which lies in the folder."""
    head, script = (Path(__file__).with_name(f"{name}.html").read_text(encoding="utf-8") for name in ("page_head", "page_script"))
    text = (folder / f"{page}_page.html").read_text(encoding="utf-8")
    text = text.replace("@@head@@\n", head).replace("@@script@@\n", script)
    return re.sub(r"@@(\w+)@@", lambda match: values[match.group(1)], text)
