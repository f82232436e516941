"""Order of records that are nearly in order of submission, without a file: most sources are."""

from collections.abc import Iterator

import numpy as np

from blkreel.traces.format.schema import TRACE_SCHEMA
from blkreel.traces.transform.rows import filled

# Rows that wait for earlier ones. Completions are out of order by the I/Os in flight, which are far fewer.
WAITING_ROWS = 65_536

Columns = dict[str, np.ndarray]


class TooFarBack(Exception):
    """A record is earlier than rows that have been passed on."""


def nearly_sorted(batches: Iterator[Columns], waiting_rows: int = WAITING_ROWS) -> Iterator[Columns]:
    """The rows of all batches, sorted by `submit_ns`, equal ones in their order of arrival.

    Raises TooFarBack for a row that belongs before more than about waiting_rows others.
    """
    waiting: list[Columns] = []
    rows, latest_ns, passed_ns = 0, None, None
    in_order = True
    for columns in batches:
        submit_ns = columns["submit_ns"]
        first_ns = int(submit_ns.min())
        if passed_ns is not None and first_ns < passed_ns:
            raise TooFarBack
        in_order = (in_order and (latest_ns is None or first_ns >= latest_ns)
                    and not bool(np.any(submit_ns[1:] < submit_ns[:-1])))
        latest_ns = max(int(submit_ns.max()), first_ns if latest_ns is None else latest_ns)
        waiting.append(columns)
        rows += len(submit_ns)
        while rows - len(waiting[0]["submit_ns"]) >= waiting_rows:
            if not in_order:
                columns, in_order = _sorted(waiting), True
                waiting = [{name: values[part] for name, values in columns.items()}
                           for part in (slice(0, rows - waiting_rows), slice(rows - waiting_rows, None))]
            ready = waiting.pop(0)
            rows -= len(ready["submit_ns"])
            passed_ns = int(ready["submit_ns"][-1])
            yield ready
    if waiting:
        yield from waiting if in_order else [_sorted(waiting)]


def _sorted(parts: list[Columns]) -> Columns:
    if any(part.keys() != parts[0].keys() for part in parts):
        parts = [filled(part, TRACE_SCHEMA) for part in parts]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.argsort(joined["submit_ns"], kind="stable")
    return {name: values[order] for name, values in joined.items()}
