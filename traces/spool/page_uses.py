"""Joins the first uses of pages that a capture recorded with the reads that brought them."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from blkreel.traces.format.schema import NOT_USED, UNKNOWN

# capture/bpf/records.h: a row of the spool that is no I/O, the flag of a read whose pages were noted, and of a use that
# corrects an earlier one.
OP_USE = 127
FLAG_PAGES_NOTED = FLAG_CORRECTS = 1 << 30

# The columns of a read, and the columns of the row of its use from which they come.
_COLUMNS_OF_USE = {"used_ns": "latency_ns", "used_by": "tid", "used_think_ns": "think_ns",
                   "used_blocked_ns": "blocked_ns", "used_slept_ns": "slept_ns", "used_runnable_ns": "runnable_ns"}


def with_page_uses(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Rows with the columns of their first uses instead of rows with the operation OP_USE.

    tables: in order of `submit_ns`, all rows with the same one in the same table, with USE_COLUMNS and, if they have
    `slept_ns` and `runnable_ns`, USER_COLUMNS. A use has the `submit_ns` of its read, and as `latency_ns` the time from
    there. The first one counts, of those that correct an earlier one if there are any; that of a read that is not there
    is dropped.
    """
    for table in tables:
        op, flags = table["op"].to_numpy(), table["flags"].to_numpy()
        is_use = op == OP_USE
        is_noted = (flags & FLAG_PAGES_NOTED) != 0
        if not is_use.any() and not is_noted.any():
            yield table
            continue
        rows = table.filter(pa.array(~is_use))
        is_noted = is_noted[~is_use]
        columns = _first_uses(rows["submit_ns"].to_numpy()[is_noted], table.filter(pa.array(is_use)))
        for name, of_noted in columns.items():
            index = rows.schema.get_field_index(name)
            values = np.full(rows.num_rows, UNKNOWN[name], rows.schema.field(index).type.to_pandas_dtype())
            values[is_noted] = of_noted
            rows = rows.set_column(index, rows.schema.field(index), pa.array(values))
        index = rows.schema.get_field_index("flags")
        yield rows.set_column(index, rows.schema.field(index), pa.array(flags[~is_use] & ~FLAG_PAGES_NOTED))


def _first_uses(submit_ns: np.ndarray, uses: pa.Table) -> dict[str, np.ndarray]:
    """The columns of reads, which are in order."""
    names = [name for name in _COLUMNS_OF_USE if name in uses.column_names]
    result = {name: np.full(len(submit_ns), UNKNOWN[name], np.int64) for name in names}
    result["used_ns"][:] = NOT_USED
    of_ns, used_ns = uses["submit_ns"].to_numpy(), uses["latency_ns"].to_numpy()
    corrects = (uses["flags"].to_numpy() & FLAG_CORRECTS) != 0
    order = np.lexsort((used_ns, ~corrects, of_ns))
    first = order[np.unique(of_ns[order], return_index=True)[1]]
    at = np.searchsorted(of_ns[first], submit_ns)
    has_use = at < len(first)
    has_use[has_use] = of_ns[first][at[has_use]] == submit_ns[has_use]
    row = first[at[has_use]]
    for name in names:
        result[name][has_use] = uses[_COLUMNS_OF_USE[name]].to_numpy()[row]
    return result
