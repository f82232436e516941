"""The data that the program of the demo reads."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_ROW_BYTES = 4 * 8
_GROUP_ROWS = 1 << 17  # a column of a row group is 1 MiB
_FILE_BYTES = 100_000_000


def make_dataset(directory: Path, size_bytes: int, seed: int = 1) -> int:
    """Write a Parquet dataset of about `size_bytes`, of random numbers without compression. Returns its rows."""
    directory.mkdir()
    files = max(1, round(size_bytes / _FILE_BYTES))
    rows = max(1, size_bytes // files // _ROW_BYTES)
    random = np.random.default_rng(seed)
    for number in range(files):
        table = pa.table({
            "when": np.sort(random.integers(0, 2**62, rows)),
            "drive": random.integers(0, 2**62, rows),
            "latency": random.exponential(1e-4, rows),
            "size": random.random(rows),
        })
        pq.write_table(table, directory / f"part-{number:02}.parquet", compression="none", use_dictionary=False,
                       row_group_size=_GROUP_ROWS)
    return rows * files
