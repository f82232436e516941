"""Partials as bytes, to be cached beside a trace or sent to another machine.

The bytes: MAGIC, one byte of VERSION, and compressed with zlib, whose checksum detects damage: the length of a JSON
text (4 bytes, little-endian), the text, and arrays of int64. In the text a record is {"is": its class, field: value},
and an array {"array": its offset among the arrays, "shape", "delta": whether differences are stored}. The bytes of an
array are sorted by their rank, all lowest first, because most of the high ones are 0.

Another version is not read: the trace is measured again. A change of a metric or of this form raises VERSION:
test_partial_file.py pins the content of this one, and golden files prove that it is read.
"""

import json
import struct
import zlib
from dataclasses import MISSING, fields
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from blkreel.common.errors import TraceError
from blkreel.common.files.typed_document import parse_json

from .alignment import Alignment
from .boundary_state import Carry
from .bursts import BurstTable
from .depth import Depth
from .distributions import Histogram, ValueCounts
from .keep_up import KeepUp
from .latency_points import LatencyPoints
from .partial import ClassPartial, Partial, WorkloadProfile
from .seconds import Bins, Seconds
from .threads import Threads
from .timeline import Heat, Timeline

MAGIC = b"BLKREELP"
VERSION = 8
_MAX_PLAIN_BYTES, _MAX_RATIO = 256 << 20, 20
_MAX_TEXT_BYTES = 16 << 20

_AT_LEAST_1 = ("runs", "gap_ns", "width_ns", "height_bytes")

_RECORDS = {kind.__name__: kind for kind in (
    Partial, ClassPartial, Seconds, Bins, WorkloadProfile, Depth, BurstTable, Timeline, Heat, Threads, Carry, KeepUp,
    LatencyPoints, Alignment)}


def dump(partial: Partial) -> bytes:
    arrays = _Arrays()
    text = json.dumps(_encoded(partial, arrays), separators=(",", ":")).encode()
    compressor = zlib.compressobj()
    parts = [MAGIC + bytes([VERSION]), compressor.compress(struct.pack("<I", len(text)) + text)]
    parts += [compressor.compress(_encoded_array(array, node["delta"])) for array, node in arrays.nodes]
    return b"".join([*parts, compressor.flush()])


def load(data: bytes) -> Partial:
    """Raises ValueError for bytes that are damaged, or not of this version."""
    head = len(MAGIC) + 1
    if data[:len(MAGIC)] != MAGIC or len(data) < head:
        raise ValueError("not a partial")
    if data[head - 1] != VERSION:
        raise ValueError(f"a partial of version {data[head - 1]}, not {VERSION}")
    try:
        plain = decompressed(data[head:])
        (length,) = struct.unpack_from("<I", plain)
        if length > _MAX_TEXT_BYTES:
            raise ValueError("its text is too long")
        tree = parse_json(plain[4:4 + length])
        partial = _decoded(tree, memoryview(plain)[4 + length:])
        if not isinstance(partial, Partial):
            raise TypeError(type(partial).__name__)
        return partial
    except (zlib.error, struct.error, ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError,
            RecursionError, TraceError) as error:
        raise ValueError(f"a damaged partial ({type(error).__name__}: {error})") from None


def decompressed(data: bytes) -> bytes:
    """Bounded: a few bytes may stand for gigabytes. Raises ValueError and zlib.error."""
    limit = _MAX_PLAIN_BYTES + _MAX_RATIO * len(data)
    decompressor = zlib.decompressobj()
    plain = decompressor.decompress(data, limit)
    if not decompressor.eof or decompressor.unused_data:
        raise ValueError(f"cut, or more than {limit:,} bytes")
    return plain


class _Arrays:
    """The arrays of a partial in their order, which are encoded one at a time."""

    def __init__(self) -> None:
        self.nodes: list[tuple[np.ndarray, dict[str, Any]]] = []
        self._bytes = 0

    def node(self, array: np.ndarray) -> dict[str, Any]:
        delta = bool(array.size) and (int(np.abs(_differences(array)[1:]).max(initial=0))
                                      < int(np.abs(np.asarray(array, "<i8")).max()))
        node = {"array": self._bytes, "shape": list(array.shape), "delta": delta}
        self.nodes.append((array, node))
        self._bytes += 8 * array.size
        return node


def _encoded(value: Any, arrays: _Arrays) -> Any:
    if isinstance(value, np.ndarray):
        return arrays.node(value)
    if isinstance(value, ValueCounts):
        values, counts = value.items()
        return {"is": "ValueCounts", "values": _encoded(values, arrays), "counts": _encoded(counts, arrays)}
    if isinstance(value, Histogram):
        bins, counts, totals = (_encoded(bin_, arrays) for bin_ in value.bins())
        return {"is": "Histogram", "bins": bins, "counts": counts, "totals": totals,
                "minimum": value.minimum, "maximum": value.maximum}
    if type(value).__name__ in _RECORDS:
        return {"is": type(value).__name__, **{f.name: _encoded(getattr(value, f.name), arrays) for f in fields(value)}}
    if isinstance(value, tuple):
        return [_encoded(element, arrays) for element in value]
    if value is None or isinstance(value, int):
        return value
    raise TypeError(f"{type(value).__name__} cannot be stored in a partial")


def _decoded(node: Any, numbers: memoryview) -> Any:
    if isinstance(node, list):
        return tuple(_decoded(part, numbers) for part in node)
    if not isinstance(node, dict):
        return node
    if "array" in node:
        return _decoded_array(node, numbers)
    kind = str(node["is"])
    values: dict[str, Any] = {str(name): _decoded(value, numbers) for name, value in node.items() if name != "is"}
    if kind == "ValueCounts":
        return _value_counts(**values)
    if kind == "Histogram":
        return _histogram(**values)
    record = _RECORDS[kind](**values)
    _check_fields(record)
    return record


def _value_counts(values: np.ndarray, counts: np.ndarray) -> ValueCounts:
    for name, array in (("values", values), ("counts", counts)):
        if not isinstance(array, np.ndarray) or array.shape != (len(values),):
            raise TypeError(f"{name} of a distribution")
    if (values[1:] <= values[:-1]).any() or (counts < 1).any():
        raise ValueError("a distribution is not in order")
    return ValueCounts.of(values, counts)


def _histogram(bins: np.ndarray, counts: np.ndarray, totals: np.ndarray, minimum: Any, maximum: Any) -> Histogram:
    for name, array in (("bins", bins), ("counts", counts), ("totals", totals)):
        if not isinstance(array, np.ndarray) or array.shape != (len(bins),):
            raise TypeError(f"{name} of a distribution")
    is_empty = not len(bins)
    if any(bound is not None if is_empty else type(bound) is not int for bound in (minimum, maximum)):
        raise TypeError("bounds of a distribution")
    if (counts < 1).any() or (bins < 0).any() or not is_empty and minimum > maximum:
        raise ValueError("a distribution has invalid counts")
    return Histogram.of_bins(bins, counts, totals, minimum, maximum)


def _check_fields(record: Any) -> None:
    """Raise TypeError for a field of another type, and for an array of another shape, than the class declares.

    The arrays of a record with any number of rows have the same number.
    """
    rows = set()
    for name, hint, default in _fields_of(type(record).__name__):
        value = getattr(record, name)
        if not _has_type(value, hint):
            raise TypeError(f"{type(record).__name__}.{name}")
        if isinstance(value, np.ndarray):
            like = np.shape(default) if isinstance(default, np.ndarray) else (0,)
            if not _has_shape(value, like):
                raise TypeError(f"{type(record).__name__}.{name} has the shape {value.shape}")
            rows |= {len(value)} if like[0] == 0 else set()
        elif isinstance(value, tuple) and default:
            if len(value) != len(default) or not all(_has_shape(part, np.shape(like))
                                                     for part, like in zip(value, default, strict=True)
                                                     if isinstance(part, np.ndarray)):
                raise TypeError(f"{type(record).__name__}.{name}")
        elif isinstance(value, int) and name in _AT_LEAST_1 and value < 1:
            raise ValueError(f"{name} is {value}")
    if len(rows) > 1:
        raise TypeError(f"{type(record).__name__} has columns of {rows} rows")
    if isinstance(record, Bins):
        filled = record.filled
        if not 0 <= record.whole <= record.length or (record.ops < 0).any() or (filled[1:] <= filled[:-1]).any() \
                or len(filled) and not 0 <= filled[0] <= filled[-1] < record.length:
            raise ValueError("a second is not one of the run")


@cache
def _fields_of(record_name: str) -> list[tuple[str, Any, Any]]:
    """(name, type, default) of the fields; the default of one without is None."""
    kind = _RECORDS[record_name]
    hints = get_type_hints(kind)
    return [(field.name, hints[field.name], None if field.default is MISSING and field.default_factory is MISSING
             else field.default if field.default_factory is MISSING else field.default_factory())
            for field in fields(kind)]


def _has_type(value: Any, hint: Any) -> bool:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return any(_has_type(value, choice) for choice in get_args(hint))
    if origin is tuple:
        return isinstance(value, tuple) and all(_has_type(part, get_args(hint)[0]) for part in value)
    if hint is int:
        return type(value) is int and abs(value) < 1 << 63
    return isinstance(value, origin or hint)


def _has_shape(array: np.ndarray, like: tuple[int, ...]) -> bool:
    """Whether it has the shape; any number of rows where that has at most one."""
    return array.ndim == len(like) and array.shape[1:] == like[1:] and (like[0] <= 1 or len(array) == like[0])


def _differences(array: np.ndarray) -> np.ndarray:
    return np.diff(np.asarray(array, "<i8").ravel(), prepend=np.int64(0))


def _encoded_array(array: np.ndarray, delta: bool) -> memoryview:
    plain = _differences(array) if delta else np.ascontiguousarray(array, "<i8").ravel()
    return np.ascontiguousarray(plain.view(np.uint8).reshape(-1, 8).T).data


def _decoded_array(node: dict[str, Any], numbers: memoryview) -> np.ndarray:
    count = int(np.prod(node["shape"]))
    ranks = np.frombuffer(numbers, np.uint8, 8 * count, node["array"]).reshape(8, count)
    plain = np.ascontiguousarray(ranks.T).view("<i8").reshape(count).astype(np.int64)
    return (np.cumsum(plain) if node["delta"] else plain).reshape(node["shape"])
