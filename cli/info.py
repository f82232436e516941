"""`blkreel info`: what a trace holds, in a screenful."""

import json

import click
import numpy as np
from rich.table import Table

from blkreel.cli.console import Console
from blkreel.cli.options import as_json
from blkreel.traces.reader import open_trace
from blkreel.traces.schema import FLAGS, OP_NAMES
from blkreel.traces.units import format_bytes, format_count, format_ns

_SHOWN = 12
_LONG = ("boundary", "survey", "threads", "files")


@click.command()
@click.argument("trace", type=click.Path(readable=False))
@as_json
def command(trace, as_json):
    """Show what a trace or a run holds: where it comes from, how much I/O, by whom, of which files, and what was lost.

    \b
    blkreel info game.parquet
    blkreel info run/ --json | jq .metadata.devices
    """
    opened = open_trace(trace)
    totals = _Totals(opened)
    document = {"version": 1, "path": str(opened.path), "file_bytes": opened.footer.size_bytes,
                "rows": opened.rows, "duration_ns": totals.duration_ns, **totals.document(opened.metadata),
                "metadata": {k: v for k, v in opened.metadata.items() if k not in _LONG}}
    if as_json:
        print(json.dumps(document))
    else:
        _show(document, opened)


class _Totals:
    """One pass over the rows: I/Os and bytes by op, thread and file; own ones; those whose cause is known."""

    def __init__(self, trace):
        self.ops, self.threads, self.files = {}, {}, {}
        self.own = {"ios": 0, "bytes": 0}
        self.causes_known = self.duration_ns = 0
        wanted = ["submit_ns", "length_bytes", "op", "tid", "flags", "waited_on"]
        keys = {"op": self.ops, "tid": self.threads}
        if "inode" in trace.schema.names:
            keys["inode"] = self.files
        first_ns = None
        for batch in trace.batches([*wanted, *(["inode"] if "inode" in keys else [])]):
            columns = {name: batch[name].to_numpy() for name in batch.schema.names}
            first_ns = int(columns["submit_ns"][0]) if first_ns is None else first_ns
            self.duration_ns = int(columns["submit_ns"][-1]) - first_ns
            self.causes_known += int((columns["waited_on"] >= 0).sum())
            own = columns["flags"] & FLAGS["own"] != 0
            _add(self.own, own.sum(), columns["length_bytes"][own].sum())
            for name, totals in keys.items():
                _add_by(totals, columns[name], columns["length_bytes"])

    def document(self, metadata) -> dict:
        threads = metadata.get("threads") or {}
        files = {entry["inode"]: entry["path"] for entry in metadata.get("files") or []}
        found = {"ops": {OP_NAMES.get(code, str(code)): total for code, total in sorted(self.ops.items())},
                 "threads": _named(self.threads, lambda tid: threads.get(str(tid), {}).get("comm", "unknown")),
                 "own": self.own, "causes_known": self.causes_known}
        if self.files:
            none = {0: "(the file system's own)", -1: "(unknown)"}
            found["files"] = _named(self.files, lambda inode: files.get(inode, none.get(inode, f"inode {inode}")))
        return found


def _named(totals, name_of):
    """Totals by name, those of one name added up, the most bytes first."""
    named = {}
    for key, total in totals.items():
        _add(named.setdefault(name_of(key), {"ios": 0, "bytes": 0}), total["ios"], total["bytes"])
    return dict(sorted(named.items(), key=lambda item: -item[1]["bytes"]))


def _add_by(totals, column, length_bytes):
    keys, at = np.unique(column, return_inverse=True)
    ios, moved = np.bincount(at), np.bincount(at, length_bytes)
    for key, count, total in zip(keys.tolist(), ios, moved, strict=True):
        _add(totals.setdefault(key, {"ios": 0, "bytes": 0}), count, total)


def _add(total, ios, moved_bytes):
    total["ios"] += int(ios)
    total["bytes"] += int(moved_bytes)


def _show(document, trace):
    console = Console()
    metadata = document["metadata"]
    per_io = f", {document['file_bytes'] / trace.rows:.1f} bytes per I/O" if trace.rows else ""
    console.print(f"{document['path']}: {format_count(trace.rows)} I/Os over {format_ns(document['duration_ns'])}, "
                  f"{format_bytes(document['file_bytes'])}{per_io}", highlight=False, soft_wrap=True)
    for name, text in [*_story(metadata, trace.is_run), *_causes(document)]:
        console.print(f"  {name:<9} {text}", highlight=False, soft_wrap=True, markup=False)
    console.print(_table("operation", document["ops"]))
    if document["threads"] and set(document["threads"]) != {"unknown"}:
        console.print(_table("thread", _first(document["threads"])))
    if document.get("files"):
        console.print(_table("file", _first(document["files"])))


def _first(totals):
    return dict(list(totals.items())[:_SHOWN])


def _causes(document):
    if document["own"]["ios"]:
        yield "own", f"{format_count(document['own']['ios'])} I/Os, {format_bytes(document['own']['bytes'])}"
    if document["causes_known"]:
        yield "causes", f"known of {document['causes_known'] / document['rows']:.1%} of I/Os"


def _story(metadata, is_run):
    for device in metadata.get("devices") or []:
        size = device.get("size_bytes")
        parts = [device.get("path", "?"), device.get("model", ""), format_bytes(size) if size else ""]
        yield "device", " ".join(part for part in parts if part)
    if metadata.get("command"):
        yield "command", " ".join(metadata["command"])
    if metadata.get("source_format"):
        yield "source", f"{metadata['source_format']}, kernel {metadata.get('kernel', 'unknown')}"
    ring = metadata.get("ring")
    if ring and ring["dropped_rows"]:
        yield "ring", f"begins in mid-stream: {ring['dropped_rows']:,} I/Os before it were dropped"
    lost = metadata.get("lost")
    if lost:
        yield "lost", "unknown" if lost["total"] is None else f"{lost['total']:,} events"
    if is_run:
        run = metadata["run"]
        pace = f"x{run['pace']['factor']:g}" if run["pace"].get("factor") else run["pace"]["name"]
        yield "replay", f"of {run['source']['path']} at {pace} pace, idle {run['idle']['name']}"
        yield "verdict", run["verdict"]["level"]


def _table(what, totals):
    table = Table(box=None, pad_edge=False)
    table.add_column(what)
    table.add_column("I/Os", justify="right")
    table.add_column("bytes", justify="right")
    for name, total in totals.items():
        table.add_row(name, format_count(total["ios"]), format_bytes(total["bytes"]))
    return table
