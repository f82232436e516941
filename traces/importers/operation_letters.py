"""The letters of an operation as the kernel's blk_fill_rwbs() writes them, such as WFS."""

import numpy as np

from blkreel.traces.format.schema import FLAGS, OPS

from .source_format import UNKNOWN_OP

INVALID_CATEGORY = -1
READ, WRITE, FLUSH, SYNC, PASSTHROUGH, AHEAD, META, DISCARD, FUA, ZONE_RESET, WRITE_ZEROES = (
    1 << bit for bit in (0, 1, 2, 3, 9, 11, 12, 13, 15, 17, 22))
_LETTERS = {"A": AHEAD, "B": FLUSH, "F": FUA, "S": SYNC, "M": META, "U": 0}
_OPERATIONS = {"WZ": WRITE | WRITE_ZEROES, "DE": WRITE | DISCARD, "R": READ, "W": WRITE, "D": WRITE | DISCARD,
               "F": FLUSH, "N": PASSTHROUGH, "Z": ZONE_RESET}


def category_of(letters: bytes) -> int:
    """The category of blktrace for the letters of an operation, as the kernel's blk_fill_rwbs() writes them."""
    text = letters.decode(errors="replace")
    category = 0
    if text[:1] == "F" and text[1:2] and text[1] in "RWDFNZ":
        category, text = FLUSH, text[1:]
    for name, code in _OPERATIONS.items():
        if text.startswith(name):
            # A flush without an operation, as in FN.
            category |= code if name != "N" or not category else 0
            text = text.removeprefix(name)
            break
    else:
        return INVALID_CATEGORY
    if category & ZONE_RESET:
        return category
    for letter in text:
        if letter not in _LETTERS:
            return INVALID_CATEGORY
        category |= _LETTERS[letter]
    return category


def op_of(category: np.ndarray) -> np.ndarray:
    """The operation (int8) of each category of category_of(); UNKNOWN_OP where it is none."""
    op = np.where(category & WRITE, OPS["write"], OPS["read"])
    op = np.where(category & DISCARD, OPS["discard"], op)
    op = np.where(category & WRITE_ZEROES, OPS["write_zeroes"], op)
    has_data = category & (READ | WRITE)
    op = np.where((category & FLUSH != 0) & (has_data == 0), OPS["flush"], op)
    bad = (category < 0) | (category & (PASSTHROUGH | ZONE_RESET) != 0)
    return np.where(bad, UNKNOWN_OP, op).astype(np.int8)


def flags_of(category: np.ndarray) -> np.ndarray:
    """The flags (int32) of each category."""
    flags = np.zeros(len(category), np.int32)
    for bit, name in ((SYNC, "sync"), (META, "metadata"), (AHEAD, "read_ahead"), (FUA, "fua")):
        flags |= np.where(category & bit, FLAGS[name], 0).astype(np.int32)
    return flags
