"""The codes of a trace are written down for Python and for C: one must not change without the other."""

import re

from tree import TREE

from blkreel.traces.format.schema import FLAGS, OPS

HEADER = TREE / "traces/native/codes.h"


def test_python_and_c_have_the_same_codes():
    text = HEADER.read_text()
    ops = {name.lower(): int(code) for name, code in re.findall(r"OP_(\w+) = (\d+),", text)}
    assert ops.pop("count") == len(OPS)
    assert ops == OPS
    assert {name.lower(): 1 << int(bit) for name, bit in re.findall(r"FLAG_(\w+) = 1 << (\d+),", text)} == FLAGS
