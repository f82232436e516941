"""The memory that the pages of a file take, from their headers, before a reader decompresses them.

A page of 200 KB may expand to 2 GB, and the footer need not say so: a reader allocates what the header of the page
says. Headers and footer are Thrift structures in compact encoding, and the numbers of fields here are those of
https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift. The footer is read here too:
pyarrow aborts the process where a damaged one lacks a part of a column chunk, or has one of another type.
"""

import mmap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from blkreel.common.units import format_bytes

from .footer import MAGIC, Footer

# The pages of a reader: one of each column at a time. Writers make pages of about 1 MiB.
_BASE_BYTES, _TIMES_FILE = 64 << 20, 10
_STRUCT, _LIST, _SET, _MAP = 12, 9, 10, 11
_TRUE, _FALSE, _BYTE, _I64, _DOUBLE, _BINARY = 1, 2, 3, 6, 7, 8
_INTEGERS = range(4, _I64 + 1)
_MOST_NESTING = 8
# Numbers of fields of PageHeader, FileMetaData, RowGroup, ColumnChunk and ColumnMetaData.
_UNCOMPRESSED, _COMPRESSED = 2, 3
_SCHEMA, _ROW_GROUPS = 2, 4
_COLUMNS, _NUM_ROWS = 1, 3
_META_DATA = 3
_TYPE, _TOTAL_COMPRESSED, _DATA_PAGE, _DICTIONARY_PAGE = 1, 7, 9, 11
_PHYSICAL_TYPES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_MOST_HEADER_BYTES = 64 << 10
_MOST_PAGE_BYTES = (1 << 31) - 1
# pyarrow takes 1.5 KB of memory for an element of the schema, which may have 3 bytes, and up to 100 bytes for others.
_MOST_SCHEMA_ELEMENTS = 10_000
_BASE_ELEMENTS, _BYTES_PER_ELEMENT = 1 << 16, 8


class PageError(ValueError):
    """The headers are damaged."""


class PageLimitError(PageError):
    """The pages take more memory than a file of this size may. The text begins with a verb, after the file's name."""


@dataclass(frozen=True)
class Chunk:
    """A column chunk: its bytes in the file, and the physical type of its values."""

    column: int
    begin: int
    end: int
    physical_type: str = ""


@dataclass(frozen=True)
class RowGroup:
    """chunks: one of each column."""

    rows: int
    chunks: list[Chunk]


@dataclass
class PageSizes:
    """Adds up the largest page of each column. file_bytes: the size of the file, which sets the limit."""

    file_bytes: int
    _largest: dict[int, int] = field(default_factory=dict)

    def add(self, chunk: Chunk, content: memoryview) -> None:
        """Walk the pages of a chunk. content: its bytes. Raises PageError."""
        at = 0
        while at < len(content):
            with content[at:at + _MOST_HEADER_BYTES] as start:
                header = _Reader(start)
                sizes = header.integers((_UNCOMPRESSED, _COMPRESSED))
            if len(sizes) < 2 or not all(0 <= size <= _MOST_PAGE_BYTES for size in sizes.values()):
                raise PageError("a page has no valid size")
            at += header.at + sizes[_COMPRESSED]
            if at > len(content):
                raise PageError("a page reaches beyond its column chunk")
            self._largest[chunk.column] = max(self._largest.get(chunk.column, 0), sizes[_UNCOMPRESSED])
        limit = _BASE_BYTES + _TIMES_FILE * self.file_bytes
        if sum(self._largest.values()) > limit:
            raise PageLimitError(f"has pages that take more than {format_bytes(limit)} of memory at once "
                                 f"(limit for a file of {format_bytes(self.file_bytes)})")


class PageCheck:
    """Checks the pages of row groups once, before they are read."""

    def __init__(self, footer: Footer, row_groups: list[RowGroup] | None = None):
        """row_groups: as row_groups_of() returns them; None to read them."""
        self._sizes = PageSizes(footer.size_bytes)
        self._footer, self._row_groups = footer, row_groups
        self._checked: set[int] = set()

    @cached_property
    def _groups(self) -> list[list[Chunk]]:
        """The column chunks of each row group. One without rows has no pages."""
        groups = row_groups_of(self._footer) if self._row_groups is None else self._row_groups
        return [group.chunks if group.rows else [] for group in groups]

    def check_file(self, path: Path, groups: Iterable[int] | None = None) -> None:
        """groups: None for all. Raises PageError, and OSError."""
        wanted = range(len(self._groups)) if groups is None else groups
        unchecked = [group for group in wanted if group not in self._checked and group < len(self._groups)]
        if not unchecked:
            return
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content, \
                memoryview(content) as view:
            for chunk in (chunk for group in unchecked for chunk in self._groups[group]):
                if not 0 <= chunk.begin <= chunk.end <= len(view):
                    raise PageError("a column chunk lies outside the file")
                with view[chunk.begin:chunk.end] as pages:
                    self._sizes.add(chunk, pages)
        self._checked.update(unchecked)

    def check_range(self, begin: int, content: bytes) -> None:
        """Check the column chunks within a range of a remote file. pyarrow reads each chunk as a part of one range."""
        for chunk in (chunk for group in self._groups for chunk in group):
            if begin <= chunk.begin and chunk.end <= begin + len(content):
                self._sizes.add(chunk, memoryview(content)[chunk.begin - begin:chunk.end - begin])


def row_groups_of(footer: Footer) -> list[RowGroup]:
    """The row groups in the footer of a file. Raises PageError, also for a footer that would expand in pyarrow."""
    length = int.from_bytes(footer.content[-8:-4], "little")
    reader = _Reader(memoryview(footer.content)[-8 - length:-8])
    groups = []
    for kind, number in reader.fields():
        if (kind, number) == (_LIST, _ROW_GROUPS):
            groups = [_row_group(reader) for _ in reader.structures()]
        elif (kind, number) == (_LIST, _SCHEMA):
            elements = reader.structures()
            if len(elements) > _MOST_SCHEMA_ELEMENTS:
                raise PageError(f"its schema has {len(elements):,} elements (limit {_MOST_SCHEMA_ELEMENTS:,})")
            for _ in elements:
                reader.skip(_STRUCT)
        else:
            reader.skip(kind)
    return groups


def check_columns(groups: list[RowGroup], physical_types: list[str]) -> None:
    """Whether each row group has a chunk of each column, of its type. Raises PageError.

    physical_types: of the columns of the schema. Without this check, pyarrow aborts the process when a chunk is looked
    up.
    """
    for group in groups:
        if [chunk.physical_type for chunk in group.chunks] != physical_types:
            raise PageError("a column chunk is missing, or has another type than its column")


def row_group_offsets(groups: list[RowGroup]) -> list[int]:
    """File offsets of each row group, and of the end of the last one."""
    starts = [min(chunk.begin for chunk in group.chunks) for group in groups]
    return [*starts, max(chunk.end for chunk in groups[-1].chunks) if groups else len(MAGIC)]


def _row_group(reader: "_Reader") -> RowGroup:
    chunks, rows = [], 0
    for kind, number in reader.fields():
        if (kind, number) == (_LIST, _COLUMNS):
            chunks = [_chunk(reader, column) for column in reader.structures()]
        elif (kind, number) == (_I64, _NUM_ROWS):
            rows = reader.integer()
        else:
            reader.skip(kind)
    if not chunks:
        raise PageError("a row group has no columns")
    return RowGroup(rows, chunks)


def _chunk(reader: "_Reader", column: int) -> Chunk:
    sizes: dict[int, int] = {}
    for kind, number in reader.fields():
        if (kind, number) == (_STRUCT, _META_DATA):
            sizes = reader.integers((_TYPE, _TOTAL_COMPRESSED, _DATA_PAGE, _DICTIONARY_PAGE))
        else:
            reader.skip(kind)
    if not {_TYPE, _TOTAL_COMPRESSED, _DATA_PAGE} <= sizes.keys() or not 0 <= sizes[_TYPE] < len(_PHYSICAL_TYPES):
        raise PageError("the footer lacks a column chunk")
    begin, dictionary = sizes[_DATA_PAGE], sizes.get(_DICTIONARY_PAGE, 0)
    begin = dictionary if 0 < dictionary < begin else begin  # as Arrow does
    return Chunk(column, begin, begin + sizes[_TOTAL_COMPRESSED], _PHYSICAL_TYPES[sizes[_TYPE]])


class _Reader:
    """Reads structures in Thrift's compact encoding. at: bytes read so far. Raises PageError."""

    def __init__(self, content: memoryview):
        self._content = content
        self._elements_left = _BASE_ELEMENTS + len(content) // _BYTES_PER_ELEMENT
        self.at = 0

    def fields(self) -> Iterator[tuple[int, int]]:
        """Type and number of each field of a structure; the caller reads or skips its value before the next."""
        number = 0
        while byte := self._byte():
            number = number + (byte >> 4) if byte >> 4 else self.integer()
            yield byte & 15, number

    def integers(self, wanted: tuple[int, ...]) -> dict[int, int]:
        """The integers with these numbers in a structure, of which everything else is skipped."""
        values: dict[int, int] = {}
        for kind, number in self.fields():
            if kind in _INTEGERS and number in wanted:
                values[number] = self.integer()
            else:
                self.skip(kind)
        return values

    def structures(self) -> range:
        """The head of a list of structures: their indices."""
        kind, count = self._list()
        if count and kind != _STRUCT:
            raise PageError("the footer has a list of another type")
        return range(count)

    def integer(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)

    def skip(self, kind: int, depth: int = 0) -> None:
        if depth > _MOST_NESTING:
            raise PageError("a structure is nested too deeply")
        if kind == _BYTE:
            self._byte()
        elif kind in _INTEGERS:
            self._varint()
        elif kind == _DOUBLE:
            self._forward(8)
        elif kind == _BINARY:
            self._forward(self._varint())
        elif kind == _STRUCT:
            for inner, _ in self.fields():
                self.skip(inner, depth + 1)
        elif kind in (_LIST, _SET):
            inner, count = self._list()
            for _ in range(count):
                self._skip_element(inner, depth + 1)
        elif kind == _MAP:
            count = self._varint()
            kinds = self._byte() if count else 0
            for _ in range(count):
                self._skip_element(kinds >> 4, depth + 1)
                self._skip_element(kinds & 15, depth + 1)
        elif kind not in (_TRUE, _FALSE):
            raise PageError("a field has an unknown type")

    def _skip_element(self, kind: int, depth: int) -> None:
        """Unlike a field, an element of a list has a byte for a Boolean."""
        self.skip(_BYTE if kind in (_TRUE, _FALSE) else kind, depth)

    def _list(self) -> tuple[int, int]:
        """Type and number of the elements."""
        byte = self._byte()
        count = byte >> 4 if byte >> 4 < 15 else self._varint()
        self._elements_left -= count
        if self._elements_left < 0:
            raise PageError("its lists have more elements than a file of this size may")
        return byte & 15, count

    def _forward(self, count: int) -> None:
        self.at += count
        if self.at > len(self._content):
            raise PageError("a structure is cut off")

    def _byte(self) -> int:
        self._forward(1)
        return self._content[self.at - 1]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise PageError("a number has more than 64 bits")
