"""`./hakmem profile --compare OLD`: what a profile has more and less than another one, by site."""
from dataclasses import dataclass

from .sites import own_frame
from .text import plain


@dataclass
class Change:
    """One site in both profiles. Lines move from version to version, so a site is the name and the function here."""
    label: str
    old_bytes: int = 0
    new_bytes: int = 0
    old_count: int = 0
    new_count: int = 0

    @property
    def bytes(self):
        return self.new_bytes - self.old_bytes


def label_of(stack):
    frame = own_frame(stack.frames)
    return (f"[{stack.site_name}] " if stack.site_name else "") + (frame.label() if frame else "unknown (no stack)")


def changes(old, new, measure, count):
    """The sites of the two lists of profiles, the largest change first."""
    found = {}
    for profiles, side in ((old, "old"), (new, "new")):
        for profile in profiles:
            for stack in profile.stacks:
                change = found.setdefault(label_of(stack), Change(label_of(stack)))
                for what, name in (("bytes", measure), ("count", count)):
                    field = f"{side}_{what}"
                    setattr(change, field, getattr(change, field) + stack.sums[name])
    return sorted((change for change in found.values() if change.bytes or change.new_bytes),
                  key=lambda change: (-abs(change.bytes), change.label))


def folded_lines(old, new, measure):
    """Lines "stack old new", as difffolded.pl of the flame graph programs writes them. Frames have no lines: see Change."""
    sums = {}
    for profiles, side in ((old, 0), (new, 1)):
        for profile in profiles:
            for stack in profile.stacks:
                frames = [plain(frame.label()).replace(";", ":") for frame in reversed(stack.shown_frames())] or ["unknown"]
                sums.setdefault(";".join(frames), [0, 0])[side] += stack.sums[measure]
    return [f"{frames} {before} {after}\n" for frames, (before, after) in sums.items() if before or after]


def print_changes(old, new, measure, count, most, in_words):
    def signed(value, word=str):
        return f"{'+' if value > 0 else '-' if value < 0 else ''}{word(abs(value))}"

    rows = changes(old, new, measure, count)
    total = Change("all sites", *(sum(getattr(row, name) for row in rows)
                                  for name in ("old_bytes", "new_bytes", "old_count", "new_count")))
    print(f"{'change':>12} {'before':>12} {'now':>12} {'blocks':>11}  site")
    for row in [total, *[row for row in rows if row.bytes][:most]]:
        print(f"{signed(row.bytes, in_words):>12} {in_words(row.old_bytes):>12} {in_words(row.new_bytes):>12} "
              f"{signed(row.new_count - row.old_count):>11}  {row.label}")
    left = sum(bool(row.bytes) for row in rows) - most
    if left > 0:
        print(f"and {left} more sites that changed (--sites N shows more)")
