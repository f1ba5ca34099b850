"""Profiles in the format of pprof (github.com/google/pprof, proto/profile.proto): the fields that a heap profile has."""
import gzip
import os

from .text import plain
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

TYPES = {"int64": 3, "uint64": 4, "bool": 8, "string": 9, "message": 11}
MESSAGES = {  # name: (field, number, type, repeated)
    "ValueType": [("type", 1, "int64", False), ("unit", 2, "int64", False)],
    "Label": [("key", 1, "int64", False), ("str", 2, "int64", False), ("num", 3, "int64", False),
              ("num_unit", 4, "int64", False)],
    "Sample": [("location_id", 1, "uint64", True), ("value", 2, "int64", True), ("label", 3, "Label", True)],
    "Mapping": [("id", 1, "uint64", False), ("memory_start", 2, "uint64", False), ("memory_limit", 3, "uint64", False),
                ("file_offset", 4, "uint64", False), ("filename", 5, "int64", False), ("build_id", 6, "int64", False),
                ("has_functions", 7, "bool", False), ("has_filenames", 8, "bool", False),
                ("has_line_numbers", 9, "bool", False), ("has_inline_frames", 10, "bool", False)],
    "Line": [("function_id", 1, "uint64", False), ("line", 2, "int64", False)],
    "Location": [("id", 1, "uint64", False), ("mapping_id", 2, "uint64", False), ("address", 3, "uint64", False),
                 ("line", 4, "Line", True)],
    "Function": [("id", 1, "uint64", False), ("name", 2, "int64", False), ("system_name", 3, "int64", False),
                 ("filename", 4, "int64", False)],
    "Profile": [("sample_type", 1, "ValueType", True), ("sample", 2, "Sample", True), ("mapping", 3, "Mapping", True),
                ("location", 4, "Location", True), ("function", 5, "Function", True),
                ("string_table", 6, "string", True), ("period_type", 11, "ValueType", False),
                ("period", 12, "int64", False), ("default_sample_type", 14, "int64", False)],
}
VALUE_MAX, ADDRESS_MAX = (1 << 63) - 1, (1 << 64) - 1  # of int64 and uint64
VALUES = (("alloc_objects", "count", "allocated_count"), ("alloc_space", "bytes", "allocated_bytes"),
          ("inuse_objects", "count", "live_count"), ("inuse_space", "bytes", "live_bytes"))


def profile_class():
    file = descriptor_pb2.FileDescriptorProto(name="hakmem/profile.proto", package="perftools.profiles",
                                              syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind, repeated in fields:
            added = message.field.add(name=field, number=number, label=3 if repeated else 1,
                                      type=TYPES.get(kind, TYPES["message"]))
            if kind not in TYPES:
                added.type_name = f".perftools.profiles.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("perftools.profiles.Profile"))


class Builder:
    """Numbers strings, functions, mappings and locations as they come."""

    def __init__(self):
        self.profile = profile_class()()
        self.strings = {}
        self.ids = {"function": {}, "mapping": {}, "location": {}}
        self.string("")

    def string(self, text):
        text = plain(text)
        if text not in self.strings:
            self.strings[text] = len(self.strings)
            self.profile.string_table.append(text)
        return self.strings[text]

    def number(self, kind, key, fields):
        """The id of the entry with this key; makes it from `fields()` if it is new."""
        ids = self.ids[kind]
        if key not in ids:
            ids[key] = len(ids) + 1
            getattr(self.profile, kind).add(id=ids[key], **fields())
        return ids[key]

    def mapping(self, path):
        return self.number("mapping", path, lambda: {
            "filename": self.string(path or "[unknown]"), "has_functions": True, "has_filenames": True,
            "has_line_numbers": True, "has_inline_frames": True})

    def function(self, frame):
        return self.number("function", (frame.label(), frame.file), lambda: {
            "name": self.string(frame.label()), "system_name": self.string(frame.label()),
            "filename": self.string(frame.file or os.path.basename(frame.module))})

    def location(self, frame):
        """One location for each frame, inlined or not: pprof shows the same stacks."""
        def fields():
            return {"mapping_id": self.mapping(frame.module), "address": frame.offset & ADDRESS_MAX,
                    "line": [{"function_id": self.function(frame), "line": frame.line}]}
        return self.number("location", frame, fields)


def write_pprof(profiles, file):
    """Writes all profiles as one. A sample has a label `site` if the program named one, and a label `process` if there
    are several processes."""
    builder = Builder()
    for kind, unit, _ in VALUES:
        builder.profile.sample_type.add(type=builder.string(kind), unit=builder.string(unit))
    builder.profile.default_sample_type = builder.string("inuse_space")
    builder.profile.period_type.type = builder.string("space")
    builder.profile.period_type.unit = builder.string("bytes")
    for profile in profiles:
        builder.profile.period = profile.period
        for stack in profile.stacks:
            sample = builder.profile.sample.add(location_id=[builder.location(frame) for frame in stack.shown_frames()],
                                                value=[min(stack.sums[name], VALUE_MAX) for _, _, name in VALUES])
            if stack.site_name:
                sample.label.add(key=builder.string("site"), str=builder.string(stack.site_name))
            if len(profiles) > 1:
                sample.label.add(key=builder.string("process"), num=profile.pid)
    with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed:
        packed.write(builder.profile.SerializeToString())
