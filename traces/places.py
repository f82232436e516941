"""Where traces lie: a path, or the URL of an object (s3://, gs://, http...), of which only the needed ranges are read.

A Url has the part of Path's interface that readers of traces use, so that both go through the same code.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from .errors import BlkreelError, TraceError, UsageError

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*(://|::)", re.IGNORECASE)
_LOCAL = ("file", "local")
# What fsspec needs beside itself, where that is one package of another name than the protocol tells.
_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs",
             "http": "aiohttp", "https": "aiohttp", "ssh": "paramiko", "sftp": "paramiko", "smb": "smbprotocol",
             "oci": "ocifs", "oss": "ossfs", "hf": "huggingface_hub", "github": "requests", "webhdfs": "requests",
             "webdav": "webdav4", "dropbox": "dropboxdrivefs", "git": "pygit2", "hdfs": "pyarrow", "box": "boxfs"}


@dataclass(frozen=True)
class Url:
    """text: as fsspec takes it. Where it is shown, a password and a query, which may sign it, are left out."""

    text: str

    def __str__(self) -> str:
        shown = re.sub(r"(?<=://)[^/@]*@", "", self.text)
        return re.sub(r"\?.*", "", shown) if self.protocol in ("http", "https") else shown

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
    def parent(self) -> "Url":
        return Url(self._bare.rpartition("/")[0])

    def with_name(self, name: str) -> "Url":
        return Url(f"{self._bare.rpartition('/')[0]}/{name}{self._query}")

    def __truediv__(self, name: str) -> "Url":
        return Url(f"{self._bare}/{name}{self._query}")

    @property
    def _query(self):
        return self.text[self.text.index("?"):] if self.protocol in ("http", "https") and "?" in self.text else ""

    @property
    def _bare(self):
        return self.text.removesuffix(self._query).rstrip("/")

    def filesystem(self):
        """(fsspec's file system, the path in it). Raises UsageError for a protocol that nobody knows, BlkreelError
        where its package is missing."""
        import fsspec  # only whoever names a URL waits for it
        try:
            return fsspec.core.url_to_fs(self.text)
        except ImportError as error:
            package = _PACKAGES.get(self.protocol)
            told = str(error).strip().splitlines()[0] if str(error).strip() else "a package is missing"
            raise BlkreelError(f"{self} cannot be opened: {self.protocol}:// needs {package or 'a package'} ({told})",
                               f"pip install {package}" if package else "install what it names") from error
        except ValueError as error:
            if "not known" not in str(error):
                raise UsageError(f"{self} cannot be opened: {error}", "see docs/scale.md for URLs") from error
            raise UsageError(f"{self}: no storage is called {self.protocol}://",
                             "there are s3://, gs://, az://, http://, https://, memory://, file:// and more of fsspec"
                             ) from None

    def is_file(self) -> bool:
        with self.errors():
            filesystem, path = self.filesystem()
            try:
                # Not isfile(), which asks an HTTP server for all of it.
                return filesystem.info(path)["type"] == "file"
            except FileNotFoundError:
                return False

    def read_bytes(self) -> bytes:
        """Raises FileNotFoundError, and OSError for whatever else the storage says."""
        filesystem, path = self.filesystem()
        with _as_os_error():
            return filesystem.cat_file(path)

    def read_text(self) -> str:
        return self.read_bytes().decode()

    def write_bytes(self, content: bytes) -> None:
        """The whole object at once: storages show it when it is whole. Raises OSError where that may not be."""
        filesystem, path = self.filesystem()
        with _as_os_error():
            filesystem.pipe_file(path, content)

    def open(self):
        """A file to read, each read of which is one range. Raises TraceError where it cannot be."""
        with self.errors():
            filesystem, path = self.filesystem()
            file = filesystem.open(path, "rb", cache_type="none")
            if not file.seekable():
                raise _no_ranges(self)
            return file

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turns what a storage says into a TraceError that names this object."""
        try:
            yield
        except BlkreelError:
            raise
        except FileNotFoundError as error:
            # fsspec says so of a server that refuses and of one that is not there, too; why, stands in the cause.
            cause = error.__cause__
            if isinstance(cause, OSError) or getattr(cause, "status", 404) != 404:
                raise self._unreadable(cause) from error
            raise TraceError(f"{self} does not exist", f"list what is there: {self.parent}") from None
        except PermissionError as error:
            raise TraceError(f"{self} may not be read ({_words(error)})",
                             f"give this shell the credentials of {self.protocol}://") from error
        except Exception as error:  # each storage's library has errors of its own
            if "range" in str(error).lower():
                raise _no_ranges(self) from error
            raise self._unreadable(error) from error

    def _unreadable(self, error):
        return TraceError(f"{self} cannot be read ({_words(error)})",
                          f"check the address, the network and the credentials of {self.protocol}://")


Place = Path | Url


def place(named) -> Place:
    """A path or URL as a user names it. file:// is a path."""
    if isinstance(named, Path | Url):
        return named
    text = str(named)
    if not _SCHEME.match(text):
        return Path(text)
    url = Url(text)
    if url.protocol in _LOCAL:
        split = urlsplit(text)
        return Path(unquote(split.netloc + split.path))
    return url


def _no_ranges(url):
    return TraceError(f"{url} cannot be read in parts: its server sends whole files only", "copy it here first")


def _words(error):
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


@contextmanager
def _as_os_error():
    try:
        yield
    except (OSError, BlkreelError):
        raise
    except Exception as error:
        raise OSError(_words(error)) from error
