"""Read the frame log of MangoHud (CSV), PresentMon (CSV) or CapFrameX (JSON).

Columns are found by their names, since each version has others. Sources: MangoHud src/logging.cpp; PresentMon
README-ConsoleApplication.md (2.x) and README.md (1.x); CapFrameX.Data.Session/Classes.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np
import numpy.typing as npt

from blkreel.common.errors import BlkreelError, UsageError, os_errors
from blkreel.common.files.typed_document import parse_typed
from blkreel.common.printable import printable

Times = npt.NDArray[np.int64]

LARGEST_BYTES = 1 << 30
_MOST_REJECTED = 0.01  # of the rows
_FORMATS = "the CSV file of MangoHud or PresentMon, or the JSON file of CapFrameX"
_MANGOHUD_NAME = re.compile(r"(?P<program>.+)_(?P<time>\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d)")
_DATE_TIME = re.compile(r"(\d{4})-(\d\d?)-(\d\d?)[T ](\d\d?):(\d\d):(\d\d)(?:\.(\d{1,9})\d*)?")
# Of a clock of unknown unit: ns in one of its units, and its name. The sum of the frame times decides which it is.
_CLOCK_UNITS_NS = (1.0, 100.0, 1e3, 1e6, 1e9)
_UNIT_TOLERANCE = 0.05
_FEWEST_FRAMES = 10


class FrameLogError(BlkreelError):
    """A file that is not a complete log of frame times."""

    code = "invalid_frame_log"


@dataclass(frozen=True)
class FrameLog:
    """The frames of one process, in order. start_ns, time_ns: of each frame, its start since time 0 of the log's
    clock and its duration; a frame ends where its image is presented.

    program, pid: None if unknown. wall_zero_ns: realtime (ns since 1970) at time 0 of the log, where its rows record
    it. named_s: seconds since 1970 in the file's name, in local time; named_end: whether that is the end of the log
    and not its start. changed_ns: realtime of the last change of the file. frames_elsewhere: of other processes in
    the same file. rejected: rows that were not read.
    """

    path: Path
    format: str
    start_ns: Times
    time_ns: Times
    program: str | None = None
    pid: int | None = None
    wall_zero_ns: int | None = None
    named_s: int | None = None
    named_end: bool = False
    changed_ns: int = 0
    frames_elsewhere: int = 0
    rejected: int = 0

    @property
    def end_ns(self) -> Times:
        return self.start_ns + self.time_ns


def read_frame_log(path: Path, process: str | None = None) -> FrameLog:
    """Read a frame log. process: name or pid, if the file has frames of several. Raises FrameLogError, UsageError."""
    with os_errors(UsageError, path, f"name {_FORMATS}"):
        if (size := path.stat().st_size) > LARGEST_BYTES:
            raise FrameLogError(f"{path}: {size:,} bytes are too many for a frame log", f"name {_FORMATS}")
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            start = file.read(4096).lstrip()
            file.seek(0)
            log = _read_json(path, file.read()) if start[:1] == "{" else _read_csv(path, file, process)
    if len(log.time_ns) < _FEWEST_FRAMES:
        raise FrameLogError(f"{path}: {len(log.time_ns)} frames, at least {_FEWEST_FRAMES} are needed",
                            "record for longer")
    if log.rejected > _MOST_REJECTED * len(log.time_ns):
        raise FrameLogError(f"{path}: {log.rejected:,} rows without a frame time, of {len(log.time_ns):,}",
                            "record it again: the file is damaged")
    return log


def _read_csv(path: Path, lines: Iterable[str], process: str | None) -> FrameLog:
    rows = csv.reader(line.replace("\0", "") for line in lines)
    try:
        for row in rows:
            header = [name.strip().lower() for name in row]
            if "fps" in header and "frametime" in header:
                return _mangohud(path, header, rows)
            if "application" in header and "processid" in header:
                return _presentmon(path, header, rows, process)
            if "0.1% min fps" in header:
                raise FrameLogError(f"{path}: a summary of MangoHud without frame times",
                                    "name the file without _summary in its name")
    except csv.Error as error:
        raise FrameLogError(f"{path}: line {rows.line_num}: {error}", f"name {_FORMATS}") from error
    raise FrameLogError(f"{path}: no frame log: no line names the columns fps and frametime, or Application and "
                        "ProcessID", f"name {_FORMATS}")


def _mangohud(path: Path, header: Sequence[str], rows: Iterator[list[str]]) -> FrameLog:
    """Columns fps, frametime (µs up to version 0.6.8, then ms) and elapsed (ns since the start of the log)."""
    has_elapsed = "elapsed" in header
    names = ("fps", "frametime", *(["elapsed"] if has_elapsed else []))
    values, rejected = _numbers(header, names, rows)
    if not len(values):
        raise FrameLogError(f"{path}: no frames", "record for longer")
    product = float(np.median(values[:, 0] * values[:, 1]))  # frames per second × frame time: a second
    unit_ns = next((unit for unit, second in ((1e6, 1e3), (1e3, 1e6)) if 0.8 < product / second < 1.25), None)
    if unit_ns is None:
        raise FrameLogError(f"{path}: fps and frametime contradict each other", "name the unchanged file of MangoHud")
    time_ns = np.rint(values[:, 1] * unit_ns).astype(np.int64)
    end_ns = np.rint(values[:, 2]).astype(np.int64) if has_elapsed else np.cumsum(time_ns)
    log_ns = int(end_ns[-1] - end_ns[0])
    if np.any(np.diff(end_ns) < 0):
        raise FrameLogError(f"{path}: the column elapsed steps back", "name the file of one recording")
    if log_ns > 1.5 * int(time_ns[1:].sum()):
        raise FrameLogError(f"{path}: not every frame is in the log: its frame times add up to "
                            f"{time_ns.sum() / 1e9:.1f} of {log_ns / 1e9:.1f} s", "record it with log_interval=0")
    # With log_interval=0 a row is written as its frame is presented. The frame before may have ended a little later
    # than this one began by its rounded frame time.
    start_ns = np.maximum(end_ns - time_ns, np.concatenate([[end_ns[0] - time_ns[0]], end_ns[:-1]]))
    named = _MANGOHUD_NAME.fullmatch(path.stem)
    return FrameLog(path, "MangoHud", start_ns, end_ns - start_ns, named["program"] if named else None,
                    named_s=_seconds_of_name(named["time"]) if named else None,
                    # Up to 0.6.8 the whole file was written at the end, and named then.
                    named_end=unit_ns == 1e3, changed_ns=path.stat().st_mtime_ns, rejected=rejected)


def _presentmon(path: Path, header: Sequence[str], rows: Iterator[list[str]], process: str | None) -> FrameLog:
    """One row for each frame of each process. Version 1 has the time of Present() and that since the last one;
    version 2 the time at which the CPU started the frame and how long it took until it started the next one."""
    begins_at_row = True
    if clock := next((name for name in ("cpustarttime", "cpustartqpctime", "cpustartqpc", "cpustartdatetime")
                      if name in header), None):
        durations = next((names for names in (("frametime",), ("msbetweenappstart",), ("mscpubusy", "mscpuwait"))
                          if all(name in header for name in names)), None)
    else:
        begins_at_row = False
        clock = next((name for name in ("timeinseconds", "qpctime") if name in header), None)
        durations = ("msbetweenpresents",) if "msbetweenpresents" in header else None
    if clock is None or durations is None:
        raise FrameLogError(f"{path}: no columns of frame times",
                            "record it with the metrics of version 1 or 2 of PresentMon")
    by_process: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    rejected, first_wall_ns = 0, None
    at = {name: header.index(name) for name in ("application", "processid", clock, *durations)}
    chain = header.index("swapchainaddress") if "swapchainaddress" in header else None
    for row in rows:
        try:
            time_ms = sum(float(row[at[name]]) for name in durations)
            if clock == "cpustartdatetime":
                wall_ns = _wall_ns(row[at[clock]])
                first_wall_ns = wall_ns if first_wall_ns is None else first_wall_ns
                instant = float(wall_ns - first_wall_ns)
            else:
                instant = float(row[at[clock]])
            key = (row[at["application"]], row[at["processid"]], row[chain] if chain is not None else "")
        except (ValueError, IndexError):
            rejected += bool(row)
            continue
        if np.isfinite(time_ms) and np.isfinite(instant) and time_ms >= 0:
            by_process.setdefault(key, []).append((instant, time_ms))
        else:
            rejected += 1
    chosen = _chosen_process(path, by_process, process)
    values = np.array(by_process[chosen])
    time_ns = np.rint(values[:, 1] * 1e6).astype(np.int64)
    start_ns = _starts(path, values[:, 0], time_ns, begins_at_row)
    frames = sum(map(len, by_process.values()))
    pid = int(chosen[1]) if re.fullmatch("[0-9]{1,10}", chosen[1]) else None
    return FrameLog(path, "PresentMon", start_ns, time_ns, chosen[0], pid, wall_zero_ns=first_wall_ns,
                    changed_ns=path.stat().st_mtime_ns, frames_elsewhere=frames - len(values), rejected=rejected)


def _chosen_process(path: Path, by_process: dict[tuple[str, str, str], Any],
                    process: str | None) -> tuple[str, str, str]:
    """The swap chain with the most frames, of all processes or of the one that was named."""
    if not by_process:
        raise FrameLogError(f"{path}: no frames", "record for longer")
    chosen = {key: frames for key, frames in by_process.items()
              if process is None or process.lower() in (key[0].lower(), key[0].lower().removesuffix(".exe"), key[1])}
    if not chosen:
        counts = Counter({key[0]: len(frames) for key, frames in by_process.items()})
        names = ", ".join(printable(name) for name, _ in counts.most_common(5))
        raise UsageError(f"{path}: no frames of {process!r}", f"name one of: {names}")
    return max(chosen, key=lambda key: len(chosen[key]))


class _CaptureData(TypedDict):
    TimeInSeconds: list[float]
    MsBetweenPresents: list[float]


class _CapFrameXRun(TypedDict):
    CaptureData: _CaptureData


class _CapFrameXInfo(TypedDict, total=False):
    ProcessName: str | None


class _CapFrameX(TypedDict):
    Runs: list[_CapFrameXRun]
    Info: NotRequired[_CapFrameXInfo | None]


def _read_json(path: Path, text: str) -> FrameLog:
    try:
        document = parse_typed(text, _CapFrameX)
    except ValueError as error:
        raise FrameLogError(f"{path}: no record of CapFrameX: {error}", f"name {_FORMATS}") from error
    runs = [run["CaptureData"] for run in document["Runs"]]
    if len(runs) != 1:
        raise FrameLogError(f"{path}: {len(runs)} runs, each on a clock of its own",
                            "name the file of one run, not an aggregate")
    instants, time_ms = (np.array(runs[0][name], float) for name in ("TimeInSeconds", "MsBetweenPresents"))
    if instants.shape != time_ms.shape or np.any(time_ms < 0):
        raise FrameLogError(f"{path}: TimeInSeconds and MsBetweenPresents are not equally many positive numbers",
                            "record it again: the file is damaged")
    time_ns = np.rint(time_ms * 1e6).astype(np.int64)
    return FrameLog(path, "CapFrameX", _starts(path, instants, time_ns, begins_at_row=False), time_ns,
                    (document.get("Info") or {}).get("ProcessName") or None,
                    changed_ns=path.stat().st_mtime_ns)


def _starts(path: Path, instants: npt.NDArray[np.float64], time_ns: Times, begins_at_row: bool) -> Times:
    """The start of each frame since time 0 of a clock whose unit the frame times show.

    instants: of the rows. begins_at_row: at the start of the frame, else at its end.
    """
    if len(instants) < 2:
        return np.zeros(len(instants), np.int64)
    elapsed = float(instants[-1] - instants[0])
    if np.any(np.diff(instants) < 0) or elapsed <= 0:
        raise FrameLogError(f"{path}: its times step back", "name the file of one recording")
    unit_ns = float((time_ns[:-1] if begins_at_row else time_ns[1:]).sum()) / elapsed
    clock_units = [unit for unit in _CLOCK_UNITS_NS if abs(unit_ns / unit - 1) < _UNIT_TOLERANCE]
    if not clock_units:
        raise FrameLogError(f"{path}: its frame times do not add up to the time that its clock shows",
                            "record every frame (without --exclude_dropped), with times in seconds or ms")
    at_ns = np.rint(instants * clock_units[0]).astype(np.int64)
    return at_ns if begins_at_row else at_ns - time_ns


def _numbers(header: Sequence[str], names: Sequence[str],
             rows: Iterable[list[str]]) -> tuple[npt.NDArray[np.float64], int]:
    """(values of these columns, rows without them)."""
    at = [header.index(name) for name in names]
    values, rejected = [], 0
    for row in rows:
        try:
            numbers = [float(row[index]) for index in at]
        except (ValueError, IndexError):
            rejected += bool(row)
            continue
        if all(np.isfinite(number) and number >= 0 for number in numbers):
            values.append(numbers)
        else:
            rejected += 1
    return np.array(values).reshape(-1, len(names)), rejected


def _seconds_of_name(text: str) -> int | None:
    try:
        return int(datetime.strptime(text, "%Y-%m-%d_%H-%M-%S").astimezone().timestamp())  # local time
    except (ValueError, OverflowError, OSError):
        return None


def _wall_ns(text: str) -> int:
    """A date and time of this machine's zone, with up to nine decimals, in ns since 1970."""
    match = _DATE_TIME.match(text.strip())
    if not match:
        raise ValueError(text)
    whole = datetime(*map(int, match.groups()[:6])).astimezone()  # type: ignore[arg-type]
    return int(whole.timestamp()) * 10**9 + int((match[7] or "0").ljust(9, "0"))
