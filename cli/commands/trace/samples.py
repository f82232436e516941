"""`blkreel samples`: list the sample traces."""

from typing import Any

import click

from blkreel.cli.options.types import as_json
from blkreel.common.console import Console
from blkreel.common.files.json_file import print_json
from blkreel.common.text_table import TextColumn, fitting, lines_of, wrapped
from blkreel.common.units import format_bytes, format_ns, format_share
from blkreel.traces.format.exposure import exposure_of, percent
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import OPS
from blkreel.traces.samples import PREFIX, SAMPLES, compute_shares, sample_path
from blkreel.traces.transform.rows import Span


@click.command()
@as_json
def command(as_json: bool) -> None:
    """List the sample traces. Every other command takes their names in place of a file.

    \b
    blkreel samples
    blkreel info sample:game-load
    sudo blkreel replay sample:game-load --on /dev/nvme1n1 -o run/ --destroy S6B0NL0T1234
    """
    entries = [_entry(name, description) for name, description in SAMPLES.items()]
    if as_json:
        print_json({"version": 1, "samples": entries})
        return
    shares = [entry["exposure"]["beside_share"] for entry in entries]
    columns = [TextColumn("trace", [entry["name"] for entry in entries], right=False),
               TextColumn("read", [format_bytes(entry["read_bytes"]) for entry in entries]),
               TextColumn("written", [format_bytes(entry["written_bytes"]) for entry in entries]),
               TextColumn("duration", [format_ns(entry["duration_ns"]) for entry in entries]),
               TextColumn("computing", [format_share(entry['compute_share']) for entry in entries]),
               TextColumn("beside writes", ["" if share is None else percent(share) for share in shares])]
    console = Console()
    lines = lines_of(fitting(columns, console.width))
    console.print_lines(lines[:-len(entries)])
    for line, entry in zip(lines[-len(entries):], entries, strict=True):
        console.print_lines([line, *wrapped(f"  {entry['shows']}", console.width)])


def _entry(name: str, description: str) -> dict[str, Any]:
    trace = open_trace(sample_path(name))
    table = trace.table(["submit_ns", "latency_ns", "op", "length_bytes"])
    columns = {name: table[name].to_numpy() for name in table.column_names}
    op, length_bytes, span = columns["op"], columns["length_bytes"], Span()
    span.add(columns)
    moved = {kind: int(length_bytes[op == OPS[kind]].sum()) for kind in ("read", "write")}
    return {"name": f"{PREFIX}{name}", "shows": description, "path": str(trace.path), "rows": trace.rows,
            "read_bytes": moved["read"], "written_bytes": moved["write"],
            "compute_share": compute_shares()[name], "exposure": exposure_of(trace).document(),
            "duration_ns": span.duration_ns}
