"""What a format gives to the import: how it recognizes a file, and its records as columns."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .account import Account
from .source_file import SourceFile

# In any column: the record has no valid value there and is rejected.
INVALID = np.iinfo(np.int64).min
# In `op`: an operation that the format does not define.
UNKNOWN_OP = -1
# Share of the first lines from which on a format is recognized: single lines may be damaged.
ALIKE = 0.8
_SAMPLE_LINES = 20
_FEW_PAIRS = 4096
_DELIMITERS = re.compile(rb"[ \t]*[,;\t ][ \t]*")


@dataclass(frozen=True)
class ImportOptions:
    """devices: names of the devices to import; empty: all. max_rejected: share of all records, 0 to 1.

    block_bytes: of sources that count blocks of a size they do not state. columns: mapping of the format `columns`.
    skip_lines: lines before the header or the first record of such a text. clock_resolution_ns: of the source, where
    neither the format nor the times show it.
    """

    devices: tuple[str, ...] = ()
    max_rejected: float = 0.01
    block_bytes: int | None = None
    columns: str | None = None
    skip_lines: int = 0
    clock_resolution_ns: int | None = None


@dataclass
class Batch:
    """Records in the order of the source, as columns of one length.

    submit_ns: int64, on the clock of the source; see SourceFormat.clock. offset_bytes, length_bytes: int64.
    op: int8, codes of OPS, or UNKNOWN_OP. positions: int64, line number or byte offset of each record in its file.
    latency_ns, queue_ns: int64, -1 where unknown. device: name or number of the device; None: the file is one device.
    tid: int32. process: name of the thread or, without tid or with pid, of the process. INVALID in an int64 column
    rejects the record.
    """

    submit_ns: np.ndarray
    offset_bytes: np.ndarray
    length_bytes: np.ndarray
    op: np.ndarray
    positions: np.ndarray
    latency_ns: np.ndarray | None = None
    queue_ns: np.ndarray | None = None
    device: pa.Array | np.ndarray | None = None
    tid: np.ndarray | None = None
    pid: np.ndarray | None = None
    process: pa.Array | None = None
    flags: np.ndarray | None = None
    cpu: np.ndarray | None = None
    status: np.ndarray | None = None


class SourceFormat(ABC):
    """A format of records. One instance serves all files.

    name: for --format. title: for lists. clock: `realtime` if times are ns since 1970 UTC, else `relative`.
    resolution_ns: of the clock, as far as the format states it; read after the last record. The import coarsens it to
    what the times show.
    stamped_at: `issue`, or `completion` if the order of records is that of their completion.
    counts_back_steps: whether batches() counts the steps back of the clock, because rows have other times than records.
    assumed: units that the file does not state, where other programs write the same lines in others.
    has_block_size: whether ImportOptions.block_bytes applies.
    remedy: for records that are rejected.
    lacks: what the source never records, beyond the columns that it does not give: see metadata_types.py.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    clock: ClassVar[str] = "relative"
    resolution_ns: ClassVar[int] = 1
    stamped_at: ClassVar[str] = "issue"
    counts_back_steps: ClassVar[bool] = False
    assumed: ClassVar[str] = ""
    has_block_size: ClassVar[bool] = False
    remedy: ClassVar[str] = "name the right format with --format"
    lacks: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def likeness(self, head: bytes) -> float:
        """How far the beginning of a file looks like the format, 0 to 1. head: decompressed, up to 64 KiB."""

    def near_miss(self, head: bytes) -> str:
        """How a file differs that is nearly of this format, as `with another delimiter`; "" if it is not."""
        return ""

    @abstractmethod
    def batches(self, source: SourceFile, account: Account, options: ImportOptions) -> Iterator[Batch]:
        """The records of one file. Reports to `account` the records read, and those rejected or ignored."""


@dataclass
class LinePattern:
    """Recognizes a text format by its first lines. header: regular expression of a first line that is no record."""

    line: str
    header: str | None = None
    _line: re.Pattern[bytes] = field(init=False)
    _header: re.Pattern[bytes] | None = field(init=False)

    def __post_init__(self) -> None:
        self._line = re.compile(self.line.encode())
        self._header = re.compile(self.header.encode()) if self.header else None

    def is_header(self, line: bytes) -> bool:
        return self._header is not None and self._header.match(line) is not None

    def likeness(self, head: bytes) -> float:
        """Share of the first lines that match, without blanks behind the last of fields between blanks."""
        lines = [line if b"," in line else line.rstrip() for line in head_lines(head)]
        if lines and self.is_header(lines[0]):
            return 1.0
        if not lines or self._header is not None and len(lines) == 1:
            return 0.0
        return sum(self._line.fullmatch(line) is not None for line in lines) / len(lines)

    def near_miss(self, head: bytes) -> str:
        """`with another delimiter` if the first lines match when theirs is replaced."""
        lines = head_lines(head)
        for delimiter in (b",", b" ", b" ; "):
            replaced = [_DELIMITERS.sub(delimiter, line.strip()) for line in lines]
            if lines and sum(self._line.fullmatch(line) is not None for line in replaced) >= ALIKE * len(lines):
                return "with another delimiter"
        return ""


def head_lines(head: bytes) -> list[bytes]:
    """The first whole lines of a text that are not blank, without line ends and byte order mark; none of a binary file.
    """
    return [line for line in text_lines_of(head)[:_SAMPLE_LINES] if line.strip()]


def text_lines_of(head: bytes) -> list[bytes]:
    """All whole lines of the beginning of a text, without line ends and byte order mark; none of a binary file."""
    if b"\0" in head[:4096]:
        return []
    lines = head.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if len(lines) > 1:
        lines = lines[:-1]
    return [line.rstrip(b"\r") for line in lines]


def scaled(values: np.ndarray, factor: int, offset: int = 0) -> np.ndarray:
    """(values + offset) * factor as int64; INVALID where it would exceed the range or the value is INVALID."""
    limit = (1 << 62) // factor
    moved = np.asarray(values, np.int64)
    # Checked before the sum, which could wrap.
    bad = (moved > limit - min(offset, 0)) | (moved < -limit - max(offset, 0))
    moved = np.where(bad, 0, moved) + offset
    bad |= (moved > limit) | (moved < -limit)
    return np.where(bad, INVALID, moved * factor)


def op_codes(values: pa.Array, codes: Mapping[bytes, int]) -> np.ndarray:
    """Operation codes (int8) of a text column; UNKNOWN_OP where `codes` lacks the text."""
    return mapped(values, lambda text: codes.get(text, UNKNOWN_OP)).astype(np.int8)


def mapped(values: pa.Array, value_of: Callable[[bytes], int]) -> np.ndarray:
    """int64 value of each text; value_of is called once for each distinct text of the array."""
    coded = dictionary_of(values)
    table = np.array([value_of(as_bytes(text)) for text in coded.dictionary], np.int64)
    return table[coded.indices.to_numpy(zero_copy_only=False)] if len(table) else np.empty(0, np.int64)


def dictionary_of(values: pa.Array | np.ndarray) -> pa.DictionaryArray:
    if isinstance(values, pa.DictionaryArray):
        return values
    return pc.dictionary_encode(pa.array(values) if isinstance(values, np.ndarray) else values)


def translated(values: pa.DictionaryArray, text_of: Callable[[bytes], bytes]) -> pa.DictionaryArray:
    """Each text replaced by another; text_of is called once for each distinct text of the array."""
    texts = pa.array([text_of(as_bytes(text)) for text in values.dictionary], pa.binary())
    distinct = pc.unique(texts)
    codes = pc.index_in(texts, distinct).to_numpy(zero_copy_only=False)
    indices = codes[values.indices.to_numpy(zero_copy_only=False)] if len(texts) else np.empty(0, np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), distinct)


def joined(left: pa.DictionaryArray, right: pa.DictionaryArray, separator: bytes) -> pa.DictionaryArray:
    """Each pair of texts as one text. The dictionary may have pairs that do not occur."""
    width = max(len(right.dictionary), 1)
    pairs = (left.indices.to_numpy(zero_copy_only=False).astype(np.int64) * width
             + right.indices.to_numpy(zero_copy_only=False))
    if len(left.dictionary) * width <= _FEW_PAIRS:
        distinct, codes = np.arange(len(left.dictionary) * width), pairs
    else:
        distinct, codes = np.unique(pairs, return_inverse=True)
    names = [as_bytes(left.dictionary[pair // width]) + separator + as_bytes(right.dictionary[pair % width])
             for pair in distinct.tolist()]
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(names, pa.binary()))


def as_bytes(value: pa.Scalar) -> bytes:
    """A text scalar as bytes; names in traces need not be valid UTF-8."""
    plain = value.as_py()
    return plain.encode() if isinstance(plain, str) else bytes(plain or b"")
