# SPDX-License-Identifier: MIT
"""Profiles in the format of pprof (github.com/google/pprof, proto/profile.proto): the fields that a heap profile has."""
import gzip
import os

from .text import plain

# The fields by name: number, and the fields of a message. A list of numbers is written packed.
MESSAGES = {
    "ValueType": {"type": 1, "unit": 2},
    "Label": {"key": 1, "str": 2, "num": 3},
    "Sample": {"location_id": 1, "value": 2, "label": (3, "Label")},
    "Mapping": {"id": 1, "memory_start": 2, "memory_limit": 3, "file_offset": 4, "filename": 5, "build_id": 6,
                "has_functions": 7, "has_filenames": 8, "has_line_numbers": 9, "has_inline_frames": 10},
    "Line": {"function_id": 1, "line": 2},
    "Location": {"id": 1, "mapping_id": 2, "address": 3, "line": (4, "Line")},
    "Function": {"id": 1, "name": 2, "system_name": 3, "filename": 4},
    "Profile": {"sample_type": (1, "ValueType"), "sample": (2, "Sample"), "mapping": (3, "Mapping"),
                "location": (4, "Location"), "function": (5, "Function"), "string_table": 6,
                "time_nanos": 9, "duration_nanos": 10, "period_type": (11, "ValueType"), "period": 12, "default_sample_type": 14},
}
VALUE_MAX, ADDRESS_MAX = (1 << 63) - 1, (1 << 64) - 1  # of int64 and uint64
VALUES = (("alloc_objects", "count", "allocated_count"), ("alloc_space", "bytes", "allocated_bytes"),
          ("inuse_objects", "count", "live_count"), ("inuse_space", "bytes", "live_bytes"),
          ("peak_objects", "count", "peak_count"), ("peak_space", "bytes", "peak_bytes"))


def varint(number):
    """Seven bits a byte, the lowest first; negative numbers as 64 bits."""
    number &= (1 << 64) - 1
    data = bytearray()
    while number >= 0x80:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def counted(number, data):
    """A field whose value is bytes."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def encode(name, values):
    """The message of that name with these fields, in the format of protobuf."""
    data = bytearray()
    for field, value in values.items():
        number = MESSAGES[name][field]
        if isinstance(number, tuple):
            number, kind = number
            for one in value if isinstance(value, list) else [value]:
                data += counted(number, encode(kind, one))
        elif isinstance(value, list) and value and isinstance(value[0], str):
            for text in value:
                data += counted(number, text.encode("utf-8", "replace"))
        elif isinstance(value, list):
            data += counted(number, b"".join(map(varint, value)))
        elif value:
            data += varint(number << 3) + varint(int(value))
    return bytes(data)


class Builder:
    """Numbers strings, functions, mappings and locations as they come."""

    def __init__(self):
        self.profile = {"sample_type": [], "sample": [], "mapping": [], "location": [], "function": [], "string_table": []}
        self.strings = {}
        self.ids = {"function": {}, "mapping": {}, "location": {}}
        self.string("")

    def string(self, text):
        text = plain(text)
        if text not in self.strings:
            self.strings[text] = len(self.strings)
            self.profile["string_table"].append(text)
        return self.strings[text]

    def number(self, kind, key, fields):
        """The id of the entry with this key; makes it from `fields()` if it is new."""
        ids = self.ids[kind]
        if key not in ids:
            ids[key] = len(ids) + 1
            self.profile[kind].append({"id": ids[key], **fields()})
        return ids[key]

    def mapping(self, path, mapping=None):
        """`mapping`: where a process has the file."""
        place = {} if mapping is None else {
            "memory_start": mapping.start, "memory_limit": mapping.end, "file_offset": mapping.offset,
            "build_id": self.string(mapping.build_id)}
        return self.number("mapping", (path, mapping), lambda: {
            **place, "filename": self.string(path or "[unknown]"), "has_functions": False, "has_filenames": False,
            "has_line_numbers": False, "has_inline_frames": False})

    def has_names(self, number, frame):
        """pprof looks itself for the names of a file that has none here."""
        mapping = self.profile["mapping"][number - 1]
        for name, value in (("functions", frame.function), ("filenames", frame.file), ("line_numbers", frame.line),
                            ("inline_frames", frame.file)):
            mapping[f"has_{name}"] |= bool(value)

    def function(self, frame):
        return self.number("function", (frame.label(), frame.file), lambda: {
            "name": self.string(frame.label()), "system_name": self.string(frame.label()),
            "filename": self.string(frame.file or os.path.basename(frame.module))})

    def location(self, frame, mappings):
        """One location for each frame, inlined or not: pprof shows the same stacks. Its address is that of the process, as
        far as the profile says where the file was."""
        address, mapping = place_of(frame, mappings)

        def fields():
            number = self.mapping(frame.module, mapping)
            self.has_names(number, frame)
            return {"mapping_id": number, "address": address & ADDRESS_MAX,
                    "line": [{"function_id": self.function(frame), "line": frame.line}]}
        return self.number("location", (frame, mapping), fields)


def place_of(frame, mappings):
    """The frame's address in the process, and the mapping that has it; else the address in the file, and None."""
    for mapping in mappings.get(frame.module, ()):
        address = frame.offset + (mapping.bias or 0)
        if mapping.bias is not None and mapping.start <= address < mapping.end:
            return address, mapping
    return frame.offset, None


def add_program(builder, profile):
    """The first mapping is the program's, as readers of profiles expect. It may have another name than its file."""
    files = [mapping for mapping in profile.mappings if mapping.path.startswith("/")]
    named = [mapping for mapping in files if os.path.basename(mapping.path) == os.path.basename(profile.program)]
    for mapping in (named or files)[:1]:  # the program lies below its libraries
        builder.mapping(mapping.path, mapping)


def write_pprof(profiles, file, shown_first="inuse_space"):
    """Writes all profiles as one. `shown_first`: one of VALUES. A sample has a label `site` if the program named one, `thread` and
    `thread_id` if the profile keeps threads apart, and `process` if there are several processes."""
    builder = Builder()
    made = builder.profile
    for kind, unit, _ in VALUES:
        made["sample_type"].append({"type": builder.string(kind), "unit": builder.string(unit)})
    made["default_sample_type"] = builder.string(shown_first)
    made["period_type"] = {"type": builder.string("space"), "unit": builder.string("bytes")}
    for profile in profiles:
        made["period"] = profile.period
        made["time_nanos"] = min(max(made.get("time_nanos", 0), profile.time * 10**9), VALUE_MAX)
        made["duration_nanos"] = min(max(made.get("duration_nanos", 0), profile.duration_us * 1000), VALUE_MAX)
        add_program(builder, profile)
        mappings = {}
        for mapping in profile.mappings:
            mappings.setdefault(mapping.path, []).append(mapping)
        for stack in profile.stacks:
            if not any(stack.sums[name] for _, _, name in VALUES):
                continue
            labels = []
            if stack.site_name:
                labels.append({"key": builder.string("site"), "str": builder.string(stack.site_name)})
            if stack.thread:
                labels.append({"key": builder.string("thread"), "str": builder.string(stack.thread.name)})
                labels.append({"key": builder.string("thread_id"), "num": stack.thread.id})
            if len(profiles) > 1:
                labels.append({"key": builder.string("process"), "num": profile.pid})
            made["sample"].append({"location_id": [builder.location(frame, mappings) for frame in stack.shown_frames()],
                                   "value": [min(stack.sums[name], VALUE_MAX) for _, _, name in VALUES], "label": labels})
    with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed:
        packed.write(encode("Profile", made))
