"""Processor time of `results list` and `compare --catalog` in a catalog of many results.

    .venv/bin/python -m measurements.analysis.catalog_speed [--results 10000] [--drives 100]
        [--workloads 20] [--repeat 5]

The results are copies of one synthetic run under other drives and workloads. `--version` is the command without work.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from measurements.lab import machine

sys.path[:0] = [str(Path(__file__).parents[2] / "tests/support/synthetic")]
from synthetic_catalog import run_of, variant  # noqa: E402

from blkreel.benchmarks.catalog import Catalog, collected  # noqa: E402
from blkreel.benchmarks.catalog.result import dump  # noqa: E402

COMMAND = Path(sys.executable).with_name("blkreel")


def fill(directory, results, drives, workloads):
    catalog = Catalog.open(directory, create=True)
    result, partial = collected(run_of(directory.parent / "run"))
    catalog.remove(catalog.put(result, partial)[0])
    catalog.partial_path(result).write_bytes(partial)
    for number in range(results):
        drive, workload = number % drives, number // drives % workloads
        checksum = f"{workload:064x}"
        run = {**result["metadata"]["run"], "label": f"drive {drive}",
               "source": {**result["metadata"]["run"]["source"], "sha256": checksum, "title": f"workload {workload}"}}
        run["drive"] = {**run["drive"], "serial_hash": f"unit {drive}"}
        document = variant(result, number, label=f"drive {drive}", metadata={**result["metadata"], "run": run},
                           workload={"checksum": checksum, "title": f"workload {workload}", "name": "t.parquet"})
        catalog.path_of(document["id"]).write_bytes(dump(document))
    return catalog


def processor_s(*words):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([COMMAND, *words], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, default in (("results", 10_000), ("drives", 100), ("workloads", 20), ("repeat", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as directory:
        catalog = fill(Path(directory) / "catalog", options.results, options.drives, options.workloads)
        named = ("--catalog", catalog.directory)
        print(f"tables of {options.results:,} results: {processor_s('results', 'list', *named):.2f} s")
        for title, words in (("--version", ("--version",)), ("results list", ("results", "list", *named)),
                             ("results list --drive", ("results", "list", "--drive", "drive 7", *named)),
                             ("compare two drives on one workload", (
                                 "compare", "--workload", "workload 3", "--drive", "drive 17", "--drive", "drive 18",
                                 *named)),
                             ("compare one workload", ("compare", "--workload", "workload 13", *named))):
            first_s, *times_s = [processor_s(*words) for _ in range(options.repeat + 1)]
            print(f"{title}: {statistics.median(times_s):.2f} s of processor time, {min(times_s):.2f} to "
                  f"{max(times_s):.2f}; the first time {first_s:.2f} s")


if __name__ == "__main__":
    main()
