# SPDX-License-Identifier: MIT
"""Reads the JSON that hakmem writes, or that somebody says it wrote: of bounded size, depth and digits, and of a given
shape."""
import json
import math

from .text import plain

BYTES_MAX = 256 << 20
DEPTH_MAX = 16  # hakmem writes 5
DIGITS_MAX = 20  # of 64 bits
NUMBER_MAX = 1 << 63
TEXT_MAX = 1 << 16
VALUES_MAX = 4 << 20  # in lists and objects; a map of 1 TiB has 3 million


def decode(text):
    """hakmem escapes each byte that is not ASCII by itself; paths are UTF-8. What is not UTF-8 stays as it is."""
    try:
        text = text if text.isascii() else text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        pass
    return plain(text)


def decode_values(record):
    return {plain(key): decode(value) if isinstance(value, str) else value for key, value in record.items()}


def parse_whole(digits):
    if len(digits) > DIGITS_MAX:
        raise ValueError("a number has too many digits")
    return int(digits)


def parse_part(digits):
    value = float(digits)
    if len(digits) > 2 * DIGITS_MAX or not math.isfinite(value):
        raise ValueError("a number is out of range")
    return value


def refuse_constant(word):
    raise ValueError(f"{word} is no number")


def is_deep(value):
    level = [value]
    for _ in range(DEPTH_MAX):
        children = (item.values() if isinstance(item, dict) else item for item in level)
        level = [child for found in children for child in found if isinstance(child, (dict, list))]
        if not level:
            return False
    return True


def parse(text):
    """ValueError if it is no such document."""
    if len(text) > BYTES_MAX or text.count(",") > VALUES_MAX:
        raise ValueError("it is too large")
    try:
        value = json.loads(text, object_hook=decode_values, parse_int=parse_whole, parse_float=parse_part,
                           parse_constant=refuse_constant)
    except RecursionError:
        raise ValueError("it is too deep") from None
    if isinstance(value, (dict, list)) and is_deep(value):
        raise ValueError("it is too deep")
    return value


def check(value, shape, place="it"):
    """ValueError if the value is not of this shape: int or str, a list of one shape, a dict by names (with "?": it may be
    missing), a dict of any names with values of one shape, {str: int}, or a shape or null, (int,)."""
    if isinstance(shape, tuple):
        if value is not None:
            check(value, shape[0], place)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise ValueError(f"{place} is no list")
        for item in value:
            check(item, shape[0], place)
    elif isinstance(shape, dict):
        if not isinstance(value, dict):
            raise ValueError(f"{place} is no object")
        names = dict.fromkeys(value, shape[str]) if str in shape else shape
        for name, inner in names.items():
            key = name.removesuffix("?")
            if key in value:
                check(value[key], inner, key)
            elif key == name:
                raise ValueError(f"{place} has no {key}")
    elif type(value) is not shape:
        raise ValueError(f"{place} is no {'number' if shape is int else 'text'}")
    elif shape is int and not 0 <= value < NUMBER_MAX or shape is str and len(value) > TEXT_MAX:
        raise ValueError(f"{place} is out of range")
