"""Samples before they become `telemetry.parquet`: JSON lines in `.telemetry.parquet.spool`.

A Parquet file without its footer is unreadable, so a run that dies would lose its telemetry. Times in the spool are
readings of CLOCK_MONOTONIC, because the start of the run is not known yet.
"""

import json
import threading
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from blkreel.common.files.safe_files import create, lock_file, unlink
from blkreel.common.files.typed_document import mismatch, parse_json
from blkreel.traces.format.writer import output_errors

from .file import FILE, Sensor, Series, Telemetry, sensor, write_telemetry


class _Samples(TypedDict):
    t: int
    v: dict[str, float]


class _Declared(TypedDict):
    sensor: str
    unit: str
    source: str
    rate_hz: float | None
    missing: str | None


_Gap = TypedDict("_Gap", {"gap": str, "from": int, "to": int})


class _Note(TypedDict):
    note: str
    text: str


class _Smart(TypedDict):
    smart: str
    values: dict[str, Any]


class _Epoch(TypedDict):
    epoch_ns: int


# The key that a line is known by.
_LINES = {"t": _Samples, "sensor": _Declared, "gap": _Gap, "note": _Note, "smart": _Smart, "epoch_ns": _Epoch}
_TIMES_NS = range(-1 << 62, 1 << 62)  # the difference of two of them has 64 bits

_NO_START = "the run died before its start was known: time 0 is the first sample"


class TelemetrySpool:
    """Takes samples of one run from several threads. Each line is written at once and survives a kill.

    failed: why a line could not be written, otherwise "". latest: the last value of each sensor.
    Raises BlkreelError if the file cannot be created.
    """

    def __init__(self, directory: str | Path):
        self.path = spool_of(directory)
        self._output = Path(directory) / FILE
        self.failed = ""
        self.latest: dict[str, float] = {}
        self._lock = threading.Lock()
        self._broken = False
        with output_errors(self._output):
            self._file = create(self.path)
            lock_file(self._file)

    def epoch(self, monotonic_ns: int) -> None:
        """Set the start of the run."""
        self._write({"epoch_ns": monotonic_ns})

    def sensor(self, name: str, unit: str, source: str, rate_hz: float | None = None, *,
               missing: str | None = None) -> None:
        """Declare a sensor, or replace its declaration."""
        self._write({"sensor": name, "unit": unit, "source": source, "rate_hz": rate_hz, "missing": missing})

    def samples(self, monotonic_ns: int, values: Mapping[str, float]) -> None:
        self.latest.update(values)
        self._write({"t": monotonic_ns, "v": dict(values)})

    def gap(self, name: str, from_ns: int, to_ns: int) -> None:
        self._write({"gap": name, "from": from_ns, "to": to_ns})

    def note(self, name: str, text: str) -> None:
        self._write({"note": name, "text": text})

    def smart(self, when: str, values: Mapping[str, Any]) -> None:
        """when: `before` or `after` the run."""
        self._write({"smart": when, "values": dict(values)})

    def read(self) -> Telemetry:
        """The samples so far, on the run's clock."""
        return read_spool(self.path)

    def finish(self, telemetry: Telemetry, *, force: bool = False) -> Path:
        """Write the file and remove the spool, which stays if the file cannot be written."""
        path = write_telemetry(self._output, telemetry, force=force)
        self.discard()
        return path

    def close(self) -> None:
        """Leave it for recover_telemetry()."""
        with self._lock:
            self._file.close()

    def discard(self) -> None:
        self.close()
        unlink(self.path)

    def _write(self, entry: dict[str, Any]) -> None:
        line = json.dumps(entry, separators=(",", ":")).encode() + b"\n"
        with self._lock:
            if self._file.closed:
                return
            if self._broken:  # an incomplete line may precede
                line = b"\n" + line
            try:
                self._broken = self._file.write(line) != len(line)
            except OSError as error:
                self._broken = True
                self.failed = error.strerror or str(error)


def spool_of(directory: str | Path) -> Path:
    """Path of the telemetry spool of a run directory."""
    return Path(directory) / f".{FILE}.spool"


def read_spool(path: str | Path) -> Telemetry:
    """The content of a spool. Incomplete lines are left out and noted."""
    collected = _Collected()
    with open(path, "rb") as file:
        for line in file:
            if line.strip():
                collected.take(line)
    return collected.telemetry()


def _checked(line: bytes) -> dict[str, Any]:
    """Raises ValueError for a line that TelemetrySpool did not write."""
    entry: Any = parse_json(line)
    kind = next((kind for key, kind in _LINES.items() if key in entry), None) if isinstance(entry, dict) else None
    if kind is None or mismatch(entry, kind):
        raise ValueError("no line of a spool")
    if any(entry.get(key, 0) not in _TIMES_NS for key in ("t", "from", "to", "epoch_ns")):
        raise ValueError("no time")
    checked: dict[str, Any] = entry
    return checked


class _Collected:
    def __init__(self) -> None:
        self._epoch_ns: int | None = None
        self._sensors: dict[str, Sensor] = {}
        self._times: dict[str, array[int]] = {}
        self._values: dict[str, array[float]] = {}
        self._gaps: list[tuple[str, int, int]] = []
        self._smart: dict[str, dict[str, Any]] = {}
        self._unread = 0

    def take(self, line: bytes) -> None:
        try:
            entry = _checked(line)
            if "t" in entry:
                for name, value in entry["v"].items():
                    self._values.setdefault(name, array("d")).append(value)
                    self._times.setdefault(name, array("q")).append(entry["t"])
            elif "sensor" in entry:
                previous = self._sensors.get(entry["sensor"], {})
                declared = sensor(entry["unit"], entry["source"], entry["rate_hz"], missing=entry["missing"])
                self._sensors[entry["sensor"]] = {**declared, "notes": previous.get("notes", [])}
            elif "gap" in entry:
                self._gaps.append((entry["gap"], entry["from"], entry["to"]))
            elif "note" in entry:
                self._sensors[entry["note"]]["notes"].append(entry["text"])
            elif "smart" in entry:
                self._smart[entry["smart"]] = entry["values"]
            else:
                self._epoch_ns = entry["epoch_ns"]
        except (ValueError, KeyError):  # KeyError: a note on a sensor whose line was not readable
            self._unread += 1

    def telemetry(self) -> Telemetry:
        samples = {name: self._series(name) for name in self._sensors if name in self._times}
        zero_ns = self._epoch_ns
        if zero_ns is None:
            zero_ns = min((int(time_ns[0]) for time_ns, _ in samples.values()), default=0)
        sensors = {name: dict(entry, notes=list(entry["notes"]), gaps=[]) for name, entry in self._sensors.items()}
        for name, begin_ns, end_ns in self._gaps:
            if name in sensors:
                sensors[name]["gaps"].append([begin_ns - zero_ns, end_ns - zero_ns])
        for name, entry in sensors.items():
            entry["samples"] = len(samples[name][0]) if name in samples else 0
            if not entry["samples"] and entry["missing"] is None:
                entry["missing"] = "; ".join(entry["notes"]) or "it delivered no sample"
            if entry["samples"]:
                entry["missing"] = None
                if self._epoch_ns is None:
                    entry["notes"].append(_NO_START)
                if self._unread:
                    entry["notes"].append(f"{self._unread} unreadable lines of the telemetry spool were left out")
        return Telemetry(sensors, self._smart, self._epoch_ns,
                         {name: (time_ns - zero_ns, value) for name, (time_ns, value) in samples.items()})

    def _series(self, name: str) -> Series:
        time_ns = np.frombuffer(self._times[name], np.int64)
        value = np.frombuffer(self._values[name], np.float64)
        if np.any(time_ns[1:] < time_ns[:-1]):
            order = np.argsort(time_ns, kind="stable")
            time_ns, value = time_ns[order], value[order]
        return time_ns, value
