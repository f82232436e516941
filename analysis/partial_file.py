"""Partials as bytes, to be kept beside a trace or sent to another machine.

The bytes: MAGIC, one byte of VERSION, and compressed with zlib, whose checksum tells damage: the length of a JSON text
(4 bytes, little-endian), the text, and arrays of int64. In the text a record is {"is": its class, field: value}, and an
array {"array": its place among the arrays, "shape", "delta": whether differences stand for it}. The bytes of an array
are sorted by their rank, all lowest first, because most of the high ones are 0.

Another version is not read: what was kept is measured again. A change of what a figure means, or of how it is told,
raises VERSION: tests/unit/test_partial_file.py pins what this one holds, and golden files hold that it is read.
"""

import json
import struct
import zlib
from dataclasses import fields
from pathlib import Path

import numpy as np

from .bursts import BurstTable
from .carry import Carry
from .depth import Depth
from .fingerprint import Fingerprint
from .histogram import Histogram
from .measure import Measured
from .partial import ClassPartial, Partial
from .percentiles import ValueCounts
from .seconds import Bins, Seconds
from .threads import Threads
from .timeline import Heat, Timeline

MAGIC = b"BLKREELP"
VERSION = 2
# Of a trace's metadata: what only a replay needs, and can be as long as the partial.
_LEFT_OUT = ("survey", "boundary")

_RECORDS = {kind.__name__: kind for kind in (
    Partial, ClassPartial, Seconds, Bins, Fingerprint, Depth, BurstTable, Timeline, Heat, Threads, Carry)}


def dump(measured: Measured | Partial) -> bytes:
    """The bytes of a partial, or of all that was measured; its metadata without what only a replay needs."""
    arrays = []
    if isinstance(measured, Measured):
        told = {"is": "Measured", "path": str(measured.path), "rows": measured.rows,
                "metadata": {key: value for key, value in measured.metadata.items() if key not in _LEFT_OUT},
                "partial": _told(measured.partial, arrays)}
    else:
        told = _told(measured, arrays)
    text = json.dumps(told, separators=(",", ":")).encode()
    return MAGIC + bytes([VERSION]) + zlib.compress(b"".join([struct.pack("<I", len(text)), text, *arrays]))


def load(data: bytes) -> Measured | Partial:
    """Raises ValueError for bytes that are damaged, or not of this version."""
    head = len(MAGIC) + 1
    if data[:len(MAGIC)] != MAGIC or len(data) < head:
        raise ValueError("not a kept partial")
    if data[head - 1] != VERSION:
        raise ValueError(f"a kept partial of version {data[head - 1]}, not {VERSION}")
    try:
        plain = zlib.decompress(data[head:])
        (length,) = struct.unpack_from("<I", plain)
        told = json.loads(plain[4:4 + length])
        numbers = memoryview(plain)[4 + length:]
        if told["is"] == "Measured":
            return Measured(Path(told["path"]), told["metadata"], told["rows"], _made(told["partial"], numbers))
        return _made(told, numbers)
    except (zlib.error, struct.error, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a damaged partial ({type(error).__name__}: {error})") from None


def _told(value, arrays):
    if isinstance(value, np.ndarray):
        return _array_told(value, arrays)
    if isinstance(value, ValueCounts):
        values, counts = value.items()
        return {"is": "ValueCounts", "values": _told(values, arrays), "counts": _told(counts, arrays)}
    if isinstance(value, Histogram):
        bins, counts, totals = (_told(each, arrays) for each in value.bins())
        return {"is": "Histogram", "bins": bins, "counts": counts, "totals": totals,
                "minimum": value.minimum, "maximum": value.maximum}
    if type(value).__name__ in _RECORDS:
        return {"is": type(value).__name__,
                **{f.name: _told(getattr(value, f.name), arrays) for f in fields(value)}}
    if isinstance(value, tuple):
        return [_told(each, arrays) for each in value]
    if value is None or isinstance(value, int):
        return value
    raise TypeError(f"{type(value).__name__} has no place in a partial")


def _made(told, numbers):
    if isinstance(told, list):
        return tuple(_made(each, numbers) for each in told)
    if not isinstance(told, dict):
        return told
    if "array" in told:
        return _array_made(told, numbers)
    values = {name: _made(value, numbers) for name, value in told.items() if name != "is"}
    if told["is"] == "ValueCounts":
        return ValueCounts.of(**values)
    if told["is"] == "Histogram":
        return Histogram.of_bins(**values)
    return _RECORDS[told["is"]](**values)


def _array_told(array, arrays):
    place = sum(len(each) for each in arrays)
    plain = np.ascontiguousarray(array, "<i8").ravel()
    differences = np.diff(plain, prepend=np.int64(0))
    delta = bool(len(plain)) and int(np.abs(differences[1:]).max(initial=0)) < int(np.abs(plain).max())
    ordered = (differences if delta else plain).view(np.uint8).reshape(-1, 8).T
    arrays.append(np.ascontiguousarray(ordered).tobytes())
    return {"array": place, "shape": list(array.shape), "delta": delta}


def _array_made(told, numbers):
    count = int(np.prod(told["shape"]))
    ranks = np.frombuffer(numbers, np.uint8, 8 * count, told["array"]).reshape(8, count)
    plain = np.ascontiguousarray(ranks.T).view("<i8").reshape(count).astype(np.int64)
    return (np.cumsum(plain) if told["delta"] else plain).reshape(told["shape"])
