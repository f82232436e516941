"""Writes the computing shares of the sample traces, and their table into the page: the last step of make samples."""

from pathlib import Path

import pyarrow.parquet as pq

from blkreel.cli.ui.progress import progress
from blkreel.common.units import format_bytes, format_count, format_ns
from blkreel.replay.drive.target import find_target
from blkreel.replay.plan.pace import ALL_IDLE, DEPENDENT
from blkreel.replay.plan.planner import plan_trace
from blkreel.replay.run.zero_latency import zero_latency
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, OPS
from blkreel.traces.samples import PREFIX, SAMPLES

_ROOT = Path(__file__).resolve().parents[1]
PAGE = _ROOT / "docs/samples.md"
_BEGIN, _END = "<!-- figures: written by `make samples` -->\n", "<!-- end of figures -->\n"
COMPUTING = _ROOT / "traces/samples/computing.toml"
_LARGE = find_target("nil:1TiB,clock=virtual")
_HEAD = ("| trace | I/Os | read | written | flushes | lasts | file | bytes per I/O, columns alone |\n"
         "|---|---:|---:|---:|---:|---:|---:|---:|\n")


def figures(directory: Path = _ROOT / "traces/samples") -> str:
    """The table, from the files."""
    return _HEAD + "".join(_line(name, directory / f"{name}.parquet") for name in SAMPLES)


def on_page() -> str:
    """The table as the page has it."""
    return PAGE.read_text().partition(_BEGIN)[2].partition(_END)[0]


def _line(name: str, path: Path) -> str:
    table = open_trace(path).table(["submit_ns", "op", "length_bytes"])
    op, length_bytes, submit_ns = (table[column].to_numpy() for column in ("op", "length_bytes", "submit_ns"))
    rows, file_bytes = len(op), path.stat().st_size
    moved = (format_bytes(int(length_bytes[op == OPS[kind]].sum())) for kind in ("read", "write"))
    cells = [f"`{PREFIX}{name}`", format_count(rows), *moved, format_count(int((op == OPS["flush"]).sum())),
             format_ns(int(submit_ns[-1] - submit_ns[0])), format_bytes(file_bytes),
             f"{file_bytes / rows:.1f}, {_column_bytes(path) / rows:.1f}"]
    return f"| {' | '.join(cells)} |\n"


def _column_bytes(path: Path) -> int:
    """Without schema, metadata, and names of threads and files, which do not grow with the rows."""
    with pq.ParquetFile(path) as file:
        groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    return sum(int(group.column(number).total_compressed_size) for group in groups
               for number in range(group.num_columns))


def compute_share(path: Path) -> float:
    """Load time of the I/Os on a drive without latency / the recorded one."""
    trace = open_trace(path)
    rows = trace.table(["submit_ns", "latency_ns", "flags"])
    submit_ns, latency_ns, flags = (rows[column].to_numpy() for column in ("submit_ns", "latency_ns", "flags"))
    workload = (flags & FLAGS["own"]) != 0
    if workload.any():
        submit_ns, latency_ns = submit_ns[workload], latency_ns[workload]
    plan = plan_trace(trace, _LARGE, pace=DEPENDENT, idle=ALL_IDLE, prefill=False)
    least = zero_latency(plan, None, progress)
    assert least, path
    return int(least["load_time_ns"]) / int((submit_ns + latency_ns.clip(min=0)).max() - submit_ns.min())


def main() -> None:
    shares = {name: compute_share(_ROOT / f"traces/samples/{name}.parquet") for name in SAMPLES}
    COMPUTING.write_text("".join(f"{name} = {share:.3f}\n" for name, share in shares.items()))
    before, after = PAGE.read_text().split(_BEGIN)
    PAGE.write_text(before + _BEGIN + figures() + _END + after.split(_END)[1])


if __name__ == "__main__":
    main()
