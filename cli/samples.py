"""`blkreel samples`: the traces that ship."""

import json

import click
from rich.table import Table

from blkreel.cli.console import Console
from blkreel.cli.options import as_json
from blkreel.traces.reader import open_trace
from blkreel.traces.schema import OPS
from blkreel.traces.shipped import PREFIX, SAMPLES, sample_path
from blkreel.traces.units import format_bytes, format_count, format_ns


@click.command()
@as_json
def command(as_json):
    """List the traces that ship with blkreel. Their names stand for a trace in every other command.

    \b
    blkreel samples
    blkreel info sample:game-load
    sudo blkreel replay sample:game-load --on /dev/nvme1n1 -o run/ --destroy S6B0NL0T1234
    """
    entries = [_entry(name, shows) for name, shows in SAMPLES.items()]
    if as_json:
        print(json.dumps({"version": 1, "samples": entries}))
    else:
        _show(entries)


def _entry(name, shows):
    trace = open_trace(sample_path(name))
    table = trace.table(["submit_ns", "op", "length_bytes"])
    op, length_bytes, submit_ns = (table[column].to_numpy() for column in ("op", "length_bytes", "submit_ns"))
    moved = {kind: int(length_bytes[op == OPS[kind]].sum()) for kind in ("read", "write")}
    return {"name": f"{PREFIX}{name}", "shows": shows, "path": str(trace.path), "rows": trace.rows,
            "read_bytes": moved["read"], "written_bytes": moved["write"],
            "duration_ns": int(submit_ns[-1] - submit_ns[0])}


def _show(entries):
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("trace", "I/Os", "read", "written", "lasts", "what happens"):
        numeric = name in ("I/Os", "read", "written", "lasts")
        table.add_column(name, no_wrap=name == "trace", justify="right" if numeric else "left")
    for entry in entries:
        table.add_row(entry["name"], format_count(entry["rows"]), format_bytes(entry["read_bytes"]),
                      format_bytes(entry["written_bytes"]), format_ns(entry["duration_ns"]), entry["shows"])
    Console().print(table)
