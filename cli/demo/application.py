"""The program that the demo captures and runs: it reads a Parquet dataset and prints the mean of a column.

`python3 -I -S -B application.py LIBRARIES DATASET COUNTERS`: LIBRARIES is the directory of the packages, COUNTERS the
file `stat` of the drive in /sys. Prints, as JSON, the seconds from the first file opened to the result, and what was
read from and written to the drive meanwhile, in bytes. It imports nothing of blkreel.
"""

import json
import sys
import time
from pathlib import Path

_SECTOR_BYTES = 512  # of the counters, for every block size


def scan(dataset: Path) -> float:
    """Reads all columns, row group after row group, as a query over a table larger than the memory does."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    total, rows = 0.0, 0
    for file in sorted(dataset.iterdir()):
        with pq.ParquetFile(file, pre_buffer=False) as table:
            for batch in table.iter_batches(1 << 17, use_threads=False):
                total += pc.sum(batch["latency"]).as_py()
                rows += len(batch)
    return total / rows


def _counts(counters: Path) -> tuple[int, int]:
    """Bytes read and written since the drive was attached."""
    fields = counters.read_text().split()
    return int(fields[2]) * _SECTOR_BYTES, int(fields[6]) * _SECTOR_BYTES


def main() -> None:
    libraries, dataset, counters = sys.argv[1:]
    sys.path.insert(0, libraries)
    import pyarrow.parquet  # noqa: F401  loading the library is no part of the scan

    read, written = _counts(Path(counters))
    started = time.monotonic()
    mean = scan(Path(dataset))
    seconds = time.monotonic() - started
    read_after, written_after = _counts(Path(counters))
    print(json.dumps({"seconds": seconds, "read_bytes": read_after - read, "written_bytes": written_after - written,
                      "mean": mean}))


if __name__ == "__main__":
    main()
