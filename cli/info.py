"""`blkreel info`: what a trace holds, in a screenful."""

import json

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from blkreel.cli.options import as_json
from blkreel.traces.reader import open_trace
from blkreel.traces.schema import OP_NAMES
from blkreel.traces.units import format_bytes, format_count, format_ns


@click.command()
@click.argument("trace", type=click.Path(readable=False))
@as_json
def command(trace, as_json):
    """Show what a trace or a run holds: where it comes from, how much I/O, by whom, and whether events were lost.

    \b
    blkreel info game.parquet
    blkreel info run/ --json | jq .metadata.devices
    """
    opened = open_trace(trace)
    ops, by_thread, duration_ns = _totals(opened)
    document = {"version": 1, "path": str(opened.path), "file_bytes": opened.path.stat().st_size,
                "rows": opened.rows, "duration_ns": duration_ns, "ops": ops, "threads": by_thread,
                "metadata": {k: v for k, v in opened.metadata.items() if k not in ("boundary", "threads")}}
    if as_json:
        print(json.dumps(document))
    else:
        _show(document, opened)


def _totals(trace):
    """One pass: per op and per thread the I/Os and bytes; and the time from first submit to last submit."""
    ops, threads = {}, {}
    first_ns = last_ns = 0
    seen = 0
    for batch in trace.batches(["submit_ns", "length_bytes", "op", "tid"]):
        submit_ns, length_bytes, op, tid = (batch[name].to_numpy() for name in batch.schema.names)
        if not seen:
            first_ns = int(submit_ns[0])
        seen += len(submit_ns)
        last_ns = int(submit_ns[-1])
        for code in np.unique(op):
            _add(ops, OP_NAMES.get(int(code), str(code)), length_bytes[op == code])
        for one in np.unique(tid):
            _add(threads, int(one), length_bytes[tid == one])
    names = trace.metadata.get("threads") or {}
    named = {}
    for tid, total in threads.items():
        name = names.get(str(tid), {}).get("comm", "unknown")
        entry = named.setdefault(name, {"ios": 0, "bytes": 0})
        entry["ios"] += total["ios"]
        entry["bytes"] += total["bytes"]
    return ops, dict(sorted(named.items(), key=lambda item: -item[1]["bytes"])), last_ns - first_ns


def _add(totals, key, length_bytes):
    entry = totals.setdefault(key, {"ios": 0, "bytes": 0})
    entry["ios"] += len(length_bytes)
    entry["bytes"] += int(length_bytes.sum())


def _show(document, trace):
    console = Console()
    metadata = document["metadata"]
    per_io = f", {document['file_bytes'] / trace.rows:.1f} bytes per I/O" if trace.rows else ""
    console.print(f"{document['path']}: {format_count(trace.rows)} I/Os over {format_ns(document['duration_ns'])}, "
                  f"{format_bytes(document['file_bytes'])}{per_io}", highlight=False, soft_wrap=True)
    for name, text in _story(metadata, trace.is_run):
        console.print(f"  {name:<9} {text}", highlight=False, soft_wrap=True, markup=False)
    console.print(_table("operation", document["ops"]))
    if document["threads"] and set(document["threads"]) != {"unknown"}:
        console.print(_table("thread", dict(list(document["threads"].items())[:12])))


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
        yield "replay", f"of {run['source']['path']} at {run['pace']['name']} pace, idle {run['idle']['name']}"
        yield "verdict", run["verdict"]["level"]


def _table(what, totals):
    table = Table(box=None, pad_edge=False)
    table.add_column(what)
    table.add_column("I/Os", justify="right")
    table.add_column("bytes", justify="right")
    for name, total in totals.items():
        table.add_row(name, format_count(total["ios"]), format_bytes(total["bytes"]))
    return table
