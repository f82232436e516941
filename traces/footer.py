"""The end of a trace file: what tells at little cost that it is whole, and which file it is."""

import hashlib
from dataclasses import dataclass

from .errors import TraceError
from .places import Place, Url

MAGIC = b"PAR1"
# A trace of some million rows has a footer of less; a larger one takes a second range.
_REMOTE_TAIL_BYTES = 64 << 10
_END_BYTES = 8  # length of the metadata, magic


@dataclass(frozen=True)
class Footer:
    """content: the file's last bytes, the whole footer at least, and of a remote file what came with it."""

    size_bytes: int
    content: bytes
    fingerprint: str

    @property
    def begins_at(self) -> int:
        return self.size_bytes - len(self.content)


def read_footer(path: Place) -> Footer:
    """The footer of a Parquet file. Raises TraceError, with the remedy, for what is none or was cut off.

    Its fingerprint is a hash of the footer and the size: the footer states place, size and bounds of each column
    chunk, and the time at which the trace began. Files of other content have others; a copy has the same.
    """
    if isinstance(path, Url):
        with path.errors(), path.open() as file:
            return _read(path, file, _REMOTE_TAIL_BYTES)
    try:
        with open(path, "rb") as file:
            return _read(path, file, _END_BYTES)
    except FileNotFoundError:
        raise TraceError(f"{path} does not exist", "record one with `blkreel capture -o FILE`") from None
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}", f"ls -l {path}") from None


def _read(path, file, tail_bytes):
    size = file.seek(0, 2)
    if size == 0:
        raise TraceError(f"{path} is empty: its writer never finished", "record it again")
    tail = _last(file, size, tail_bytes)
    if tail[-4:] != MAGIC or size < 12:
        file.seek(0)
        if file.read(4) != MAGIC:
            raise TraceError(f"{path} is not a Parquet file", "name a trace made by `blkreel capture`")
        raise TraceError(f"{path} is cut off: its last bytes are missing",
                         "copy it again from where it was whole, or record it again")
    footer_bytes = int.from_bytes(tail[-8:-4], "little") + _END_BYTES
    if footer_bytes > size - len(MAGIC):
        raise TraceError(f"{path} is damaged (its footer is longer than the file)",
                         "copy it again from where it was whole, or record it again")
    if footer_bytes > len(tail):
        tail = _last(file, size, footer_bytes)
    digest = hashlib.sha256(tail[-footer_bytes:])
    digest.update(size.to_bytes(8, "little"))
    return Footer(size, tail, digest.hexdigest())


def _last(file, size, count):
    file.seek(max(0, size - count))
    return file.read(min(size, count))


class FooterFirst:
    """A remote file as pyarrow reads it, whose end is known already. Not thread-safe: pyarrow locks around it."""

    def __init__(self, path: Url, footer: Footer):
        self._path, self._footer = path, footer
        self._file = None  # opened for the first range that is not known: opening may cost a round trip
        self._at = 0
        self.closed = False

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._footer.size_bytes)[whence]
        return self._at

    def read(self, count: int = -1) -> bytes:
        end = self._footer.size_bytes if count is None or count < 0 else min(self._at + count, self._footer.size_bytes)
        begin, self._at = self._at, max(end, self._at)
        if begin >= self._footer.begins_at:
            return self._footer.content[begin - self._footer.begins_at:end - self._footer.begins_at]
        with self._path.errors():
            self._file = self._file or self._path.open()
            self._file.seek(begin)
            content = self._file.read(end - begin)
        if len(content) != end - begin:
            raise TraceError(f"{self._path} became shorter while it was read", "do it again when it is whole")
        return content

    def flush(self) -> None:
        """Nothing is written."""

    def close(self) -> None:
        self.closed = True
        if self._file:
            self._file.close()
