"""The footer of a trace file: a cheap check that the file is complete, and its identity."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow as pa

from blkreel.common.command_line import command_line
from blkreel.common.errors import TraceError
from blkreel.common.files.output_lock import refuse_in_use, spool_of
from blkreel.common.files.storage_url import Location, StorageUrl

MAGIC = b"PAR1"
# The footer of a trace of some million rows is smaller; a larger one needs a second range.
_REMOTE_TAIL_BYTES = 64 << 10
_END_BYTES = 8  # length of the metadata, magic


@dataclass(frozen=True)
class Footer:
    """content: the last bytes of the file, at least the complete footer. identity: a hash of footer and size."""

    size_bytes: int
    content: bytes
    identity: str

    @property
    def begins_at(self) -> int:
        return self.size_bytes - len(self.content)


def local_file(path: Path) -> pa.NativeFile:
    """An open file. By its path Arrow opens only a name in UTF-8."""
    return pa.OSFile(os.fsencode(path))


def read_footer(path: Location) -> Footer:
    """The footer of a Parquet file. Raises TraceError for another kind of file or a truncated one.

    The identity is the same for a copy and differs for other content: the footer holds offset, size and bounds of each
    column chunk, and the start time of the trace.
    """
    if isinstance(path, StorageUrl):
        with path.errors(), path.open() as file:
            return _read(path, file, _REMOTE_TAIL_BYTES)
    try:
        with open(path, "rb") as file:
            return _read(path, file, _END_BYTES)
    except FileNotFoundError:
        refuse_unfinished(path, path)
        raise TraceError(f"{path} does not exist", "record one with `blkreel capture -o FILE`") from None
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}", f"ls -l {path}") from None


def refuse_unfinished(output: Path, named: Path) -> None:
    """Raise for a trace without a file of its name: OutputInUse while a command writes it, TraceError after its kill.

    named: the trace as the user named it, which may be the directory of a run.
    """
    refuse_in_use(output)
    if spool_of(output).is_dir():
        raise TraceError(f"{named} is unfinished: the command that wrote it was killed",
                         f"complete it from what was written: {command_line('recover', named)}")


def _read(path: Location, file: IO[bytes], tail_bytes: int) -> Footer:
    if not file.seekable():
        raise TraceError(f"{path} is a pipe or a device", "write it to a file first: a trace is read from its end")
    size = file.seek(0, 2)
    if size == 0:
        raise TraceError(f"{path} is empty: its writer never finished", "record it again")
    tail = _last(file, size, tail_bytes)
    if tail[-4:] != MAGIC or size < 12:
        file.seek(0)
        if file.read(4) != MAGIC:
            raise TraceError(f"{path} is not a Parquet file", "name a trace made by `blkreel capture`")
        raise TraceError(f"{path} is truncated: its last bytes are missing",
                         "copy it again from an intact copy, or record it again")
    footer_bytes = int.from_bytes(tail[-8:-4], "little") + _END_BYTES
    if footer_bytes > size - len(MAGIC):
        raise TraceError(f"{path} is damaged (its footer is longer than the file)",
                         "copy it again from an intact copy, or record it again")
    if footer_bytes > len(tail):
        tail = _last(file, size, footer_bytes)
    digest = hashlib.sha256(tail[-footer_bytes:])
    digest.update(size.to_bytes(8, "little"))
    return Footer(size, tail, digest.hexdigest())


def _last(file: IO[bytes], size: int, count: int) -> bytes:
    file.seek(max(0, size - count))
    return file.read(min(size, count))


class FooterFirst:
    """A remote file for pyarrow whose end was read already. Not thread-safe; pyarrow locks around it.

    on_range: called with the offset and the content of each range, before pyarrow gets it.
    """

    def __init__(self, path: StorageUrl, footer: Footer):
        self._path, self._footer = path, footer
        self._file: IO[bytes] | None = None  # opened for the first unread range: opening may cost a round trip
        self._at = 0
        self.closed = False
        self.on_range: Callable[[int, bytes], None] = lambda begin, content: None

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
            content = self._footer.content[begin - self._footer.begins_at:end - self._footer.begins_at]
            self.on_range(begin, content)
            return content
        with self._path.errors():
            self._file = self._file or self._path.open()
            self._file.seek(begin)
            content = self._file.read(end - begin)
        if len(content) != end - begin:
            raise TraceError(f"{self._path} became shorter while it was read",
                             "run the command again when the file is complete")
        self.on_range(begin, content)
        return content

    def flush(self) -> None:
        """Nothing to do: the file is read-only."""

    def close(self) -> None:
        self.closed = True
        if self._file:
            self._file.close()
