"""A language model of 4 GB loads from a cold cache beside a download at 1 Gbit/s to the same drive."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from model import MODEL_BYTES, put_model
from scratch import RECORDINGS, SATA, Scratch, emulated_drive, make_sample
from web import RATES, UNDER_WAY_S, download_beside, limited_dirty_data, server

_RATE = "1g"
_DOWNLOAD_BYTES = 22 * RATES[_RATE]


def make(name: str) -> None:
    with (emulated_drive(MODEL_BYTES + _DOWNLOAD_BYTES // 4096 * 4096, SATA) as scratch,
          server(_DOWNLOAD_BYTES) as url):
        command = put_model(scratch, "read")
        for _ in range(RECORDINGS):
            with _download(scratch, url):
                # The load is the captured command, and the download other work on the drive.
                scratch.record_best(name, command)
        with _download(scratch, url):
            scratch.time(command)


@contextmanager
def _download(scratch: Scratch, url: str) -> Iterator[None]:
    """A download that is under way on a cold drive."""
    (scratch.mount / "download.bin").unlink(missing_ok=True)
    scratch.settle()
    # With a limit of dirty data: the page cache that the load fills raises the default limits.
    with limited_dirty_data(scratch), download_beside(scratch, url, _RATE):
        time.sleep(UNDER_WAY_S)
        yield


make_sample("model-download", make)
