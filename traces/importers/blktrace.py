"""Binary files of blktrace, versions 7 and 8, of either byte order: DEVICE.blktrace.CPU, or merged by blkparse -d."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from blkreel import __version__
from blkreel.common.errors import BlkreelError, TraceError
from blkreel.common.files.safe_files import caller_of_sudo
from blkreel.common.units import counted
from blkreel.traces.format.schema import TRACE_SCHEMA, Metadata
from blkreel.traces.spool.rows_child import DriveTotals, RowsChild, Totals
from blkreel.traces.spool.spool import Spool

NAME = "blktrace (versions 7 and 8)"
DECODER = Path(__file__).with_name("blkreel-blktrace")
_MAGIC = 0x65617400
# An event of version 8, as far as a decoder of little-endian files reads it.
MAGIC_V8 = _MAGIC | 8
EVENT_V8 = np.dtype([
    ("magic", "<u4"), ("sequence", "<u4"), ("time_ns", "<u8"), ("sector", "<u8"), ("bytes", "<u4"), ("pid", "<u4"),
    ("action", "<u8"), ("device", "<u4"), ("cpu", "<u4"), ("status", "<i2"), ("payload_bytes", "<u2"), ("pad", "V12")])
_PART = re.compile(r"(?P<device>.+)\.blktrace\.(?P<cpu>\d+)")


class Decoder(RowsChild):
    """The decoder of blktrace events as a child process.

    Its stdin takes lines about its inputs; stop() lets it read the rest.
    """

    def __init__(self, arguments: list[str], spool: Spool, on_change: Callable[[], None] = lambda: None,
                 pass_fds: Sequence[int] = ()):
        super().__init__("the decoder", DECODER, arguments, spool, on_change, pass_fds=pass_fds)


def recognize(head: bytes) -> bool:
    """Whether the file begins like a blktrace file of any version; the decoder refuses unknown versions."""
    return any(int.from_bytes(head[:4], order) & ~0xFF == _MAGIC for order in ("little", "big"))


def files_named(name: Path) -> list[Path]:
    """The files of all CPUs of a device."""
    paths = [path for path in name.parent.glob(f"{name.name}.blktrace.*") if _PART.fullmatch(path.name)]
    return sorted(paths, key=lambda path: int(path.name.rpartition(".")[2]))


def import_files(files: list[Path], output: Path, *, force: bool,
                 public: bool = False) -> tuple[Metadata, Totals, list[str]]:
    """Write the trace. Returns its metadata, the decoder's totals, and descriptions of the I/Os that are missing."""
    named, files = files, [file for file in files if file.stat().st_size]  # a CPU without events has an empty file
    if not files:
        raise TraceError(f"{named[0]} is empty", "name a recording that has events")
    spool, end = _decode(files, [], output, force, public)
    without_requests = [drive["device"] for drive in end["drives"]
                        if drive["queued"] and drive["completed"] and not drive["issued"]]
    if without_requests:
        # Only the end shows whether a drive has requests: decode again by bios.
        spool.discard()
        spool, end = _decode(files, without_requests, output, force, public)
    if not end["events"]:
        spool.discard()
        raise TraceError(f"{files[0]} holds no I/O", "record with the actions issue and complete")
    missing = _missing(end)
    metadata = _metadata(files, end, without_requests, [*missing, *_warnings(named, end)])
    spool.finish(metadata)
    return metadata, end, missing


def _decode(files: list[Path], without_requests: list[str], output: Path, force: bool,
            public: bool) -> tuple[Spool, Totals]:
    spool = Spool(output, TRACE_SCHEMA, {"source_format": "blktrace"}, force=force, owner=caller_of_sudo(),
                  public=public)
    arguments = [word for device in without_requests for word in ("--bio", device)]
    try:
        decoder = Decoder([*arguments, "--", *map(str, files)], spool)
        decoder.stop()
        if isinstance(decoder.error, BlkreelError):
            raise TraceError(decoder.error.message, decoder.error.remedy)
        if decoder.error:
            raise decoder.error
        assert decoder.end is not None  # without an error there is an end
        if decoder.end.get("write_error"):
            raise BlkreelError(f"cannot write {output}: the disk is full", "free some space, or name another output")
    except BaseException:
        spool.discard()
        raise
    return spool, decoder.end


def _metadata(files: list[Path], end: Totals, without_requests: list[str], warnings: list[str]) -> Metadata:
    pair = end["stream"]["clock_pair"]
    has_completions = _has_completions(end)
    return {
        "writer": f"blkreel {__version__}", "source_format": "blktrace", "clock": "monotonic",
        "epoch_ns": end["epoch_ns"], "clock_resolution_ns": 1, "clock_pairs": [pair] if pair else [],
        "capture_layer": "bio" if without_requests else "request", "queue_time_source": "blktrace",
        "devices": [_device(drive, files) for drive in end["drives"]], "duration_ns": end["stopped_ns"],
        "lost": end["lost"], "unmatched": end["ledger"]["unmatched"],
        "in_flight_at_start": end["ledger"]["in_flight_at_start"], "ledger": end["ledger"],
        "in_flight_at_end": end["in_flight_at_end"] if has_completions else None, "import_warnings": warnings,
        **({} if has_completions else {"source_lacks": ["latency"]}),
    }


def _has_completions(end: Totals) -> bool:
    """Whether any were recorded; not by `blktrace -a issue`."""
    return any(drive["completed"] for drive in end["drives"])


def _device(drive: DriveTotals, files: list[Path]) -> dict[str, Any]:
    """A drive as far as the files describe it: its number, and its name if all files have the same."""
    names = {match["device"] for file in files if (match := _PART.fullmatch(file.name))}
    major, minor = map(int, drive["device"].split(":"))
    name = names.pop() if len(names) == 1 else drive["device"]
    return {"name": name, "path": f"/dev/{name}" if ":" not in name else name, "major": major, "minor": minor}


def _missing(end: Totals) -> list[str]:
    losses = []
    if end["lost"]["total"]:
        losses.append(f"{counted(end['lost']['total'], 'event')} lost during the recording")
    if end["ledger"]["unmatched"]:
        losses.append(f"{counted(end['ledger']['unmatched'], 'I/O')} completed whose issue was not seen")
    if end["ledger"]["impossible_extents"]:
        losses.append(f"{end['ledger']['impossible_extents']:,} events were left out: their extent ends above 2^62 "
                      "bytes")
    return losses


def _warnings(files: list[Path], end: Totals) -> list[str]:
    """What is incomplete in the trace, and what the files have that a trace cannot hold."""
    stream, ledger = end["stream"], end["ledger"]
    counts = [
        (ledger["reused"], "I/Os have no latency: their completion was not seen"),
        (ledger["issued_again"], "issues of I/Os in flight were left out: issued again without a requeue event"),
        (ledger["other_ops"], "requests are not I/O (passthrough commands) and were left out"),
        (stream["from_issuer"], "I/Os have the thread that issued them: their entry into the block layer was not seen"),
        (stream["backward_steps"], "events are out of order within their file"),
        (stream["cut_bytes"], "bytes at the end of files are an incomplete event: blktrace was killed"),
    ]
    warnings = [f"{count:,} {what}" for count, what in counts if count]
    if stream["unnumbered"]:
        warnings.append("sequence numbers of several devices are mixed in "
                        f"{counted(stream['unnumbered'], 'file')}: lost events cannot be counted")
    if not _has_completions(end):
        warnings.append("the files have no completion events: no I/O has a latency")
    named = {file.resolve() for file in files}
    if unnamed := sorted({str(near) for file in files for near in _parts_beside(file)
                          if near.stat().st_size and near.resolve() not in named}):
        warnings.append(f"files of the same recording that were not imported: {', '.join(unnamed)}")
    return warnings


def _parts_beside(file: Path) -> list[Path]:
    match = _PART.fullmatch(file.name)
    return files_named(file.with_name(match["device"])) if match else []
