"""Reads the JSON that hakmem writes."""
import json


def decode(text):
    """hakmem escapes each byte that is not ASCII by itself; paths are UTF-8. What is not UTF-8 stays as it is."""
    try:
        return text if text.isascii() else text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return text


def decode_values(record):
    return {key: decode(value) if isinstance(value, str) else value for key, value in record.items()}


def parse(text, **options):
    return json.loads(text, object_hook=decode_values, **options)
