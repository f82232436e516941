"""What writes do to reads as bytes, to be kept beside a trace: JSON, compressed with zlib.

A change of what is counted, or of how it is told here, raises VERSION; tests/unit/test_once_more_kept.py pins what this
one holds.
"""

import json
import zlib

import numpy as np

from .interference import Against, Interference
from .percentiles import ValueCounts

VERSION = 1


def dump(found: Interference) -> bytes:
    """Of one whole run. What is outstanding at its end is left out: nothing follows."""
    told = {"windows_ns": found.windows_ns, "reads": found.reads, "writes": found.writes,
            "windows": [_told(each) for each in found.windows], "in_flight": _told(found.in_flight)}
    return zlib.compress(json.dumps(told, separators=(",", ":")).encode())


def load(data: bytes) -> Interference:
    """Raises ValueError, zlib.error, KeyError or TypeError for bytes that dump() did not give."""
    told = json.loads(zlib.decompress(data))
    found = Interference(tuple(told["windows_ns"]))
    found.reads, found.writes = told["reads"], told["writes"]
    found.windows, found.in_flight = [_made(each) for each in told["windows"]], _made(told["in_flight"])
    return found


def _told(against):
    return {"sums": against.sums, "bins": [
        [index, against.totals_ns[index], *(each.tolist() for each in values.items())]
        for index, values in sorted(against.bins.items())]}


def _made(told):
    against = Against(sums=told["sums"])
    for index, total_ns, values, counts in told["bins"]:
        against.totals_ns[index] = total_ns
        against.bins[index] = ValueCounts.of(np.array(values, np.int64), np.array(counts, np.int64))
    return against
