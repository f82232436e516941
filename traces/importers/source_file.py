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
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import pyarrow as pa

from blkreel.common.errors import TraceError

HEAD_BYTES = 64 << 10
_MAGICS = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd"}
_ZIP = b"PK\x03\x04"
_TAR_AT, _TAR = 257, b"ustar"
# What is not read: why, and what to do. FILE stands for the path.
_OTHERS = {b"version https://git-lfs.github.com/spec/": ("a pointer of Git LFS, not the file", "git lfs pull"),
           b"7z\xbc\xaf\x27\x1c": ("a 7z archive", "7z x FILE"), b"Rar!": ("a rar archive", "unrar x FILE"),
           b"\x04\x22\x4d\x18": ("a stream of lz4", "lz4 -d FILE"), b"LZIP": ("a stream of lzip", "lzip -dk FILE"),
           b"\x1f\x9d": ("a stream of compress", "uncompress -k FILE")}
_UTF_16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_TEXT_HEAD_BYTES = 512
_DECODED_BYTES = 1 << 20
_DAMAGE = (EOFError, OSError, zlib.error, lzma.LZMAError, pa.ArrowException, tarfile.TarError, zipfile.BadZipFile)


class SourceFile:
    """The content of a file, decompressed, with UTF-16 text as UTF-8. Bytes added after it was opened are not read.

    Of a zip or tar archive it is that of its only file. compression: gzip, bzip2, xz, zstd, zip, or None. grew:
    whether the file was longer at the end than at the start.
    Raises TraceError if it cannot be read, or is cut or damaged inside a compressed stream.
    """

    def __init__(self, path: Path):
        self.path = path
        self.position_bytes = 0
        try:
            self._raw = _Bounded(open(path, "rb", buffering=0))
            magic = self._raw.peek(64)
        except OSError as error:
            raise TraceError(f"cannot read {path}: {error.strerror}") from error
        for start, (what, command) in _OTHERS.items():
            if magic.startswith(start):
                raise TraceError(f"{path} is {what}", f"{command.replace('FILE', str(path))}, and import the result")
        self.compression = next((name for start, name in _MAGICS.items() if magic.startswith(start)), None)
        if magic.startswith(_ZIP):
            self.compression = "zip"
            self._stream = _Utf8(_zip_member(path), path)
        else:
            self._stream = _Utf8(_decompressor(self.compression, self._raw), path)

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

    Windows programs export such text. An incomplete or invalid character becomes U+FFFD. Of a tar archive, its only
    file is read. path: for messages.
    """

    def __init__(self, stream: Any, path: Path):
        self._path = path
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
        head = self._head()
        if head[_TAR_AT:].startswith(_TAR):
            self._read = _TarMember(_Rejoined(head, self._read), self._path).read
            head = self._head()
        encoding = _UTF_16.get(head[:2])
        if encoding and _is_text(head[2:], encoding):
            self._decoder = codecs.getincrementaldecoder(encoding)("replace")
            head = self._decoder.decode(head[2:]).encode()
        self._waiting, self._begun = head, True

    def _head(self) -> bytes:
        head = b""
        while len(head) < _TEXT_HEAD_BYTES and (part := bytes(self._read(_TEXT_HEAD_BYTES - len(head)))):
            head += part
        return head


class _Rejoined:
    """A stream whose beginning has been read."""

    def __init__(self, head: bytes, rest: Callable[[int], bytes]):
        self._head, self._rest = head, rest

    def read(self, count: int) -> bytes:
        """Up to `count` bytes, b"" at the end."""
        part, self._head = self._head[:count], self._head[count:]
        return part or bytes(self._rest(count))


class _TarMember:
    """The only file of a tar archive. Raises TraceError if there is none or, at its end, if there is another."""

    def __init__(self, stream: _Rejoined, path: Path):
        self._path = path
        self._tar = tarfile.open(fileobj=stream, mode="r|")  # type: ignore[call-overload]
        first = self._next()
        if first is None:
            raise TraceError(f"{path} is a tar archive without a file", "name an archive that has a recording")
        self._file = self._tar.extractfile(first)
        self._ended = False
        _refuse_compressed(path, first.name)

    def read(self, count: int) -> bytes:
        """Up to `count` bytes, b"" at the end."""
        data: bytes = b"" if self._ended else self._file.read(count)
        self._ended, was_ended = not data, self._ended
        if not data and not was_ended and (other := self._next()) is not None:
            raise TraceError(f"{self._path} is a tar archive of several files, such as {other.name}",
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
            _refuse_compressed(path, files[0].filename)
            return archive.open(files[0])
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise TraceError(f"{path}: cannot read the zip archive: {error}", "get the whole file again, or unpack it: "
                         f"unzip {path}") from error
    what = "with a password" if len(files) == 1 else f"of {len(files)} files"
    raise TraceError(f"{path} is a zip archive {what}", f"unpack it, and import the files: unzip {path}")


def _refuse_compressed(path: Path, member: str) -> None:
    if member.endswith((".gz", ".bz2", ".xz", ".zst", ".zip", ".tar")):
        raise TraceError(f"{path} is an archive of {member}, which is compressed itself",
                         "unpack the archive, and import that file")


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
