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
