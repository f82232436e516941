"""`blkreel info`: a summary of a trace in one screen."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import click
import numpy as np

from blkreel.cli.options import completion
from blkreel.cli.options.types import as_json
from blkreel.cli.ui.trace_summary import certificate_words, device_name, file_size, first_names, volume_words
from blkreel.common.console import Console, print_table
from blkreel.common.device import zones_words
from blkreel.common.files.json_file import print_json
from blkreel.common.limits import check_state
from blkreel.common.printable import printable
from blkreel.common.units import counted, format_bytes, format_count, format_ns, format_share
from blkreel.common.verdict import READ_AHEAD_LIMIT
from blkreel.traces.format.check import check_order
from blkreel.traces.format.exposure import Exposure, exposure_of
from blkreel.traces.format.metadata_types import COARSE_CLOCK_NS, Run, clock_step_ns, lacks, layers_of
from blkreel.traces.format.read_ahead import ReadAheadCount
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, OP_NAMES, WRITE_FLAGS
from blkreel.traces.format.trace import Trace
from blkreel.traces.transform.rows import Span

_MAX_ROWS = 12
_LONG_METADATA = ("boundary", "exposure", "survey", "threads", "files")
_THREAD_BYTES, _FILE_BYTES = 120, 600  # of memory for each, at its peak; threads without a name are summed up

Total = dict[str, int]  # ios, bytes


@click.command()
@click.argument("trace", type=click.Path(readable=False), shell_complete=completion.traces)
@as_json
def command(trace: str, as_json: bool) -> None:
    """Show a summary of a trace or run: source, I/O by operation, thread and file, and losses.

    \b
    blkreel info game.parquet
    blkreel info run/ --json | jq .metadata.devices
    """
    opened = open_trace(trace)
    check_order(opened)
    layers = layers_of(opened.metadata)
    totals = _Totals(opened, layers[0] if layers else None)
    exposure = Exposure() if layers else exposure_of(opened)
    is_looped = bool(opened.account.background)
    document = {"version": 1, "path": str(opened.path), "file_bytes": opened.footer.size_bytes,
                "rows": opened.rows, "duration_ns": totals.span.duration_ns, **totals.document(opened.metadata),
                "exposure": {**exposure.document(), "words": exposure.words(), "why": exposure.why_withheld(is_looped)},
                **({"layers": [_layer(opened, numbers) for numbers in layers]} if layers else {}),
                "metadata": {k: v for k, v in opened.metadata.items() if k not in _LONG_METADATA}}
    if as_json:
        print_json(document)
    else:
        _show(document, opened.is_run)


def _layer(trace: Trace, numbers: list[int]) -> dict[str, Any]:
    """The totals of the devices of a layer. Those of several layers have no sum: an I/O is in each of them."""
    devices = trace.metadata["devices"]
    return {"devices": [device_name(devices[number]) for number in numbers],
            **_Totals(trace, numbers).document(trace.metadata)}


@dataclass
class _KeyTotals:
    """I/Os and bytes of each key, ascending."""

    keys: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    ios: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    bytes: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))

    def add(self, keys: np.ndarray, length_bytes: np.ndarray) -> None:
        """The key and the length of further I/Os."""
        new, at = np.unique(keys, return_inverse=True)
        previous = (self.keys, self.ios, self.bytes)
        self.keys = np.union1d(self.keys, new)
        self.ios, self.bytes = np.zeros((2, len(self.keys)), np.int64)
        further = (new, np.bincount(at), np.bincount(at, length_bytes).astype(np.int64))
        for keys, ios, moved_bytes in (previous, further):
            index = np.searchsorted(self.keys, keys)
            self.ios[index] += ios
            self.bytes[index] += moved_bytes

    def named(self, name_of: Callable[[int], str]) -> dict[str, Total]:
        """Totals by name, in the order of the first key of each."""
        named: dict[str, Total] = {}
        for key, ios, moved_bytes in zip(self.keys.tolist(), self.ios.tolist(), self.bytes.tolist(), strict=True):
            _add(named.setdefault(name_of(key), {"ios": 0, "bytes": 0}), ios, moved_bytes)
        return named


class _Totals:
    """I/Os and bytes by operation, flag of writes, thread and file, of workload I/O, and I/Os with a known dependency;
    in one pass.

    devices: the numbers of those to count; None: all.
    """

    def __init__(self, trace: Trace, devices: Collection[int] | None = None):
        self.ops, self.threads, self.files = _KeyTotals(), _KeyTotals(), _KeyTotals()
        self.workload: Total = {"ios": 0, "bytes": 0}
        self.several_files: Total = {"ios": 0, "bytes": 0}
        self.write_flags: dict[str, Total] = {name: {"ios": 0, "bytes": 0} for name in WRITE_FLAGS}
        self.causes_known, self.span = 0, Span()
        self.read_ahead = ReadAheadCount()
        totals_of = {"op": self.ops, "tid": self.threads}
        optional = [name for name in ("blocked_ns",) if name in trace.schema.names]
        optional += [] if devices is None else ["device"]
        if "inode" in trace.schema.names:
            totals_of["inode"] = self.files
        for batch in trace.batches(["submit_ns", "latency_ns", "length_bytes", "flags", "waited_on", *optional,
                                    *totals_of]):
            columns = {name: batch[name].to_numpy() for name in batch.schema.names}
            self.span.add(columns)
            if devices is not None:
                on_devices = np.isin(columns["device"], list(devices))
                columns = {name: values[on_devices] for name, values in columns.items()}
            length_bytes = columns["length_bytes"]
            self.causes_known += int((columns["waited_on"] >= 0).sum())
            self.read_ahead.add(columns["flags"], columns.get("blocked_ns"))
            for flag, total in (("own", self.workload), ("several_files", self.several_files),
                                *self.write_flags.items()):
                matches = columns["flags"] & FLAGS[flag] != 0
                _add(total, matches.sum(), length_bytes[matches].sum())
            for name, totals in totals_of.items():
                totals.add(columns[name], length_bytes)
            stored_bytes = len(self.threads.keys) * _THREAD_BYTES + len(self.files.keys) * _FILE_BYTES
            check_state(stored_bytes, trace.footer.size_bytes, "threads or files")

    def document(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        threads = metadata.get("threads") or {}
        document = {"ops": self.ops.named(OP_NAMES.__getitem__),
                    "write_flags": {name: total for name, total in self.write_flags.items() if total["ios"]},
                    "threads": _by_bytes(self.threads.named(
                        lambda tid: threads.get(str(tid), {}).get("comm", "unknown"))),
                    "own": self.workload, "causes_known": self.causes_known,
                    "read_ahead": self.read_ahead.account()}
        if len(self.files.keys):
            paths = {0: "(file system metadata)", -1: "(unknown)",
                     **{entry["inode"]: entry["path"] for entry in metadata.get("files") or []}}
            document["several_files"] = self.several_files
            document["files"] = _by_bytes(self.files.named(lambda inode: paths.get(inode, f"inode {inode}")))
        return document


def _by_bytes(named: Mapping[str, Total]) -> dict[str, Total]:
    """Most bytes first."""
    return dict(sorted(named.items(), key=lambda item: -item[1]["bytes"]))


def _add(total: Total, ios: int, moved_bytes: float) -> None:
    total["ios"] += int(ios)
    total["bytes"] += int(moved_bytes)


def _show(document: Mapping[str, Any], is_run: bool) -> None:
    console = Console()
    rows, layers = document["rows"], document.get("layers") or []
    console.print(f"{printable(document['path'])}: {counted(rows, 'row' if layers else 'I/O')} over "
                  f"{format_ns(document['duration_ns'])}, {file_size(document['file_bytes'], rows)}",
                  highlight=False, soft_wrap=True, markup=False)
    for name, text in _facts(document, is_run):
        console.print(f"  {name:<9} {printable(text)}", highlight=False, soft_wrap=True, markup=False)
    for part in layers or [document]:
        if layers:
            console.print(f"layer of {printable(first_names(part['devices'], 'device'))}", highlight=False,
                          soft_wrap=True, markup=False)
        _show_totals(part, console)


def _show_totals(document: Mapping[str, Any], console: Console) -> None:
    for heading, totals in (("operation", document["ops"]), ("write", document["write_flags"]),
                            ("thread", document["threads"]), ("file", document.get("files") or {})):
        if totals and set(totals) != {"unknown"}:
            print_table({heading: "left", "I/Os": "right", "bytes": "right"},
                        [(name, format_count(total["ios"]), format_bytes(total["bytes"]))
                         for name, total in list(totals.items())[:_MAX_ROWS]], console)
            if len(totals) > _MAX_ROWS:
                console.print(f"{format_count(len(totals) - _MAX_ROWS)} more: --json", highlight=False)
    several = document.get("several_files") or {"ios": 0, "bytes": 0}
    if several["ios"]:
        share = format_share(several["bytes"] / sum(total["bytes"] for total in document["files"].values()))
        console.print(f"  {share} of the bytes are in {counted(several['ios'], 'I/O')} with data of several files, "
                      "and counted for one of them", highlight=False, soft_wrap=True)


def _facts(document: Mapping[str, Any], is_run: bool) -> Iterator[tuple[str, str]]:
    metadata = document["metadata"]
    devices = metadata.get("devices") or []
    for number, device in enumerate(devices[:_MAX_ROWS]):
        size = device.get("size_bytes")
        parts = [f"{number}:" if len(devices) > 1 else "", device_name(device), device.get("model", ""),
                 format_bytes(size) if size else "", device.get("transport", ""),
                 zones_words(device.get("zoned"), device.get("zone_bytes"))]
        yield "device", " ".join(part for part in parts if part)
    if len(devices) > _MAX_ROWS:
        yield "device", f"{format_count(len(devices) - _MAX_ROWS)} more: --json"
    for volume in metadata.get("volumes") or []:
        yield "volume", volume_words(volume)
    if metadata.get("command"):
        yield "command", " ".join(metadata["command"])
    if metadata.get("source_format"):
        yield "source", f"{metadata['source_format']}, kernel {metadata.get('kernel', 'unknown')}"
    if metadata.get("source_lacks"):
        yield "lacks", f"{', '.join(metadata['source_lacks'])}: docs/import.md"
    if lacks(metadata, "latency"):
        yield "limits", "no service times: the source records no completions"
    if clock_step_ns(metadata) >= COARSE_CLOCK_NS:
        yield "limits", f"no original timing: the clock of the source has steps of {format_ns(clock_step_ns(metadata))}"
    for step in metadata.get("history") or []:
        options = " ".join(f"{key}={value}" for key, value in step.get("options", {}).items())
        names = ", ".join(str(source.get("name")) for source in step.get("sources") or [])
        yield "made by", f"{step['command']} {options}".rstrip() + (f", from {names}" if names else "")
    if metadata.get("certificate"):
        yield "certified", certificate_words(metadata["certificate"])
    ring = metadata.get("ring")
    if ring and ring["dropped_rows"]:
        yield "dropped", f"{ring['dropped_rows']:,} earlier I/Os, by the limit of the flight recorder"
    lost = metadata.get("lost")
    if lost:
        yield "lost", "unknown" if lost["total"] is None else counted(lost["total"], "event")
    for text in metadata.get("import_warnings") or []:
        yield "warning", text
    if is_run:
        run = Run.of(metadata)
        pace = f"x{run.pace.factor:g}" if run.pace.factor else run.pace.name
        yield "replay", f"of {run.source.path} at {pace} pace, idle {run.idle.name}"
        yield "verdict", run.verdict["level"]
    workload = document["own"]
    if workload["ios"]:
        yield "workload", f"{counted(workload['ios'], 'I/O')}, {format_bytes(workload['bytes'])}"
    exposure = document["exposure"]
    if exposure["written_until_ns"] is not None and exposure["read_bytes"]:
        yield "exposure", exposure["words"]
        if exposure["why"]:
            yield "limits", exposure["why"]
    read_ahead = document["read_ahead"]
    if read_ahead["blocked_unknown_ios"] > READ_AHEAD_LIMIT * read_ahead["ios"]:
        of_workload = "workload " if workload["ios"] else ""
        share = format_share(read_ahead["blocked_unknown_ios"] / read_ahead["ios"])
        yield "limits", (f"load time of a dependent replay is a lower bound: {share} of {of_workload}I/Os are "
                         "read-ahead by threads without a blocked time")
    if document["causes_known"] and not document.get("layers"):
        yield "waits", f"dependency known for {format_share(document['causes_known'] / document['rows'])} of I/Os"
