"""What a capture that goes on has on its disk already."""

from blkreel.traces.block_file import BlockFile
from blkreel.traces.spool import spool_of


def rows_on_disk(output, column="op"):
    """The values of a column, of all rows that have been written for this output: a list, empty before the first."""
    try:
        with BlockFile(spool_of(output) / "rows.blocks") as blocks:
            return [value for columns in blocks.rows() for value in columns[column].tolist()]
    except OSError:
        return []
