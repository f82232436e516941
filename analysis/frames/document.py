"""The frames of an application and the I/O that they waited for, as the document of `blkreel report --frames`."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from blkreel.common.errors import UsageError
from blkreel.common.files.storage_url import Location
from blkreel.common.printable import printable, printable_document
from blkreel.common.units import counted, duration
from blkreel.common.verdict import Verdict
from blkreel.traces.format.metadata_types import Thread
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import OP_NAMES
from blkreel.traces.format.trace import Trace

from .clock import align
from .frame_log import FrameLog, read_frame_log
from .stutters import CAUSE_NAMES, IO, Frames, FrameWait, Joined, Stutter, stutters_of, with_waits
from .waits import Waits, waits_of


@dataclass(frozen=True)
class OtherDrive:
    """The latency of each I/O of the trace in a run; -1: not replayed. verdict: of the run."""

    label: str
    verdict: Verdict
    latency_ns: npt.NDArray[np.int64]
    trace_latency_ns: npt.NDArray[np.int64]

    def time_ns(self, stutter: Stutter) -> int | None:
        """The time of a stutter with the latencies of this drive; None if an I/O that it waited for has none.

        Each wait grows or shrinks by the difference of the two latencies; what the program computes stays.
        """
        waits = []
        for wait in stutter.waits:
            latency, before = int(self.latency_ns[wait.row]), int(self.trace_latency_ns[wait.row])
            if latency < 0 or before < 0:
                return None
            changed_ns = max(0, wait.waited_ns + latency - before)
            waits.append(FrameWait(wait.row, wait.tid, wait.begin_ns, wait.begin_ns + changed_ns))
        return with_waits(stutter, sorted(waits, key=lambda wait: (wait.begin_ns, wait.end_ns))).time_ns

    def gone(self, stutters: Sequence[Stutter]) -> int | None:
        """How many of the stutters by I/O would be none; None of an invalid run."""
        if self.verdict["level"] == "invalid":
            return None
        times = [(self.time_ns(stutter), stutter.limit_ns) for stutter in stutters if stutter.cause == CAUSE_NAMES[IO]]
        return sum(time_ns is not None and time_ns <= limit_ns for time_ns, limit_ns in times)


def other_drive(trace: Trace, run: Trace) -> OtherDrive:
    """Raises UsageError unless `run` is a replay of `trace` at dependent pace."""
    account, pace = run.account, run.account.pace.name
    again = f"blkreel replay {trace.name} DRIVE --pace dependent -o RUN"
    if not run.is_run:
        raise UsageError(f"{run.path} is a trace, not a replay", f"replay the trace of the frames: {again}")
    if pace != "dependent":
        raise UsageError(f"{run.path}: replayed at {pace} pace, which does not show how long the application waits",
                         f"replay at dependent pace: {again}")
    if not isinstance(trace.path, Path) or account.source.sha256 != _sha256(trace.path):
        raise UsageError(f"{run.path}: a replay of another trace", f"replay the trace of the frames: {again}")
    latency_ns = np.full(trace.rows, -1, np.int64)
    for batch in run.batches(["source_row", "latency_ns"]):
        row, latency = batch["source_row"].to_numpy(), batch["latency_ns"].to_numpy()
        of_trace = (row >= 0) & (row < trace.rows)
        latency_ns[row[of_trace]] = latency[of_trace]
    before = trace.table(["latency_ns"])["latency_ns"].to_numpy()
    label = account.label or account.drive.get("name") or Path(str(run.path)).stem
    return OtherDrive(label, account.verdict, latency_ns, before)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

MOST_WAITS = 5  # of a stutter that the document lists
_COLUMNS = ["offset_bytes", "length_bytes", "op", "latency_ns"]


@dataclass(frozen=True)
class FrameOptions:
    """log: the file of frame times. run: a replay of the trace at dependent pace. start_ns: time in the trace at which
    the clock of the log is 0. process: name or pid of the program."""

    log: Path
    run: Location | None = None
    start_ns: int | None = None
    process: str | None = None


@dataclass(frozen=True)
class FrameReport:
    """document: for JSON. start_ns, time_ns: of each frame, in time of the trace. waits: of the threads."""

    document: dict[str, Any]
    log: FrameLog
    frames: Frames
    joined: Joined
    waits: Waits


def report_frames(trace: Trace, options: FrameOptions) -> FrameReport:
    """Join a frame log with a trace. Raises UsageError, FrameLogError and TraceError."""
    if trace.is_run:
        raise UsageError(f"{trace.path} is a replay, and frames are of the captured application",
                         "name the captured trace, and the replay with --frames-run")
    log = read_frame_log(options.log, options.process)
    end_ns = _end_ns(trace)
    alignment = align(log, trace.metadata, end_ns, options.start_ns)
    waits = waits_of(trace, options.process, log.program, log.pid)
    frames = Frames.of(log.start_ns, log.time_ns)
    joined = stutters_of(frames, waits, alignment, end_ns)
    drive = other_drive(trace, open_trace(options.run)) if options.run is not None else None
    rows = _Rows(trace, joined.stutters)
    document: dict[str, Any] = {
        "log": {"path": str(log.path), "format": log.format, "program": log.program, "pid": log.pid,
                "frames": len(log.time_ns), "usual_frame_ns": int(np.median(log.time_ns)),
                "frames_elsewhere": log.frames_elsewhere, "rejected": log.rejected},
        "clock": joined.alignment.document(),
        "waits": {"program": waits.program, "evidence": waits.evidence, "words": waits.words,
                  "threads": len(waits.threads), "lost_events": waits.lost},
        "totals": _totals(joined, drive),
        "other_drive": None if drive is None else {
            "label": drive.label, "verdict": drive.verdict,
            "gone": drive.gone(joined.stutters)},
        "stutters": [_stutter(stutter, rows, drive) for stutter in joined.stutters],
    }
    document["sentence"] = sentence(document)
    document["notes"] = notes(document)
    return FrameReport(printable_document(document), log, frames, joined, waits)


def sentence(document: Mapping[str, Any]) -> str:
    """The answer in one sentence."""
    totals = document["totals"]
    count, by_io = totals["stutters"], totals["by_io"]
    if not count:
        return f"No stutter in {counted(document['log']['frames'], 'frame')}"
    words = f"{by_io} of {count} stutters waited for I/O"
    if by_io:
        words += f", which took {duration(totals['lost_ns'])}"
    if path := _most_waited(document["stutters"]):
        words += f", mostly for {Path(path).name}"
    if drive := document["other_drive"]:
        words += ("; the replay is invalid and shows nothing of another drive" if drive["gone"] is None else
                  f"; {drive['gone']} of {by_io} would be gone on {drive['label']}")
    return words


def notes(document: Mapping[str, Any]) -> list[str]:
    """What a reader must know to judge the figures: clocks, evidence, what is unclear."""
    totals, waits = document["totals"], document["waits"]
    texts = [f"Clocks aligned {document['clock']['words']}.",
             f"Waits of the threads of {waits['program']}: {waits['words']}. A frame that waits for a thread without "
             "I/O of its own is seen by the I/O of that other thread only."]
    if totals["unclear"]:
        texts.append(f"Unclear: {counted(totals['unclear'], 'stutter')}, because waits beside a stutter also occur "
                     "beside smooth frames, or the clocks are not aligned well enough.")
    if totals["beyond"]:
        texts.append(f"Left out: {counted(totals['beyond'], 'stutter')} before or after the trace.")
    if waits["lost_events"]:
        texts.append(f"The capture lost {counted(waits['lost_events'], 'event')}: a stutter may have waited for one.")
    if elsewhere := document["log"]["frames_elsewhere"]:
        texts.append(f"Left out: {counted(elsewhere, 'frame')} of other processes or swap chains.")
    if drive := document["other_drive"]:
        texts.append(f"On {drive['label']} (verdict of the replay: {drive['verdict']['level']}): each "
                     "wait changes by the difference of the latencies; what the program computes stays.")
    return texts


def _totals(joined: Joined, drive: OtherDrive | None) -> dict[str, Any]:
    causes = Counter(stutter.cause for stutter in joined.stutters)
    by_io = [stutter for stutter in joined.stutters if stutter.cause == "io"]
    return {"stutters": len(joined.stutters), "by_io": causes["io"], "other": causes["other"],
            "unclear": causes["unclear"], "beyond": joined.beyond, "lost_ns": sum(io.lost_ns for io in by_io)}


def _stutter(stutter: Stutter, rows: "_Rows", drive: OtherDrive | None) -> dict[str, Any]:
    usable = drive if drive is not None and drive.verdict["level"] != "invalid" else None
    time_ns = usable.time_ns(stutter) if usable else None
    longest = sorted(stutter.waits, key=lambda wait: -wait.waited_ns)
    return {"frame": stutter.number, "start_ns": stutter.start_ns, "time_ns": stutter.time_ns,
            "usual_ns": stutter.usual_ns, "cause": stutter.cause, "lost_ns": stutter.lost_ns,
            "ios": len(stutter.waits), "waits": [rows.wait(wait) for wait in longest[:MOST_WAITS]],
            "other_time_ns": time_ns, "gone": None if time_ns is None or stutter.cause != "io" else
            time_ns <= stutter.limit_ns}


class _Rows:
    """The I/Os that stutters waited for, as in the document."""

    def __init__(self, trace: Trace, stutters: Sequence[Stutter]) -> None:
        self._threads = trace.threads
        self._files = {file.get("inode"): file.get("path") for file in trace.metadata.get("files") or ()}
        rows = sorted({wait.row for stutter in stutters for wait in stutter.waits})
        self._at = {row: index for index, row in enumerate(rows)}
        names = [*_COLUMNS, *(["inode"] if "inode" in trace.schema.names else [])]
        self._columns = trace.table(names).take(rows).to_pydict() if rows else {}

    def wait(self, wait: FrameWait) -> dict[str, Any]:
        at = self._at[wait.row]
        column = self._columns
        thread = self._threads.get(str(wait.tid), Thread())
        inode = column["inode"][at] if "inode" in column else -1
        return {"row": wait.row, "tid": wait.tid, "thread": thread.get("comm"), "process": thread.get("process"),
                "path": self._files.get(inode) if inode > 0 else None, "op": OP_NAMES[column["op"][at]],
                "offset_bytes": column["offset_bytes"][at], "length_bytes": column["length_bytes"][at],
                "latency_ns": column["latency_ns"][at], "begin_ns": wait.begin_ns, "waited_ns": wait.waited_ns}


def _end_ns(trace: Trace) -> int:
    """The last time of a trace: the end of the capture, or the last completion."""
    last = int(trace.table(["submit_ns"])["submit_ns"][-1].as_py()) if trace.rows else 0
    stored = trace.metadata.get("duration_ns")
    return max(last, stored if isinstance(stored, int) else 0)


def _most_waited(stutters: Sequence[Mapping[str, Any]]) -> str:
    """The file that takes more than half of the waits of all stutters by I/O; "" if none does."""
    waited_ns: Counter[str] = Counter()
    for stutter in stutters:
        if stutter["cause"] == "io":
            for wait in stutter["waits"]:
                waited_ns[wait["path"] or ""] += wait["waited_ns"]
    path, most_ns = max(waited_ns.items(), key=lambda item: item[1], default=("", 0))
    return printable(path) if 2 * most_ns > waited_ns.total() else ""
