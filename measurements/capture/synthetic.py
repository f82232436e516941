#!/usr/bin/env python3
"""Events per second that a capture moves from the ring to the disk without loss.

    sudo .venv/bin/python -m measurements.capture.synthetic --rate 1000000 --seconds 10 --repeats 5

A BPF program writes the records with the code and the ring of a real capture. The cost of tracing an I/O is not
included. The rows go to --directory, as in a capture.
"""

import argparse
import json
import resource
import tempfile
import threading
from pathlib import Path

from blkreel.capture.helper import Helper
from blkreel.capture.options import CaptureOptions
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import TRACE_SCHEMA
from blkreel.traces.spool.spool import Spool
from measurements.lab import loop_drive, machine, print_table


def measure(drive, options, directory):
    number = Path(f"/sys/block/{Path(drive).name}/dev").read_text().strip()
    changed, ring_bytes = threading.Event(), options.ring_bytes or CaptureOptions(output=directory).ring_bytes
    spool = Spool(directory / "t.parquet", TRACE_SCHEMA, {}, force=True)
    before = resource.getrusage(resource.RUSAGE_SELF)
    helper = Helper(["--device", number, "--ring-bytes", str(ring_bytes), "--synthetic", str(options.rate),
                     "--synthetic-count", str(options.rate * options.seconds)], spool,
                    lambda: changed.set() if helper.end or helper.error else None,
                    1_000_000_000 if options.live else None)
    changed.wait()
    helper.stop()
    after = resource.getrusage(resource.RUSAGE_SELF)
    if helper.error:
        raise SystemExit(str(helper.error))
    end, rows_bytes = helper.end, spool.written_bytes()
    rows = open_trace(spool.finish({})).rows if options.finish else end["events"]
    if not options.finish:
        spool.discard()
    python_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"emitted": end["emitted"], "rows": rows, "lost": end["lost"]["total"], "seconds": end["stopped_ns"] / 1e9,
            "per_second": end["emitted"] / (end["stopped_ns"] / 1e9), "ring_bytes": ring_bytes,
            "helper_ns_per_event": (end["cpu_ns"] - end["emitter_cpu_ns"]) / end["emitted"],
            "python_ns_per_event": python_s * 1e9 / end["emitted"],
            "spool_bytes_per_event": rows_bytes / max(1, end["events"])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=1_000_000, help="events per second (default: 1000000)")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ring-bytes", type=int, help="size of the ring (default: that of a capture)")
    parser.add_argument("--directory", default="/var/tmp", help="directory for the rows (default: /var/tmp)")
    parser.add_argument("--live", action="store_true", help="compute live figures each second, as on a terminal")
    parser.add_argument("--finish", action="store_true", help="finish the trace and count its rows")
    parser.add_argument("--json", action="store_true", help="print a JSON document")
    options = parser.parse_args()
    with loop_drive(1 << 20) as drive, tempfile.TemporaryDirectory(dir=options.directory) as name:
        runs = [measure(drive, options, Path(name)) for _ in range(options.repeats)]
    if options.json:
        print(json.dumps({"version": 1, "machine": machine(), "options": vars(options), "runs": runs}))
        return
    keys = ("per_second", "rows", "lost", "helper_ns_per_event", "python_ns_per_event")
    print(machine())
    print_table(f"{options.rate:,} events/s for {options.seconds} s, ring of {runs[0]['ring_bytes'] >> 20} MiB",
                [(key, lambda value: f"{value:,.0f}") for key in keys],
                {"synthetic": [tuple(run[key] for key in keys) for run in runs]})
    print(f"rows + lost = emitted in {sum(r['rows'] + r['lost'] == r['emitted'] for r in runs)} of "
          f"{len(runs)} runs")


if __name__ == "__main__":
    main()
