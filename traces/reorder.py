"""Putting rows that come in order of completion into order of submission, in bounded memory."""

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

# An I/O that took longer than this is kept aside, so that a single stuck one does not hold back
# everything submitted after it. What is held in memory is this span of rows and the stuck ones.
STRAGGLER_NS = 5_000_000_000
_SORT_ROWS = 65_536


def in_submit_order(batches: Callable[[], Iterator[pa.RecordBatch]]) -> Iterator[pa.Table]:
    """The rows of all batches, sorted by `submit_ns`, equal ones in their order of arrival.

    `batches` is called twice: once to learn from which point on nothing earlier comes, once for the rows.
    """
    survey, stragglers = _survey(batches())
    last = len(survey.minimum_ns) - 1
    waiting: list[pa.Table] = []
    waiting_rows = 0
    emitted_to_ns = None
    for index, batch in enumerate(batches()):
        table = pa.Table.from_batches([batch])
        late = _late(table["submit_ns"].to_numpy(), survey.running_max_ns[index])
        if late.any():
            table = table.filter(pa.array(~late))
        waiting.append(table)
        waiting_rows += table.num_rows
        horizon_ns = survey.minimum_ns[index + 1] if index < last else None
        if index < last and (waiting_rows < _SORT_ROWS or horizon_ns == emitted_to_ns):
            continue
        emitted_to_ns = horizon_ns
        ready, rest = _split(pa.concat_tables(waiting), horizon_ns)
        ready_stragglers, stragglers = _split(stragglers, horizon_ns)
        waiting, waiting_rows = [rest], rest.num_rows
        ready = pa.concat_tables([ready, ready_stragglers])
        if ready.num_rows:
            ready = ready.take(pa.array(np.argsort(ready["submit_ns"].to_numpy(), kind="stable")))
            yield ready


class _Survey:
    """What a first look at all batches tells.

    minimum_ns[i]: least submit_ns in batch i and all after it, stragglers aside.
    running_max_ns[i]: greatest submit_ns before batch i.
    """

    def __init__(self):
        self.minimum_ns: list[int] = []
        self.running_max_ns: list[int] = []


def _survey(batches) -> tuple[_Survey, pa.Table | None]:
    survey, stragglers, schema = _Survey(), [], None
    highest_ns = np.iinfo(np.int64).min
    for batch in batches:
        schema = batch.schema
        submit_ns = batch["submit_ns"].to_numpy()
        survey.running_max_ns.append(highest_ns)
        late = _late(submit_ns, highest_ns)
        on_time = submit_ns[~late]
        survey.minimum_ns.append(on_time.min() if len(on_time) else np.iinfo(np.int64).max)
        if late.any():
            stragglers.append(pa.Table.from_batches([batch]).filter(pa.array(late)))
        highest_ns = max(highest_ns, submit_ns.max(initial=highest_ns))
    for index in range(len(survey.minimum_ns) - 2, -1, -1):
        survey.minimum_ns[index] = min(survey.minimum_ns[index], survey.minimum_ns[index + 1])
    if schema is None:
        return survey, None
    return survey, pa.concat_tables(stragglers) if stragglers else schema.empty_table()


def _late(submit_ns, highest_before_ns):
    """Which rows were submitted long before rows that have arrived in an earlier batch."""
    # In floats: the minimum of int64 less the span would wrap.
    return submit_ns < float(highest_before_ns) - STRAGGLER_NS


def _split(table, horizon_ns):
    if horizon_ns is None:
        return table, table.slice(0, 0)
    ready = table["submit_ns"].to_numpy() < horizon_ns
    return table.filter(pa.array(ready)), table.filter(pa.array(~ready))
