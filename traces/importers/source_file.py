"""Reads a recording, compressed or not, in bounded memory."""

import bz2
import codecs
import gzip
import io
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import pyarrow as pa

from blkreel.common.errors import TraceError, os_errors

HEAD_BYTES = 64 << 10
_MAGICS = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd",
           b"PK\x03\x04": "zip"}
_TAR_AT, _TAR = 257, b"ustar"
_MOST_LAYERS = 4  # a stream may decompress to itself
# What is not read: why, and what to do. FILE stands for the path.
_OTHERS = {b"version https://git-lfs.github.com/spec/": ("a pointer of Git LFS, not the file", "git lfs pull"),
           b"7z\xbc\xaf\x27\x1c": ("a 7z archive", "7z x FILE"), b"Rar!": ("a rar archive", "unrar x FILE"),
           b"\x04\x22\x4d\x18": ("a stream of lz4", "lz4 -d FILE"), b"LZIP": ("a stream of lzip", "lzip -dk FILE"),
           b"\x1f\x9d": ("a stream of compress", "uncompress -k FILE")}
_UNPACK = {"zip": "unzip FILE", "tar": "tar -xf FILE"}
_UTF_16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_TEXT_HEAD_BYTES = 512
_DECODED_BYTES = 1 << 20
_DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError, pa.ArrowException, tarfile.TarError, zipfile.BadZipFile)


class SourceFile:
    """The content of a file, unpacked, with UTF-16 text as UTF-8. Bytes added after it was opened are not read.

    Of a zip or tar archive it is that of its only file, also a compressed one. packing: gzip, bzip2, xz, zstd, zip, tar
    from the outermost to the innermost. grew: whether the file was longer at the end than at the start.
    Raises TraceError if it cannot be read, or is cut or damaged inside a compressed stream.
    """

    def __init__(self, path: Path):
        self.path = path
        self.position_bytes = 0
        self.packing: list[str] = []
        with os_errors(TraceError, f"cannot read {path}"):
            self._raw = _Bounded(open(path, "rb", buffering=0))
        try:
            with self._errors():
                self._stream = _Utf8(self._unpacked())
        except BaseException:
            self._raw.close()
            raise

    def _unpacked(self) -> "_Begun":
        stream = _Begun(self._raw)
        while kind := _packing_of(stream.head):
            if len(self.packing) == _MOST_LAYERS:
                raise TraceError(f"{self.path} is packed more than {_MOST_LAYERS} times", self._how_to_unpack())
            if kind == "zip" and self.packing:
                raise TraceError(f"{self.path} holds a zip archive inside of a {self.packing[-1]} file",
                                 self._how_to_unpack())
            self.packing.append(kind)
            stream = _Begun(_zip_member(self.path) if kind == "zip" else _TarMember(stream, self.path)
                            if kind == "tar" else _decompressor(kind, stream))
        for start, (what, command) in _OTHERS.items():
            if stream.head.startswith(start):
                verb = "holds" if self.packing else "is"
                raise TraceError(f"{self.path} {verb} {what}", self._how_to_unpack(command))
        return stream

    def refuse_packed(self, what: str) -> None:
        """Raise TraceError for content that is not read as a stream, if it is packed."""
        if self.packing:
            raise TraceError(f"{self.path}: {what} is not read from a {self.packing[0]} file", self._how_to_unpack())

    def _how_to_unpack(self, command: str | None = None) -> str:
        if self.packing:
            command = _UNPACK.get(self.packing[0], f"{self.packing[0]} -dk FILE")
        return f"{(command or '').replace('FILE', str(self.path))}, and import the result"

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
            with self._errors():
                part = self._stream.read(left)
            if not part:
                break
            parts.append(part)
            left -= len(part)
            self.position_bytes += len(part)
        return b"".join(parts)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except _DAMAGE as error:
            if not self.packing:
                why = getattr(error, "strerror", None) or error
                raise TraceError(f"cannot read {self.path}: {why}") from error
            raise TraceError(f"{self.path}: the {' in '.join(reversed(self.packing))} stream is cut or damaged after "
                             f"{self.position_bytes:,} decompressed bytes",
                             "get the whole file again, or decompress the rest of it and import that") from error


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

    def __init__(self, stream: "_Begun"):
        self._read = stream.next
        self._decoder: codecs.IncrementalDecoder | None = None
        self._waiting = b""
        self._ended = False
        encoding = _UTF_16.get(stream.head[:2])
        if encoding and _is_text(stream.head[2:], encoding):
            self._decoder = codecs.getincrementaldecoder(encoding)("replace")
            stream.next(2)

    def read(self, count: int) -> bytes:
        """Up to `count` bytes, b"" at the end."""
        if not self._decoder:
            return self._read(min(count, _DECODED_BYTES))
        while not self._waiting and not self._ended:
            data = self._read(_DECODED_BYTES)
            self._ended = not data
            self._waiting = self._decoder.decode(data, self._ended).encode()
        part, self._waiting = self._waiting[:count], self._waiting[count:]
        return part


class _Begun(io.RawIOBase):
    """A stream whose first bytes, `head`, are known before they are read."""

    def __init__(self, stream: Any):
        # Decompressors give all data before a damage by read1() only.
        self._rest = getattr(stream, "read1", stream.read)
        self._damage: Exception | None = None
        head = b""
        try:
            while len(head) < _TEXT_HEAD_BYTES and (part := bytes(self._rest(_TEXT_HEAD_BYTES - len(head)))):
                head += part
        except _DAMAGE as error:
            self._damage = error
        self.head = self._waiting = head

    def readable(self) -> bool:
        return True

    def next(self, count: int) -> bytes:
        """Up to `count` bytes, b"" at the end."""
        part, self._waiting = self._waiting[:count], self._waiting[count:]
        if not part and self._damage:
            raise self._damage
        return part or bytes(self._rest(count))

    def readinto(self, buffer: Any) -> int:
        data = self.next(len(buffer))
        buffer[:len(data)] = data
        return len(data)


class _TarMember:
    """The only file of a tar archive. Raises TraceError if there is none or, at its end, if there is another."""

    def __init__(self, stream: _Begun, path: Path):
        self._path = path
        self._tar = tarfile.open(fileobj=stream, mode="r|")
        first = self._next()
        if first is None:
            raise TraceError(f"{path} is a tar archive without a file", "name an archive that has a recording")
        self._file: Any = self._tar.extractfile(first)
        self._ended = False

    def read(self, count: int) -> bytes:
        """Up to `count` bytes, b"" at the end."""
        data: bytes = b"" if self._ended else self._file.read(count)
        self._ended, was_ended = not data, self._ended
        if not data and not was_ended and (member := self._next()) is not None:
            raise TraceError(f"{self._path} is a tar archive of several files, such as {member.name}",
                             f"unpack it, and import the files: tar -xf {self._path}")
        return data

    def _next(self) -> Any:
        return next((member for member in iter(self._tar.next, None) if member.isfile()), None)


def _zip_member(path: Path) -> Any:
    """The only file of a zip archive as a stream."""
    try:
        archive = zipfile.ZipFile(path)
        files = [member for member in archive.infolist() if not member.is_dir()]
        if len(files) == 1 and not files[0].flag_bits & 1:
            return archive.open(files[0])
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise TraceError(f"{path}: cannot read the zip archive: {error}", "get the whole file again, or unpack it: "
                         f"unzip {path}") from error
    what = "with a password" if len(files) == 1 else f"of {len(files)} files"
    raise TraceError(f"{path} is a zip archive {what}", f"unpack it, and import the files: unzip {path}")


def _packing_of(head: bytes) -> str | None:
    if head[_TAR_AT:].startswith(_TAR):
        return "tar"
    return next((name for start, name in _MAGICS.items() if head.startswith(start)), None)


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


def _decompressor(compression: str, stream: io.RawIOBase) -> Any:
    buffered = io.BufferedReader(stream, 1 << 18)
    if compression == "gzip":
        return gzip.GzipFile(fileobj=buffered)
    if compression == "bzip2":
        return bz2.BZ2File(buffered)
    if compression == "xz":
        return lzma.LZMAFile(buffered)
    return pa.CompressedInputStream(pa.PythonFile(buffered, mode="r"), "zstd")
