"""What a capture writes into its spool: the rows on disk, and the totals of the end."""

from blkreel.common.files.output_lock import spool_of
from blkreel.traces.spool.block_file import BlockFile

# The end block of a capture.
TOTALS = {"events": 100, "stopped_ns": 1000, "monotonic_ns": 1005, "realtime_ns": 2000, "cpu_ns": 10,
          "lost": {"total": 0, "per_cpu": {"0": 0}, "intervals": [{"cpu": 0, "first_ns": 1, "last_ns": 2, "count": 3}]},
          "ledger": {"unmatched": 1, "reused": 5}, "recursion_misses": None, "in_flight_at_end": 0, "queued_at_end": 0,
          "drives": [{"device": "8:0", "diskstats": {"read": 100}, "seen": {"read": 100}, "gone": False,
                      "uncertain": 0, "paths_added": 1}],
          "ios": [100, 0, 0, 0, 0], "bytes": [409600, 0, 0, 0, 0], "unwritten_rows": 1, "write_error": 28}


def rows_on_disk(output, column="op"):
    """The values of a column in all rows written so far for this output."""
    try:
        with BlockFile(spool_of(output) / "rows.blocks") as blocks:
            return [value for columns in blocks.rows() for value in columns[column].tolist()]
    except OSError:
        return []
