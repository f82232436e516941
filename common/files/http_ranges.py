"""A file on an HTTP server, read by ranges, from a server that nothing is known about.

fsspec's reader takes whatever a server sends after a range was requested. This one takes at most the requested bytes,
checks that they are the requested ones, and ends each request after a limited time.
"""

import io
import re
from typing import Any

from blkreel.common.units import format_bytes

MAX_RANGE_BYTES = 256 << 20
MAX_PAGE_BYTES = 16 << 20  # of a page that lists a directory
CONNECT_SECONDS, SILENT_SECONDS = 30, 30
# A request may take REQUEST_SECONDS, and a second for each SLOWEST_BYTES_PER_SECOND.
REQUEST_SECONDS, SLOWEST_BYTES_PER_SECOND = 60, 64 << 10
_CHUNK_BYTES = 64 << 10


class HttpError(Exception):
    """A response that does not answer the request. The text has no address. Not an OSError, which fsspec ignores
    while it lists directories.

    lacks_ranges: the server sends whole files only.
    """

    def __init__(self, text: str, *, lacks_ranges: bool = False):
        super().__init__(text)
        self.lacks_ranges = lacks_ranges


class HttpFile(io.RawIOBase):
    """Requests one range per read(). filesystem: fsspec's HTTPFileSystem, whose connections and options are used.

    Methods raise FileNotFoundError, PermissionError, HttpError, and other errors of aiohttp.
    """

    def __init__(self, filesystem: Any, url: str):
        super().__init__()
        self._filesystem, self._url = filesystem, url
        self._size_bytes: int | None = None
        self._at = 0

    @property
    def size_bytes(self) -> int:
        if self._size_bytes is None:
            # Not HEAD, which a signed URL may not allow.
            self._request(0, 1)
        assert self._size_bytes is not None
        return self._size_bytes

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = (0, self._at, self.size_bytes if whence == io.SEEK_END else 0)[whence]
        self._at = base + offset
        return self._at

    def read(self, count: int | None = -1) -> bytes:
        """Fewer bytes than requested only at the end of the file."""
        end = self.size_bytes if count is None or count < 0 else min(self._at + count, self.size_bytes)
        if end <= self._at:
            return b""
        content = self._request(self._at, end)
        self._at = end
        return content

    def _request(self, begin: int, end: int) -> bytes:
        import fsspec.asyn  # slow to import, and needed for URLs only
        if end - begin > MAX_RANGE_BYTES:
            raise HttpError(f"it needs {format_bytes(end - begin)} in one request "
                            f"(limit {format_bytes(MAX_RANGE_BYTES)})")
        content: bytes = fsspec.asyn.sync(self._filesystem.loop, self._get, begin, end)
        return content

    async def _get(self, begin: int, end: int) -> bytes:
        import aiohttp
        seconds = REQUEST_SECONDS + (end - begin) / SLOWEST_BYTES_PER_SECOND
        options = {**self._filesystem.kwargs,
                   "timeout": aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS,
                                                    sock_read=SILENT_SECONDS)}
        # A compressed answer could expand, and its length would not be that of the range.
        options["headers"] = {**options.get("headers", {}), "Range": f"bytes={begin}-{end - 1}",
                              "Accept-Encoding": "identity"}
        session = await self._filesystem.set_session()
        try:
            async with session.get(self._filesystem.encode_url(self._url), **options) as response:
                if response.status == 416 and response.headers.get("Content-Range", "").strip() == "bytes */0":
                    self._size_bytes = 0
                    return b""
                self._check(response, begin, end)
                return await _body(response, min(end, self.size_bytes) - begin)
        except aiohttp.TooManyRedirects:
            raise HttpError("the server redirects without end") from None
        except aiohttp.ClientPayloadError:
            raise HttpError("the server ended the connection before all bytes were sent") from None
        except TimeoutError:
            raise HttpError(f"the server took longer than {SILENT_SECONDS} s to send more, or {seconds:.0f} s to send "
                            f"{format_bytes(end - begin)}") from None

    def _check(self, response: Any, begin: int, end: int) -> None:
        """Whether the header announces the requested range. Notes the size of the file."""
        if response.status in (404, 410):
            raise FileNotFoundError(self._url)
        if response.status in (401, 403):
            raise PermissionError(f"status {response.status} {response.reason or ''}".strip())
        if response.status == 200:
            raise HttpError("the server does not support range requests", lacks_ranges=True)
        if response.status != 206:
            raise HttpError(f"the server answered with status {response.status} {response.reason or ''}".strip())
        if response.headers.get("Content-Encoding", "identity") not in ("identity", ""):
            raise HttpError("the server sent a compressed range, which was not requested")
        announced = re.fullmatch(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19})", response.headers.get("Content-Range", ""))
        if not announced:
            raise HttpError("the server's answer has no valid Content-Range with the size of the file")
        first, last, size = (int(number) for number in announced.groups())
        if self._size_bytes not in (None, size):
            raise HttpError(f"the file changed from {self._size_bytes:,} to {size:,} bytes while it was read")
        if (first, last + 1) != (begin, min(end, size)):
            raise HttpError(f"the server sent bytes {first}-{last} of {size}, not the requested {begin}-{end - 1}")
        self._size_bytes = size


async def _body(response: Any, count: int) -> bytes:
    """Exactly count bytes. Stops reading at the first byte too many."""
    content = bytearray()
    while chunk := await response.content.read(_CHUNK_BYTES):
        content += chunk
        if len(content) > count:
            raise HttpError(f"the server sent more than the requested {count:,} bytes")
    if len(content) < count:
        raise HttpError(f"the server sent {len(content):,} of the requested {count:,} bytes")
    return bytes(content)


async def limited_client(**options: Any) -> Any:
    """fsspec's `get_client`: a session of aiohttp whose responses are never longer than MAX_PAGE_BYTES when fsspec
    reads them itself, as it does for the page that lists a directory. HttpFile limits what it reads."""
    import aiohttp

    class LimitedResponse(aiohttp.ClientResponse):
        async def read(self) -> bytes:
            if self._body is None:
                page = bytearray()
                while chunk := await self.content.read(_CHUNK_BYTES):
                    page += chunk
                    if len(page) > MAX_PAGE_BYTES:
                        self.close()
                        raise HttpError(f"the server sent a page of more than {format_bytes(MAX_PAGE_BYTES)}")
                self._body = bytes(page)
            return self._body

    timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=CONNECT_SECONDS, sock_read=SILENT_SECONDS)
    return aiohttp.ClientSession(response_class=LimitedResponse, timeout=timeout, **options)
