"""`blkreel merge`: traces at the same time, on one clock."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from blkreel.common.errors import UsageError
from blkreel.common.units import format_ns
from blkreel.traces.format.check import check_order
from blkreel.traces.format.schema import FLAGS, TIME_LIMIT_NS, with_columns
from blkreel.traces.format.trace import Trace

from .carry import history
from .output import Transformed, TransformOutput
from .rows import RowNumbers, filled, trace_schema
from .tables import Renumbering, Tables, boot_offset_ns, same_boot

ALIGNMENTS = ("clock", "start")
_ROWS, _LEAST_BATCH_ROWS = 131_072, 4096  # read of all traces, and of each, at a time
Columns = dict[str, np.ndarray]


def merge(traces: Sequence[Trace], output: Path, *, align: str = "clock", onto_one: bool = False, force: bool = False,
          public: bool = False, offsets_ns: Mapping[int, int] | None = None,
          backgrounds: Collection[int] = ()) -> Transformed:
    """Write the rows of all traces in order of their time on one clock.

    Each trace is a stream of its own, in their order from 0 on; one that has several has as many, in their order.
    align: `clock` places each trace at the time of its recording, `start` places the first I/Os of all at one time.
    offsets_ns: times added to those of single traces after that. backgrounds: traces whose rows get the role
    background, by number; none of their rows is workload I/O. Raises UsageError if a trace has no clock to align, or
    if a number is that of no trace.
    """
    offsets_ns = offsets_ns or {}
    for number in (*offsets_ns, *backgrounds):
        if not 0 <= number < len(traces):
            raise UsageError(f"there is no trace {number}", f"traces are numbered from 0 to {len(traces) - 1}")
    for trace in traces:
        check_order(trace)
    schema = with_columns(trace_schema(*(trace.schema for trace in traces)), ["stream"])
    tables = Tables(onto_one)
    renumberings = [tables.add(trace) for trace in traces]
    shifts_ns, notes, uncertainty_ns = _by_start(traces) if align == "start" else _by_clock(traces)
    notes += tables.notes()
    begin_ns = shifts_ns[0]
    shifts_ns = [shift_ns + offsets_ns.get(number, 0) for number, shift_ns in enumerate(shifts_ns)]
    if far := next((trace for trace, shift_ns in zip(traces, shifts_ns, strict=True) if abs(shift_ns) >= TIME_LIMIT_NS),
                   None):
        raise UsageError(f"{far.name} is 73 years or more from {traces[0].name}",
                         "place the first I/Os at one time: --align start")
    roles = [_Role(stream, number in backgrounds) for number, stream in enumerate(_first_streams(traces))]
    with (TransformOutput(output, schema, tables.names(), force=force, public=public) as out, ExitStack() as stack):
        numbers = [stack.enter_context(closing(RowNumbers(output.parent, trace.rows))) for trace in traces]
        batch_rows = max(_LEAST_BATCH_ROWS, _ROWS // len(traces))
        sources = [_Source(_shifted(trace, renumbering, shift_ns, schema, batch_rows, role))
                   for trace, renumbering, shift_ns, role in zip(traces, renumberings, shifts_ns, roles, strict=True)]
        # A list, not a generator: every source must have its next rows before the earliest are written.
        while any([source.fill() for source in sources]):
            out.write(_next_rows(sources, numbers, out.rows))
        metadata = {**tables.metadata(shifts_ns, backgrounds),
                    **history(traces, "merge", {"align": align, "onto_one": onto_one,
                                                "offsets_ns": {str(key): value for key, value in offsets_ns.items()},
                                                "backgrounds": sorted(backgrounds)}, notes),
                    "clock_uncertainty_ns": uncertainty_ns}
        if metadata.get("epoch_ns") is not None:
            metadata["epoch_ns"] -= begin_ns
        return out.finish(metadata, notes)


@dataclass(frozen=True)
class _Role:
    """first_stream: number of the first stream of a trace."""

    first_stream: int
    is_background: bool

    def apply(self, columns: Columns) -> Columns:
        flags = columns["flags"]
        if self.is_background:
            flags = (flags & ~FLAGS["own"]) | FLAGS["role_background"]
        return {**columns, "stream": columns["stream"] + np.int16(self.first_stream), "flags": flags}


def _first_streams(traces: Sequence[Trace]) -> list[int]:
    """Raises UsageError for more streams than a trace has numbers for."""
    counts = [max(0, trace.greatest("stream")) + 1 for trace in traces]
    if sum(counts) > np.iinfo(np.int16).max:
        raise UsageError(f"the traces have {sum(counts):,} streams together, more than a trace has numbers for",
                         "merge fewer of them")
    return [sum(counts[:number]) for number in range(len(counts))]


class _Source:
    """The rows of one trace that were read and not written yet."""

    def __init__(self, batches: Iterator[Columns]):
        self._batches = batches
        self.columns: Columns | None = None
        self.row = 0  # number of the first of them in its trace

    def fill(self) -> bool:
        """Read rows if there are none; False at the end."""
        if self.columns is None:
            self.columns = next(self._batches, None)
        return self.columns is not None

    def take(self, until_ns: int) -> Columns:
        """Remove and return the rows up to this time."""
        assert self.columns is not None
        count = int(np.searchsorted(self.columns["submit_ns"], until_ns, side="right"))
        taken = {name: values[:count] for name, values in self.columns.items()}
        remainder = {name: values[count:] for name, values in self.columns.items()}
        self.columns = remainder if len(remainder["submit_ns"]) else None
        self.row += count
        return taken


def _next_rows(sources: list[_Source], numbers: list[RowNumbers], first_row: int) -> Columns:
    """Rows up to the earliest time up to which all traces were read, in order."""
    waiting = [(source, number) for source, number in zip(sources, numbers, strict=True) if source.columns is not None]
    until_ns = min(int(source.columns["submit_ns"][-1]) for source, _ in waiting if source.columns is not None)
    begins = [source.row for source, _ in waiting]
    parts = [source.take(until_ns) for source, _ in waiting]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.argsort(joined["submit_ns"], kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(first_row, first_row + len(order))
    ends = np.cumsum([len(part["submit_ns"]) for part in parts])
    waited_on = []
    for (_, number), begin, part, rows in zip(waiting, begins, parts, np.split(rank, ends[:-1]), strict=True):
        number.put(begin, rows)
        waited_on.append(number.of(part["waited_on"]))
    joined["waited_on"] = np.concatenate(waited_on)
    return {name: values[order] for name, values in joined.items()}


def _shifted(trace: Trace, renumbering: Renumbering, shift_ns: int, schema: pa.Schema, batch_rows: int,
             role: _Role) -> Iterator[Columns]:
    for batch in trace.batches([name for name in schema.names if name in trace.schema.names], batch_rows):
        if batch.num_rows:
            columns = filled({name: batch[name].to_numpy() for name in batch.schema.names}, schema)
            yield role.apply(renumbering.apply(columns, shift_ns))


def _by_start(traces: Sequence[Trace]) -> tuple[list[int], list[str], int | None]:
    return ([-next((int(batch["submit_ns"].to_numpy()[0]) for batch in trace.batches(["submit_ns"]) if batch.num_rows),
                   0) for trace in traces],
            ["clocks not compared: the first I/Os of all traces are at one time"], None)


def _by_clock(traces: Sequence[Trace]) -> tuple[list[int], list[str], int | None]:
    """Times to add to each trace, how sure they are as text, and their uncertainty; None if it is not known."""
    epochs_ns, drift_ns = [], 0
    is_same = [same_boot(traces[0], trace) for trace in traces]
    for trace, same in zip(traces, is_same, strict=True):
        epoch_ns, offset_ns = trace.metadata.get("epoch_ns"), boot_offset_ns(trace)
        if offset_ns is None and (trace.metadata.get("clock") == "realtime" or all(is_same)):
            offset_ns = 0
        if epoch_ns is None or offset_ns is None:
            raise UsageError(f"{trace.name}: no wall clock recorded", "place the first I/Os at one time: --align start")
        epochs_ns.append(epoch_ns + (boot_offset_ns(traces[0]) or 0 if same else offset_ns))
        pairs = trace.metadata.get("clock_pairs")
        drift_ns += 0 if same or not pairs else abs(pairs[-1]["realtime_ns"] - pairs[-1]["monotonic_ns"] - offset_ns)
    begin_ns = min(epochs_ns)
    shifts_ns = [epoch_ns - begin_ns for epoch_ns in epochs_ns]
    if all(is_same):
        return shifts_ns, ["one clock: all traces are of one recording, or of one boot of one machine"], 0
    return shifts_ns, [f"wall clocks of several boots or machines: adjusted by {format_ns(drift_ns)} during the "
                       "recordings; their synchronization is not known"], None
