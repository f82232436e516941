"""Speed of `blkreel import` by format, in records per second of CPU time, beside pandas' CSV reader in the same run.

    .venv/bin/python -m measurements.analysis.import_formats [--records 1000000] [--output DIRECTORY] [FORMAT...]

`convert` reads, validates and maps the records; `import` also sorts them and writes the trace. pandas parses the
columns only: no units, no validation, no order, no account. Files are generated in the page cache. CPU time, so that
other work on the machine does not count. `columns` is a CSV file as `blkreel export` writes it, of a workload on
64 GiB, of which --columns names five columns of thirteen; pandas reads the same five.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support" / "synthetic"))

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from foreign_traces import RECORDINGS  # noqa: E402

from blkreel.traces.importers import FORMATS, ImportOptions, import_recording  # noqa: E402
from blkreel.traces.importers.column_mapping import ColumnMapping  # noqa: E402
from blkreel.traces.importers.pipeline import Records  # noqa: E402

OPTIONS = ImportOptions(block_bytes=512)
COLUMNS = "time=submit_ns:ns,op=op,offset=offset_bytes:bytes,length=length_bytes:bytes,latency=latency_ns:ns"
COLUMN_NAMES = ["submit_ns", "op", "offset_bytes", "length_bytes", "latency_ns"]
# Of formats that pandas reads: separator.
SEPARATORS = {"msr": ",", "tencent": ",", "alibaba": ",", "systor17": ",", "spc": ",", "fiu": " ", "android": ",",
              "mqsim": " ", "disksim": " ", "wpa": ";"}
# Lines at the beginning of a recording that are not repeated.
HEADER_LINES = {"io-tracer": 1, "hfplayer": 1, "wpa": 1, "xperf": 7, "iolog2": 3, "iolog3": 3, "biosnoop": 1,
                "ftrace": 1}
# Formats whose records are not single lines, or belong to others before them.
PAIRED = {"blkparse", "ftrace", "iolog2", "iolog3", "vscsi", "oracle-general", "blkreplay", "btrecord"}


def seconds(work, *arguments, **options):
    started = cpu_seconds()
    work(*arguments, **options)
    return cpu_seconds() - started


def cpu_seconds():
    """Of this process and of the decoders that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def convert(format_, path):
    """Convert a file. Returns the number of records."""
    records = Records(format_, [path], OPTIONS)
    for _ in records.columns():
        pass
    return records.account.records


def enlarged(name, records, path):
    """Write the recording of the tests, repeated; a header stays at the beginning only.

    Each line is repeated, so that times are in order; events that belong to each other are repeated together.
    """
    data = RECORDINGS[name]
    head = b""
    if name in ("systor17", "android", "blkreplay"):
        lines = data.split(b"\n")
        at = next(number for number, line in enumerate(lines) if line.strip()[:1].isdigit() or b"kworker" in line)
        head, data = b"\n".join(lines[:at]) + b"\n", b"\n".join(lines[at:])
    elif name in HEADER_LINES:
        lines = data.splitlines(keepends=True)
        head, data = (b"".join(part) for part in (lines[:HEADER_LINES[name]], lines[HEADER_LINES[name]:]))
    elif name == "btrecord":
        head, data = data[:32], data[32:]
    times = records // 60
    path.write_bytes(head + (data * times if name in PAIRED else
                             b"".join(line * times for line in data.splitlines(keepends=True))))


def write_csv(records, path):
    """Write a CSV file as `blkreel export` does, of a workload with bursts."""
    random = np.random.default_rng(1)
    frame = pd.DataFrame({
        "submit_ns": np.cumsum(random.choice([900, 20_000, 3_000_000], records, p=[0.5, 0.4, 0.1])),
        "latency_ns": random.integers(8_000, 4_000_000, records), "queue_ns": -1,
        "offset_bytes": random.integers(0, 1 << 24, records) * 4096,
        "length_bytes": random.choice([4096, 16_384, 131_072], records),
        "op": random.choice(["read", "write", "flush"], records, p=[0.5, 0.4, 0.1]), "flags": "", "device": "nvme0n1",
        "cpu": random.integers(0, 16, records), "status": 0, "tid": 1000 + random.integers(0, 9, records),
        "waited_on": -1, "think_ns": 0})
    frame.loc[frame.op == "flush", ["offset_bytes", "length_bytes"]] = 0
    frame.to_csv(path, index=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("formats", nargs="*", help="names of formats, default: all with a recording")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--output", type=Path, help="directory for the files, default: a temporary one")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import pyarrow as pa
    pa.set_cpu_count(1)
    with tempfile.TemporaryDirectory(dir=arguments.output) as directory:
        print(f"{'format':<16} {'records':>10} {'convert':>12} {'import':>12} {'pandas':>12} {'import/pandas':>14}"
              "   (records/s)")
        for format_ in [ColumnMapping(COLUMNS), *FORMATS]:
            name = format_.name
            is_any = isinstance(format_, ColumnMapping)
            if not is_any and name not in RECORDINGS or arguments.formats and name not in arguments.formats:
                continue
            path = Path(directory) / name
            if is_any:
                write_csv(arguments.records, path)
            else:
                enlarged(name, arguments.records, path)
            options = ImportOptions(columns=COLUMNS) if is_any else OPTIONS
            count = convert(format_, path)
            rates = [count / seconds(convert, format_, path),
                     count / seconds(import_recording, [path], Path(directory) / "t.parquet", force=True,
                                     format_name=name, options=options)]
            if is_any:
                rates.append(count / seconds(pd.read_csv, path, usecols=COLUMN_NAMES))
            elif name in SEPARATORS:
                rates.append(count / seconds(pd.read_csv, path, sep=SEPARATORS[name], header=None, skiprows=1))
            ratio = f" {rates[1] / rates[2]:>14.2f}" if len(rates) == 3 else ""
            print(f"{name:<16} {count:>10,} " + " ".join(f"{rate:>12,.0f}" for rate in rates) + ratio, flush=True)
            path.unlink()


if __name__ == "__main__":
    main()
