"""Reads a recording, compressed or not, in bounded memory."""

import bz2
import codecs
import gzip
import io
import lzma
import os
import zlib
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import pyarrow as pa

from blkreel.common.errors import TraceError

HEAD_BYTES = 64 << 10
_MAGICS = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_UTF_16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_TEXT_HEAD_BYTES = 512
_DECODED_BYTES = 1 << 20
_DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError, pa.ArrowException)


class SourceFile:
    """The content of a file, decompressed, with UTF-16 text as UTF-8. Bytes added after it was opened are not read.

    compression: gzip, bzip2, xz, zstd, or None. grew: whether the file was longer at the end than at the start.
    Raises TraceError if it cannot be read, or is cut or damaged inside a compressed stream.
    """

    def __init__(self, path: Path):
        self.path = path
        self.position_bytes = 0
        try:
            self._raw = _Bounded(open(path, "rb", buffering=0))
            magic = self._raw.peek(6)
        except OSError as error:
            raise TraceError(f"cannot read {path}: {error.strerror}") from error
        self.compression = next((name for start, name in _MAGICS.items() if magic.startswith(start)), None)
        self._stream = _Utf8(_decompressor(self.compression, self._raw))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self._raw.close()

    @property
    def grew(self) -> bool:
        return self._raw.grew()

    def read(self, count: int) -> bytes:
        """Up to `count` bytes; fewer only at the end."""
        parts: list[bytes] = []
        left = count
        while left:
            try:
                part = self._stream.read(left)
            except _DAMAGE as error:
                if self.compression is None:
                    why = getattr(error, "strerror", None) or error
                    raise TraceError(f"cannot read {self.path}: {why}") from error
                raise TraceError(f"{self.path}: the {self.compression} stream is cut or damaged after "
                                 f"{self.position_bytes:,} decompressed bytes",
                                 "get the whole file again, or decompress the rest of it and import that") from error
            if not part:
                break
            parts.append(part)
            left -= len(part)
            self.position_bytes += len(part)
        return b"".join(parts)


def read_head(path: Path) -> bytes:
    """The first 64 KiB of the content; less if the compressed stream is damaged there."""
    with SourceFile(path) as source:
        head = b""
        try:
            while len(head) < HEAD_BYTES and (part := source.read(min(4096, HEAD_BYTES - len(head)))):
                head += part
        except TraceError:
            if not head:
                raise
        return head


class _Utf8:
    """A stream whose UTF-16 text, which begins with a byte order mark, is read as UTF-8 without one.

    Windows programs export such text. An incomplete or invalid character becomes U+FFFD.
    """

    def __init__(self, stream: Any):
        # Decompressors give all data before a damage by read1() only.
        self._read = getattr(stream, "read1", stream.read)
        self._decoder: codecs.IncrementalDecoder | None = None
        self._waiting = b""
        self._begun = self._ended = False

    def read(self, count: int) -> bytes:
        """Up to `count` bytes, b"" at the end."""
        if not self._begun:
            self._begin()
        while self._decoder and not self._waiting and not self._ended:
            data = bytes(self._read(_DECODED_BYTES))
            self._ended = not data
            self._waiting = self._decoder.decode(data, self._ended).encode()
        if self._waiting:
            part, self._waiting = self._waiting[:count], self._waiting[count:]
            return part
        return b"" if self._decoder else bytes(self._read(min(count, _DECODED_BYTES)))

    def _begin(self) -> None:
        head = b""
        while len(head) < _TEXT_HEAD_BYTES and (part := bytes(self._read(_TEXT_HEAD_BYTES - len(head)))):
            head += part
        encoding = _UTF_16.get(head[:2])
        if encoding and _is_text(head[2:], encoding):
            self._decoder = codecs.getincrementaldecoder(encoding)("replace")
            head = self._decoder.decode(head[2:]).encode()
        self._waiting, self._begun = head, True


def _is_text(data: bytes, encoding: str) -> bool:
    """Whether the data is UTF-16 and not numbers that begin like its byte order mark."""
    text = data.decode(encoding, "replace")[:-1]
    ascii_ = sum(char.isprintable() or char in "\t\r\n" for char in text if char < "\x7f")
    return ascii_ > len(text) // 2 and "\0" not in text


class _Bounded(io.RawIOBase):
    """A file up to the length that it has when it is opened."""

    def __init__(self, file: BinaryIO | io.FileIO):
        self._file = file
        self._size_bytes = self._left_bytes = os.fstat(file.fileno()).st_size

    def peek(self, count: int) -> bytes:
        return os.pread(self._file.fileno(), min(count, self._size_bytes), 0)

    def grew(self) -> bool:
        return os.fstat(self._file.fileno()).st_size > self._size_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)[:self._left_bytes]
        count = self._file.readinto(view) or 0  # type: ignore[union-attr]
        self._left_bytes -= count
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _decompressor(compression: str | None, raw: _Bounded) -> Any:
    if compression == "gzip":
        return gzip.GzipFile(fileobj=io.BufferedReader(raw, 1 << 18))
    if compression == "bzip2":
        return bz2.BZ2File(io.BufferedReader(raw, 1 << 18))
    if compression == "xz":
        return lzma.LZMAFile(io.BufferedReader(raw, 1 << 18))
    if compression == "zstd":
        return pa.CompressedInputStream(pa.PythonFile(io.BufferedReader(raw, 1 << 18), mode="r"), "zstd")
    return raw
