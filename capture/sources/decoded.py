"""What all sources have in common whose events the decoder makes into rows."""

import os
import shutil
import time
from pathlib import Path

from blkreel.traces.decoder import Decoder
from blkreel.traces.errors import BlkreelError

from ..drives import layer_of

_STAT_FIELDS = {"read": 0, "write": 4, "discard": 11, "flush": 15}


class DecodedSource:
    """A source as the session needs it (capture/sources/__init__.py), around a decoder and what feeds it.

    tells_late: whether events and lost are known at its end only.

    The events' times are readings of CLOCK_MONOTONIC; the rows' are relative to the moment of attaching.
    """

    tells_late = False

    def __init__(self, name: str, drives, spool, on_change):
        self.name, self.drives, self.spool = name, drives, spool
        self.attached = self.end = self.error = None
        self.died = False
        self.threads: dict[int, dict] = {}
        self.decoder: Decoder | None = None
        self._on_change = on_change
        self._counts = [None] * len(drives)
        self._stopped = False

    @property
    def events(self) -> int:
        return self.end["events"] if self.end else self.decoder.events if self.decoder else 0

    @property
    def lost(self) -> int:
        if self.end:
            return self.end["lost"]["total"] or 0
        return self.decoder.lost if self.decoder else 0

    @property
    def progress(self) -> dict | None:
        return self.decoder.progress if self.decoder else None

    def stop(self) -> None:
        raise NotImplementedError

    def _start_decoder(self, arguments, pass_fds=()):
        self.decoder = Decoder([*_device_arguments(self.drives), *arguments], self.spool, self._decoder_changed,
                               pass_fds=pass_fds)

    def _attach(self, epoch_ns):
        self._counts = [_diskstats(drive) for drive in self.drives]
        layers = {layer_of(drive) for drive in self.drives}
        self.attached = {
            "source_format": self.name, "epoch_ns": epoch_ns, "realtime_ns": time.time_ns(),
            "clock_resolution_ns": 1, "capture_layer": "request" if "request" in layers else "bio",
            "queue_time_source": "block_bio_queue"}
        self._on_change()

    def _count_at_stop(self):
        """The drives' own counters of the time since it was attached."""
        now = [_diskstats(drive) for drive in self.drives]
        self._counts = [_difference(before, after) for before, after in zip(self._counts, now, strict=True)]

    def _take_end(self, lost_total, helper_cpu_ns=0):
        """The decoder's totals as this source's. lost_total: events that its tracer says it lost; None: it cannot."""
        self.error = self.error or self.decoder.error
        self.died = self.decoder.end is None
        if self.decoder.end is None:
            return
        end = self.decoder.end
        drives = [{**drive, "diskstats": counts} for drive, counts in zip(end["drives"], self._counts, strict=True)]
        lost = {**end["lost"]}
        lost["total"] = None if lost_total is None else max(lost_total, lost["total"])
        self.end = {**end, "drives": drives, "lost": lost, "cpu_ns": end["cpu_ns"] + helper_cpu_ns}

    def _decoder_changed(self):
        """Its end comes when it is asked to end; unasked it is a death, or a full disk."""
        if self._stopped or not self.decoder:
            return
        if self.decoder.error:
            self.error, self.died = self.decoder.error, True
            self._on_change()
        elif self.decoder.end:
            self.end = self.decoder.end
            self._on_change()


def _device_arguments(drives):
    words = []
    for drive in drives:
        words += ["--device" if layer_of(drive) == "request" else "--bio", f"{drive.major}:{drive.minor}"]
    return ["--only", *words]


def _diskstats(drive) -> dict | None:
    try:
        fields = Path(f"/sys/block/{drive.name}/stat").read_text().split()
    except OSError:
        return None
    return {name: int(fields[at]) if at < len(fields) else 0 for name, at in _STAT_FIELDS.items()}


def _difference(before, after):
    if before is None or after is None:
        return dict.fromkeys(_STAT_FIELDS, 0)
    return {name: after[name] - before[name] for name in _STAT_FIELDS}


def require(program: str, package: str) -> str:
    """The path of a program. Raises BlkreelError with the package that brings it."""
    found = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if not found:
        raise BlkreelError(f"there is no {program} on this machine", f"apt-get install {package}")
    return found
