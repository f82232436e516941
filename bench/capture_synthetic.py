#!/usr/bin/env python3
"""How many events a second the way from the ring to the disk takes without losing one.

    sudo .venv/bin/python bench/capture_synthetic.py --rate 1000000 --seconds 10 --repeats 5

A BPF program makes the records, by the same code and into the same ring as those of I/Os; nothing is said of what
it costs to see an I/O. The rows go to --directory, as those of a capture do.
"""

import argparse
import json
import resource
import tempfile
import threading
from pathlib import Path

from lab import loop_drive, machine, print_table

from blkreel.capture.helper import Helper
from blkreel.capture.session import CaptureOptions
from blkreel.traces.reader import open_trace
from blkreel.traces.schema import TRACE_SCHEMA
from blkreel.traces.spool import Spool


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
    parser.add_argument("--rate", type=int, default=1_000_000, help="events a second")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ring-bytes", type=int, help="default: that of a capture")
    parser.add_argument("--directory", default="/var/tmp", help="where the rows go")
    parser.add_argument("--live", action="store_true", help="tell each second what the drives do, as on a terminal")
    parser.add_argument("--finish", action="store_true", help="make the trace, and count its rows")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    with loop_drive(1 << 20) as drive, tempfile.TemporaryDirectory(dir=options.directory) as name:
        found = [measure(drive, options, Path(name)) for _ in range(options.repeats)]
    if options.json:
        print(json.dumps({"version": 1, "machine": machine(), "options": vars(options), "runs": found}))
        return
    keys = ("per_second", "rows", "lost", "helper_ns_per_event", "python_ns_per_event")
    print(machine())
    print_table(f"{options.rate:,} events/s for {options.seconds} s, ring of {found[0]['ring_bytes'] >> 20} MiB",
                [(key, lambda value: f"{value:,.0f}") for key in keys],
                {"synthetic": [tuple(run[key] for key in keys) for run in found]})
    print(f"rows and lost add up to what was emitted in {sum(r['rows'] + r['lost'] == r['emitted'] for r in found)} of "
          f"{len(found)} runs")


if __name__ == "__main__":
    main()
