"""Locations of traces: paths, and URLs of objects (s3://, gs://, http://), of which only needed ranges are read.

StorageUrl implements the part of Path's interface that readers of traces use.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from blkreel.common.errors import BlkreelError, TraceError, UsageError
from blkreel.common.units import format_bytes

from .http_ranges import HttpError, HttpFile, limited_client

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*(://|::)", re.IGNORECASE)
_LOCAL = ("file", "local")
_HTTP = ("http", "https")
_MAX_WHOLE_BYTES = 64 << 20  # of an object that is read at once: a JSON file or a cached result
# The package that fsspec needs for a protocol.
_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs",
             "http": "aiohttp", "https": "aiohttp", "ssh": "paramiko", "sftp": "paramiko", "smb": "smbprotocol",
             "oci": "ocifs", "oss": "ossfs", "hf": "huggingface_hub", "github": "requests", "webhdfs": "requests",
             "webdav": "webdav4", "dropbox": "dropboxdrivefs", "git": "pygit2", "hdfs": "pyarrow", "box": "boxfs"}


@dataclass(frozen=True)
class StorageUrl:
    """text: for fsspec. str() leaves out a password and a query, which may hold a signature."""

    text: str

    def __str__(self) -> str:
        public = re.sub(r"(?<=://)[^/@]*@", "", self.text)
        return re.sub(r"\?.*", "", public) if self.protocol in _HTTP else public

    @property
    def protocol(self) -> str:
        return re.split(r"://|::", self.text, maxsplit=1)[0].lower()

    @property
    def name(self) -> str:
        return str(self).rstrip("/").rpartition("/")[2]

    @property
    def stem(self) -> str:
        return self.name.rpartition(".")[0] or self.name

    @property
    def suffix(self) -> str:
        return self.name[len(self.stem):]

    @property
    def parent(self) -> "StorageUrl":
        return StorageUrl(self._bare.rpartition("/")[0])

    def with_name(self, name: str) -> "StorageUrl":
        return StorageUrl(f"{self._bare.rpartition('/')[0]}/{name}{self._query}")

    def __truediv__(self, name: str) -> "StorageUrl":
        return StorageUrl(f"{self._bare}/{name}{self._query}")

    @property
    def _query(self) -> str:
        return self.text[self.text.index("?"):] if self.protocol in _HTTP and "?" in self.text else ""

    @property
    def _bare(self) -> str:
        return self.text.removesuffix(self._query).rstrip("/")

    def filesystem(self) -> tuple[Any, str]:
        """The fsspec file system, and the path in it.

        Raises UsageError for an unknown protocol, BlkreelError for a missing package.
        """
        import fsspec  # slow to import, and needed for URLs only
        try:
            options = {"get_client": limited_client} if self.protocol in _HTTP else {}
            filesystem, path = fsspec.core.url_to_fs(self.text, **options)
            return filesystem, path
        except ImportError as error:
            package = _PACKAGES.get(self.protocol)
            raise BlkreelError(f"cannot open {self}: {self.protocol}:// needs {package or 'a package'} "
                               f"({_first_line(error)})",
                               f"pip install {package}" if package else "install the package") from error
        except ValueError as error:
            if "not known" not in str(error):
                raise UsageError(f"cannot open {self}: {error}", "see docs/scale.md for URLs") from error
            raise UsageError(f"cannot open {self}: unknown protocol {self.protocol}://",
                             "use s3://, gs://, az://, http://, https://, file:// or another protocol of fsspec"
                             ) from None

    def is_file(self) -> bool:
        with self.errors():
            filesystem, path = self.filesystem()
            try:
                if self.protocol in _HTTP:
                    return HttpFile(filesystem, path).size_bytes >= 0
                return bool(filesystem.info(path)["type"] == "file")
            except FileNotFoundError:
                return False

    def read_bytes(self) -> bytes:
        """Raises FileNotFoundError, and OSError for any other error of the storage, and for more than 64 MiB."""
        filesystem, path = self.filesystem()
        with _as_os_error():
            file = HttpFile(filesystem, path) if self.protocol in _HTTP else None
            size_bytes = file.size_bytes if file else filesystem.size(path)
            if size_bytes > _MAX_WHOLE_BYTES:
                raise OSError(f"it has {format_bytes(size_bytes)} (limit {format_bytes(_MAX_WHOLE_BYTES)})")
            content: bytes = file.read() if file else filesystem.cat_file(path)
            return content

    def read_text(self) -> str:
        return self.read_bytes().decode()

    def write_bytes(self, content: bytes) -> None:
        """Write the whole object at once, so that readers never see a part of it. Raises OSError."""
        filesystem, path = self.filesystem()
        with _as_os_error():
            filesystem.pipe_file(path, content)

    def open(self) -> Any:
        """A binary file; each read requests one range. Raises TraceError."""
        with self.errors():
            filesystem, path = self.filesystem()
            if self.protocol in _HTTP:
                return HttpFile(filesystem, path)
            file = filesystem.open(path, "rb", cache_type="none")
            if not file.seekable():
                raise _no_ranges(self)
            return file

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn any error of the storage into a TraceError that names this object."""
        try:
            yield
        except BlkreelError:
            raise
        except FileNotFoundError as error:
            # fsspec raises it also for a server that refuses or does not answer; the cause has the reason.
            cause = error.__cause__
            if isinstance(cause, OSError) or getattr(cause, "status", 404) != 404:
                raise self._unreadable(cause) from error
            raise TraceError(f"{self} does not exist", f"look at the content of {self.parent}") from None
        except PermissionError as error:
            raise TraceError(f"cannot read {self}: no permission ({_first_line(error)})",
                             f"set the credentials of {self.protocol}://") from error
        except Exception as error:  # each storage library has its own classes of errors
            if isinstance(error, HttpError) and error.lacks_ranges:
                raise _no_ranges(self) from error
            raise self._unreadable(error) from error

    def _unreadable(self, error: BaseException | None) -> TraceError:
        return TraceError(f"cannot read {self}: {_first_line(error)}",
                          f"check the address, the network and the credentials of {self.protocol}://")


Location = Path | StorageUrl


def parse_location(location: str | Location) -> Location:
    """A path or URL from an argument. file:// is a path."""
    if isinstance(location, Path | StorageUrl):
        return location
    text = str(location)
    if not _SCHEME.match(text):
        return Path(text)
    url = StorageUrl(text)
    if url.protocol in _LOCAL:
        split = urlsplit(text)
        return Path(unquote(split.netloc + split.path))
    return url


def _no_ranges(url: StorageUrl) -> TraceError:
    return TraceError(f"cannot read {url} in parts: the server does not support range requests", "download it first")


def _first_line(error: BaseException | None) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


@contextmanager
def _as_os_error() -> Iterator[None]:
    try:
        yield
    except (OSError, BlkreelError):
        raise
    except Exception as error:
        raise OSError(_first_line(error)) from error
