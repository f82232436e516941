"""The letters of an operation as the kernel's blk_fill_rwbs() writes them, such as WFS."""

import numpy as np

from blkreel.traces.format.schema import FLAGS, OPS

from .source_format import UNKNOWN_OP

INVALID_CATEGORY = -1
READ, WRITE, FLUSH, SYNC, PASSTHROUGH, AHEAD, META, DISCARD, FUA = (
    1 << bit for bit in (0, 1, 2, 3, 9, 11, 12, 13, 15))
ZONE_APPEND, ZONE_RESET, ZONE_RESET_ALL, ZONE_FINISH, ZONE_OPEN, ZONE_CLOSE, WRITE_ZEROES = (
    1 << bit for bit in range(16, 23))
_LETTERS = {"A": AHEAD, "B": FLUSH, "F": FUA, "S": SYNC, "M": META, "U": 0}
# A longer name comes before its beginning. Zone operations have letters since Linux 6.17, write-zeroes since 6.19.
_OPERATIONS = {"WZ": WRITE | WRITE_ZEROES, "DE": WRITE | DISCARD, "ZRA": ZONE_RESET_ALL, "ZR": ZONE_RESET,
               "ZA": WRITE | ZONE_APPEND, "ZF": ZONE_FINISH, "ZO": ZONE_OPEN, "ZC": ZONE_CLOSE, "R": READ, "W": WRITE,
               "D": WRITE | DISCARD, "F": FLUSH, "N": PASSTHROUGH}
ZONE_MANAGEMENT = ZONE_RESET | ZONE_RESET_ALL | ZONE_FINISH | ZONE_OPEN | ZONE_CLOSE
# The categories that decide on the operation alone.
_CATEGORY_OPS = {DISCARD: "discard", WRITE_ZEROES: "write_zeroes", ZONE_APPEND: "zone_append", ZONE_RESET: "zone_reset",
                 ZONE_RESET_ALL: "zone_reset_all", ZONE_OPEN: "zone_open", ZONE_CLOSE: "zone_close",
                 ZONE_FINISH: "zone_finish"}


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
    for letter in text:
        if letter not in _LETTERS:
            return INVALID_CATEGORY
        category |= _LETTERS[letter]
    return category


def op_of(category: np.ndarray) -> np.ndarray:
    """The operation (int8) of each category of category_of(); UNKNOWN_OP where it is none."""
    op = np.where(category & WRITE, OPS["write"], OPS["read"])
    for bit, name in _CATEGORY_OPS.items():
        op = np.where(category & bit, OPS[name], op)
    has_data = category & (READ | WRITE)
    op = np.where((category & FLUSH != 0) & (has_data == 0), OPS["flush"], op)
    bad = (category < 0) | (category & PASSTHROUGH != 0)
    return np.where(bad, UNKNOWN_OP, op).astype(np.int8)


def flags_of(category: np.ndarray) -> np.ndarray:
    """The flags (int32) of each category."""
    flags = np.zeros(len(category), np.int32)
    for bit, name in ((SYNC, "sync"), (META, "metadata"), (AHEAD, "read_ahead"), (FUA, "fua")):
        flags |= np.where(category & bit, FLAGS[name], 0).astype(np.int32)
    is_preflush = (category & FLUSH != 0) & (category & (READ | WRITE) != 0)
    return flags | np.where(is_preflush, FLAGS["preflush"], 0).astype(np.int32)
