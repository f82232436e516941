"""Time and memory of an analysis by blkreel, pandas, DuckDB and btt of the same I/Os, on one processor.

    .venv/bin/python -m measurements.analysis.speed [--rows 1000000 10000000 100000000]
        [--days 400] [--directory /var/tmp]

Makes traces of this many I/Os (12 bytes each; kept in the directory for later runs). In each repetition the tools read
them one after the other, each in a separate process on one processor. Wall time, processor time and peak memory are the
kernel's measurements of that process, including its start; medians [smallest .. largest].

blkreel computes all figures of a trace; the others compute those listed in tools.py. Common figures must
agree: exactly, or percentiles to 1 %. btt reads binary blktrace events, so the reads and writes of the trace
are written in that format in the order of time, as merged by blkparse -d. btt merges two I/Os in flight at the same
sector, so that a few in a million are missing.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from measurements.analysis.tools import TOOLS
from measurements.lab import machine, print_table

# With more rows the other tools need minutes or gigabytes.
MOST_ROWS = {"blkreel": None, "pandas": 10_000_000, "DuckDB": 10_000_000, "btt": 1_000_000}
PERCENTILE_ERROR = 0.01
NEEDED = {"DuckDB": (lambda: find_spec("duckdb"), "make .stamps/venv-dev"),
          "btt": (lambda: shutil.which("btt"), "apt-get install blktrace")}


def arguments(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--days", type=int, default=0, help="spread the I/Os over this many days (default: bursts)")
    parser.add_argument("--tools", nargs="+", choices=list(TOOLS), default=list(TOOLS))
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp"))
    parser.add_argument("--processor", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--all", action="store_true", help="run the other tools on all sizes (slow)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args(words)


def lacking(tool):
    """The command that installs a missing tool; None if it is installed."""
    is_there, remedy = NEEDED.get(tool, (lambda: True, None))
    return None if is_there() else remedy


def make_file(kind, path, rows, *more):
    """A file of data.py, made by another process: the peak memory of a child starts at that of its parent, so
    this process stays small."""
    words = [sys.executable, "-m", "measurements.analysis.data", kind, str(path), str(rows), *more]
    return json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout or "null")


def run_once(tool, path, processor):
    """Figures, and (wall s, processor s, MB) of a process that ran a tool on a file."""
    words = [sys.executable, "-m", "measurements.analysis.tools", tool, str(path)]
    # A file, because a full pipe would block the process, and only wait4 waits for it.
    with tempfile.TemporaryFile() as output:
        began = time.monotonic()
        process = subprocess.Popen(words, stdout=output, preexec_fn=lambda: os.sched_setaffinity(0, {processor}))
        _, status, used = os.wait4(process.pid, 0)
        wall_s = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{tool} failed on {path} ({process.returncode})")
        output.seek(0)
        return json.load(output), (wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6)


def check_agreement(figures, offered):
    """Check figures common to blkreel and another tool, and btt against its input."""
    by_blkreel = figures.get("blkreel")
    for tool, tool_figures in figures.items():
        for name, value in tool_figures.items():
            if tool == "btt" or by_blkreel is None or tool == "blkreel":
                continue
            error = PERCENTILE_ERROR * value if "_p" in name else 0
            if abs(by_blkreel[name] - value) > error:
                raise SystemExit(f"{name} differs: blkreel {by_blkreel[name]}, {tool} {value}")
    if "btt" in figures:
        mean_s = offered["service_ns"] / offered["ios"] / 1e9
        missing = offered["ios"] - figures["btt"]["ops"]
        if not 0 <= missing <= offered["ios"] / 10_000 or abs(figures["btt"]["mean_latency_s"] / mean_s - 1) > 0.001:
            raise SystemExit(f"btt differs: {figures['btt']}, expected {offered}")


def main():
    chosen = arguments()
    chosen.directory.mkdir(parents=True, exist_ok=True)
    for tool, remedy in [(tool, lacking(tool)) for tool in chosen.tools]:
        if remedy:
            print(f"{tool} not found: {remedy}", file=sys.stderr)
            chosen.tools.remove(tool)
    results = {"machine": machine(), "processor": chosen.processor, "sizes": {}}
    for rows in chosen.rows:
        path = chosen.directory / f"blkreel-bench-{rows}{f'-{chosen.days}-days' if chosen.days else ''}.parquet"
        make_file("trace", path, rows, str(chosen.days))
        inputs, offered = {}, None
        for tool in chosen.tools:
            if MOST_ROWS[tool] is None or rows <= MOST_ROWS[tool] or chosen.all:
                inputs[tool] = path
        if "btt" in inputs:
            inputs["btt"] = path.with_suffix(".blktrace")
            offered = make_file("blktrace", inputs["btt"], rows, str(path))
        figures, taken = {}, {tool: [] for tool in inputs}
        for repetition in range(chosen.repetitions):
            for tool, file in inputs.items():
                figures[tool], cost = run_once(tool, file, chosen.processor)
                taken[tool].append(cost)
            if not repetition:
                check_agreement(figures, offered)
        results["sizes"][rows] = {"taken": taken, "figures": figures, "trace_bytes": path.stat().st_size}
        print_table(f"{rows:,} I/Os, {path.stat().st_size / 1e6:,.0f} MB of Parquet, {chosen.repetitions} repetitions",
                    [("wall, s", "{:.2f}".format), ("processor, s", "{:.2f}".format), ("memory, MB", "{:,.0f}".format)],
                    taken)
    print(f"\n{results['machine']}; all on processor {chosen.processor}; common figures agree.")
    if len(chosen.rows) > 1 and "blkreel" in chosen.tools:
        cost_ns = {rows: statistics.median(cpu for _, cpu, _ in size["taken"]["blkreel"]) / rows * 1e9
                   for rows, size in results["sizes"].items()}
        print("blkreel, processor ns per I/O:", ", ".join(f"{ns:.0f} ({rows:,})" for rows, ns in cost_ns.items()))
    if chosen.json:
        chosen.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
