"""Rows that a running capture has written to disk."""

from blkreel.common.output_lock import spool_of
from blkreel.traces.spool.block_file import BlockFile


def rows_on_disk(output, column="op"):
    """The values of a column in all rows written so far for this output."""
    try:
        with BlockFile(spool_of(output) / "rows.blocks") as blocks:
            return [value for columns in blocks.rows() for value in columns[column].tolist()]
    except OSError:
        return []
