"""Cost of a directory of traces: read by one process, by all cores, and again with cached figures.

    .venv/bin/python -m measurements.analysis.scale [--traces 200] [--rows 500000] [--huge 50000000] [--directory DIR]

Each variant runs in a separate process, several times in turn; the best time counts, because of other load.
Processor time is the total of all processes, including the start of Python.
Memory is the peak of that process and, for a pool, of its largest child. Traces are made once and kept in DIR.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

from blkreel.analysis.scale import ReadOptions, measure_fleet
from blkreel.traces.format.reader import open_trace
from measurements.analysis.data import make_trace


def main():
    options = _options()
    if options.child:
        print(json.dumps(_measured(options)))
        return
    fleet = options.directory / f"fleet-{options.traces}-{options.rows}"
    fleet.mkdir(parents=True, exist_ok=True)
    for number in range(options.traces):
        make_trace(fleet / f"trace-{number}.parquet", options.rows + number)
    huge = [make_trace(options.directory / f"huge-{options.huge}.parquet", options.huge)] if options.huge else []
    for subject in (fleet, *huge):
        print(f"\n{subject.name}: {_size(subject) / 1e6:,.0f} MB")
        print(f"{'':28}{'s':>8}{'CPU s':>8}{'MB peak':>10}{'cache MB':>10}")
        for name, arguments in (("one process", ["--jobs", "1", "--no-cache"]), ("all cores", ["--no-cache"]),
                                ("all cores, kept now", []), ("kept before", [])):
            _show(name, subject, arguments, options.repeats)


def _show(name, subject, arguments, repeats):
    results = []
    for _ in range(repeats):
        if name.endswith("now"):
            for path in _kept(subject):
                path.unlink()
        command = [sys.executable, "-m", "measurements.analysis.scale", "--child", str(subject), *arguments]
        results.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    partial_bytes = sum(path.stat().st_size for path in _kept(subject))
    print(f"{name:28}{min(run['s'] for run in results):8.2f}{min(run['cpu_s'] for run in results):8.2f}"
          f"{max(run['peak_mb'] for run in results):10,.0f}"
          f"{partial_bytes / 1e6 if '--no-cache' not in arguments else 0:10.1f}", flush=True)


def _measured(options):
    begun = time.monotonic()
    fleet = measure_fleet([options.child], read_options=ReadOptions(jobs=options.jobs, keep=options.keep))
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {"s": time.monotonic() - begun, "cpu_s": sum(usage.ru_utime + usage.ru_stime for usage in used),
            "peak_mb": max(usage.ru_maxrss for usage in used) / 1000, "rows": sum(run.rows for run in fleet.measured)}


def _kept(subject):
    where = subject if subject.is_dir() else subject.parent
    return [path for path in where.glob(".*.blkreel-partial") if subject.is_dir() or subject.name in path.name]


def _size(subject):
    return sum(open_trace(path).footer.size_bytes for path in
               (subject.glob("*.parquet") if subject.is_dir() else [subject]))


def _options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--traces", type=int, default=200)
    parser.add_argument("--rows", type=int, default=500_000, help="rows of each trace")
    parser.add_argument("--huge", type=int, default=50_000_000, help="rows of one large trace; 0: none")
    parser.add_argument("--directory", type=Path, default=Path("/var/tmp/blkreel-bench"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--no-cache", dest="keep", action="store_false")
    return parser.parse_args()


if __name__ == "__main__":
    main()
