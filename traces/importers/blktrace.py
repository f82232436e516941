"""Binary files of blktrace, versions 7 and 8, of either byte order: DEVICE.blktrace.CPU, or merged by blkparse -d."""

import re
from pathlib import Path

from ... import __version__
from ..decoder import Decoder
from ..errors import BlkreelError, TraceError
from ..schema import TRACE_SCHEMA
from ..spool import Spool

NAME = "blktrace (versions 7 and 8)"
_MAGIC = 0x65617400
_PART = re.compile(r"(?P<device>.+)\.blktrace\.(?P<cpu>\d+)")


def recognise(head: bytes) -> bool:
    """Whether a file that begins so is one. A version that is not known is, and gets an error that says so."""
    return any(int.from_bytes(head[:4], order) & ~0xFF == _MAGIC for order in ("little", "big"))


def files_named(name: Path) -> list[Path]:
    """The files of all CPUs of a device."""
    found = [path for path in name.parent.glob(f"{name.name}.blktrace.*") if _PART.fullmatch(path.name)]
    return sorted(found, key=lambda path: int(_PART.fullmatch(path.name)["cpu"]))


def import_files(files: list[Path], output: Path, *, force: bool) -> tuple[dict, dict, list[str]]:
    """Write the trace: its metadata, the decoder's totals, and which I/Os it lacks, in words."""
    files = [file for file in files if file.stat().st_size]
    spool, end = _decode(files, [], output, force)
    without_requests = [drive["device"] for drive in end["drives"]
                        if drive["queued"] and drive["completed"] and not drive["issued"]]
    if without_requests:
        # Whether a drive makes requests is known at the end only: from the start once more.
        spool.discard()
        spool, end = _decode(files, without_requests, output, force)
    if not end["events"]:
        spool.discard()
        raise TraceError(f"{files[0]} holds no I/O", "record with the actions issue and complete")
    missing = _missing(end)
    metadata = _metadata(files, end, without_requests, [*missing, *_warnings(files, end)])
    spool.finish(metadata)
    return metadata, end, missing


def _decode(files, without_requests, output, force):
    spool = Spool(output, TRACE_SCHEMA, {"source_format": "blktrace"}, force=force)
    arguments = [word for device in without_requests for word in ("--bio", device)]
    try:
        decoder = Decoder([*arguments, "--", *map(str, files)], spool)
        decoder.stop()
        if decoder.error:
            raise TraceError(decoder.error.message, decoder.error.remedy)
        if decoder.end.get("write_error"):
            raise BlkreelError(f"cannot write {output}: the disk is full", "free some space, or name another output")
    except BaseException:
        spool.discard()
        raise
    return spool, decoder.end


def _metadata(files, end, without_requests, warnings):
    pair = end["stream"]["clock_pair"]
    return {
        "writer": f"blkreel {__version__}", "source_format": "blktrace", "clock": "monotonic",
        "epoch_ns": end["epoch_ns"], "clock_resolution_ns": 1, "clock_pairs": [pair] if pair else [],
        "capture_layer": "bio" if without_requests else "request", "queue_time_source": "blktrace",
        "devices": [_device(drive, files) for drive in end["drives"]], "duration_ns": end["stopped_ns"],
        "lost": end["lost"], "unmatched": end["ledger"]["unmatched"],
        "in_flight_at_start": end["ledger"]["in_flight_at_start"], "in_flight_at_end": end["in_flight_at_end"],
        "ledger": end["ledger"], "import_warnings": warnings,
    }


def _device(drive, files):
    """What the file tells of a drive: its number, and its name where all files bear the same."""
    names = {match["device"] for file in files if (match := _PART.fullmatch(file.name))}
    major, minor = map(int, drive["device"].split(":"))
    name = names.pop() if len(names) == 1 else drive["device"]
    return {"name": name, "path": f"/dev/{name}" if ":" not in name else name, "major": major, "minor": minor}


def _missing(end):
    found = []
    if end["lost"]["total"]:
        found.append(f"{end['lost']['total']:,} events were lost while it was recorded")
    if end["ledger"]["unmatched"]:
        found.append(f"{end['ledger']['unmatched']:,} I/Os completed whose issue was not seen")
    return found


def _warnings(files, end):
    """What the trace knows in part, or what was in the files and has no place in a trace."""
    stream, ledger = end["stream"], end["ledger"]
    told = [
        (ledger["reused"], "I/Os have no latency: their completion was not seen"),
        (ledger["other_ops"], "requests are no I/O (commands passed through, management of zones) and were left out"),
        (stream["from_issuer"], "I/Os name the thread that issued them: their entry into the block layer was not seen"),
        (stream["backward_steps"], "events stand before an earlier one of the same file"),
        (stream["cut_bytes"], "bytes at the end of files hold no whole event: blktrace was killed"),
        (stream["unnumbered"], "files mix the numbers of several devices: lost events cannot be counted in them"),
    ]
    found = [f"{count:,} {what}" for count, what in told if count]
    if unnamed := sorted({str(near) for file in files for near in _parts_beside(file)} - set(map(str, files))):
        found.append(f"not imported, though of the same recording: {', '.join(unnamed)}")
    return found


def _parts_beside(file):
    match = _PART.fullmatch(file.name)
    return files_named(file.with_name(match["device"])) if match else []
