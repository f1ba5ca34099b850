# SPDX-License-Identifier: MIT
"""What a process, a file or a symbol table says, as text for a terminal or a page. It may say anything."""
import io
import re

# Terminals obey control characters, also those of ISO 8859; the marks of direction let text look like another one; a lone
# half of a pair cannot be written.
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
BUT_LINES = re.compile(CONTROL.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))


def plain(text):
    """A name or another piece of one line."""
    return CONTROL.sub("\ufffd", text)


NAME_MAX = 4000  # characters of a name; those of C++ templates have more than 1,000


def cut(text, most=NAME_MAX):
    """The text without its middle, if it is longer."""
    end = (most - 1) // 2
    return text if len(text) <= most else text[:most - 1 - end] + "…" + text[len(text) - end:]


STRING = re.compile(r"std::(?:__cxx11::)?basic_string<char, std::char_traits<char>, std::allocator<char> ?>")


def emptied(name, opening, closing):
    """The name with "…" in place of what stands in its outermost brackets; unchanged if they do not match."""
    kept, depth = "", 0
    for character in name:
        depth -= character == closing
        if depth == 0:
            kept += character
        elif depth < 0:
            return name
        if character == opening:
            kept += "…" if depth == 0 else ""
            depth += 1
    return kept if depth == 0 else name


def short_name(name, most):
    """A function's name in at most `most` characters: arguments, then those of templates, then its middle go."""
    name = STRING.sub("std::string", name).replace("(anonymous namespace)", "{anonymous}")
    for opening, closing in ("()", "<>"):
        if len(name) > most and "operator" not in name:
            name = emptied(name, opening, closing)
    return cut(name, most)


class Plain:
    """A stream in place of standard output or standard error: lines, without what a terminal obeys."""

    def __init__(self, stream):
        self.stream = stream
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")

    def write(self, text):
        return self.stream.write(BUT_LINES.sub("\ufffd", text))

    def __getattr__(self, name):
        return getattr(self.stream, name)
