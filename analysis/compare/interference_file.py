"""Interference as bytes, to be cached beside a trace: JSON, compressed with zlib.

A change of the counts or of this format raises VERSION; tests/unit/analysis/compare/test_second_pass.py pins the
content of this version.
"""

import json
import zlib
from typing import TypedDict

import numpy as np

from blkreel.analysis.metrics.partials.distributions import ValueCounts
from blkreel.analysis.metrics.partials.partial_file import decompressed
from blkreel.common.files.typed_document import parse_typed

from .interference import Against, Document, Interference

VERSION = 6


class _StoredAgainst(TypedDict):
    """bins: each as number, sum, values and their counts."""

    sums: list[float]
    bins: list[list[int | list[int]]]


class _Stored(TypedDict):
    windows_ns: list[int]
    reads: int
    writes: int
    windows: list[_StoredAgainst]
    in_flight: _StoredAgainst


def dump(result: Interference) -> bytes:
    """Of one whole run. What is outstanding at its end is left out: nothing follows."""
    document = {"windows_ns": result.windows_ns, "reads": result.reads, "writes": result.writes,
            "windows": [_document(window) for window in result.windows], "in_flight": _document(result.in_flight)}
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode())


def load(data: bytes) -> Interference:
    """Raises ValueError or zlib.error for bytes that dump() did not give."""
    document = parse_typed(decompressed(data), _Stored)
    result = Interference(tuple(document["windows_ns"]))
    result.reads, result.writes = document["reads"], document["writes"]
    result.windows = [_against(window) for window in document["windows"]]
    result.in_flight = _against(document["in_flight"])
    return result


def _document(against: Against) -> Document:
    return {"sums": against.sums, "bins": [
        [index, against.totals_ns[index], *(item.tolist() for item in values.items())]
        for index, values in sorted(against.bins.items())]}


def _against(document: _StoredAgainst) -> Against:
    if len(document["sums"]) != len(Against().sums):
        raise ValueError("sums of another length")
    against = Against(sums=document["sums"])
    for index, total_ns, values, counts in document["bins"]:
        if not (isinstance(index, int) and isinstance(total_ns, int) and isinstance(values, list)
                and isinstance(counts, list) and len(values) == len(counts)):
            raise ValueError("a bin is not its number, its sum, its values and their counts")
        against.totals_ns[index] = total_ns
        against.bins[index] = ValueCounts.of(np.array(values, np.int64), np.array(counts, np.int64))
    return against
