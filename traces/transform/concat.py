"""`blkreel concat`: traces one after the other."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from blkreel.common.errors import TraceError
from blkreel.common.units import counted
from blkreel.traces.format.check import check_order
from blkreel.traces.format.metadata_types import CUT_COLUMNS
from blkreel.traces.format.schema import FLAGS, TIME_LIMIT_NS, Metadata
from blkreel.traces.format.trace import Trace

from .carry import history
from .completions import Completions
from .output import Transformed, TransformOutput
from .rows import filled, trace_schema
from .tables import Tables


def concat(traces: Sequence[Trace], output: Path, *, pause_ns: int = 0, onto_one: bool = False, force: bool = False,
           public: bool = False) -> Transformed:
    """Write the rows of all traces, one trace after the other.

    Consecutive slices by time of one trace keep their times, and the dependencies between them are restored. Any other
    trace begins pause_ns after the last completion before it.
    """
    for trace in traces:
        check_order(trace)
    schema = trace_schema(*(trace.schema for trace in traces))
    tables = Tables(onto_one)
    renumberings = [tables.add(trace) for trace in traces]
    chains = _chains(traces)
    shifts_ns: list[int] = []
    bases: list[int] = []
    restored = 0
    remaining: list[list[int]] = []
    with (TransformOutput(output, schema, tables.names(), force=force, public=public) as out,
          closing(Completions(output.parent)) as completions):
        for number, (trace, renumbering) in enumerate(zip(traces, renumberings, strict=True)):
            base, row = out.rows, 0
            bases.append(base)
            links = _Links(trace, [traces[part] for part in chains[number]], [bases[part] for part in chains[number]])
            for batch in trace.batches([name for name in schema.names if name in trace.schema.names]):
                columns = filled({name: batch[name].to_numpy() for name in batch.schema.names}, schema)
                if not row:
                    shifts_ns.append(_shift_ns(traces, chains[number], shifts_ns, out, columns, pause_ns))
                waited_on = columns["waited_on"]
                columns = renumbering.apply(columns, shifts_ns[-1])
                columns["waited_on"] = np.where(waited_on >= 0, waited_on + base, -1)
                if links.parts_have_cuts(traces):
                    completions.add(columns["submit_ns"], columns["latency_ns"])
                restored += links.restore(columns, row, completions)
                out.write(columns)
                row += batch.num_rows
            if not row:
                shifts_ns.append(0)
            remaining += links.remaining(base)
        notes = _notes(chains, pause_ns, restored, len(remaining)) + tables.notes()
        options = {"pause_ns": pause_ns, "onto_one": onto_one}
        metadata = {**tables.metadata(shifts_ns), **history(traces, "concat", options, notes)}
        metadata |= _part_of(traces, chains, remaining, out.rows)
        return out.finish(metadata, notes, cut_dependencies=len(remaining), restored_dependencies=restored)


class _Links:
    """Dependencies of a slice on rows before it. chain: the slices of the same trace up to this one; bases: where each
    begins in the new trace."""

    def __init__(self, trace: Trace, chain: Sequence[Trace], bases: Sequence[int]):
        part: Any = trace.metadata.get("part_of") or {"cut": dict.fromkeys(CUT_COLUMNS, ())}
        self._cut = {name: np.array(part["cut"][name], np.int64) for name in CUT_COLUMNS}
        target = np.full(len(self._cut["row"]), -1, np.int64)
        for piece, base in zip(chain, bases, strict=True):
            source = piece.metadata.get("part_of")
            if source:
                inside = self._cut["waited_on"] - source["first_row"]
                target = np.where((inside >= 0) & (inside < min(source["rows"], piece.rows)), inside + base, target)
        # A part that was changed may name later rows.
        self._target = np.where(target < bases[-1] + self._cut["row"], target, -1)

    def parts_have_cuts(self, traces: Sequence[Trace]) -> bool:
        """Whether completion times are needed at all."""
        return any((trace.metadata.get("part_of") or {}).get("cut", {}).get("row") for trace in traces)

    def restore(self, columns: dict[str, np.ndarray], first_row: int, completions: Completions) -> int:
        """Put the dependencies of these rows, which begin at first_row of the slice, back. Returns their number."""
        rows = self._cut["row"] - first_row
        here = np.flatnonzero((rows >= 0) & (rows < len(columns["submit_ns"])) & (self._target >= 0))
        if not len(here):
            return 0
        at, parent = rows[here], self._target[here]
        for name in ("waited_on", "think_ns", "flags"):
            columns[name] = columns[name].copy()
        columns["waited_on"][at] = parent
        columns["think_ns"][at] = columns["submit_ns"][at] - completions.of_rows(parent)
        columns["flags"][at] |= np.where(self._cut["inherited"][here] != 0, FLAGS["inherited"], 0).astype(np.int32)
        return len(here)

    def remaining(self, base: int) -> list[list[int]]:
        """(row in the new trace, row of the source, inherited) of those whose row is in no part."""
        left = np.flatnonzero(self._target < 0)
        return [[base + int(self._cut["row"][i]), int(self._cut["waited_on"][i]), int(self._cut["inherited"][i])]
                for i in left]


def _chains(traces: Sequence[Trace]) -> list[list[int]]:
    """For each trace, the numbers of the slices before it that it continues, and its own."""
    chains: list[list[int]] = []
    for number, trace in enumerate(traces):
        part: Any = trace.metadata.get("part_of")
        before: Any = traces[number - 1].metadata.get("part_of") if number else None
        continues = (part and before and part["sha256"] == before["sha256"]
                     and part["first_row"] == before["first_row"] + before["rows"])
        chains.append([*(chains[-1] if continues else []), number])
    return chains


def _shift_ns(traces: Sequence[Trace], chain: list[int], shifts_ns: list[int], out: TransformOutput,
              columns: dict[str, np.ndarray], pause_ns: int) -> int:
    if len(chain) > 1:
        shift_ns = shifts_ns[-1] + _rebased_ns(*(traces[number].metadata for number in chain[-2:]))
        if abs(shift_ns) >= TIME_LIMIT_NS:
            path = traces[chain[-1]].path
            raise TraceError(f"{path} is damaged (metadata: it begins 73 years or more from the part before it)",
                             "slice the trace again")
        return shift_ns
    return out.last_ns + pause_ns - int(columns["submit_ns"][0]) if out.rows else 0


def _rebased_ns(before: Metadata, part: Metadata) -> int:
    """How much more the second of two slices of one trace subtracts from its times than the first."""
    rebased_ns = [metadata["part_of"].get("rebased_ns") for metadata in (before, part)]
    if None in rebased_ns:
        # Slices of earlier versions move their epoch only, if their source has one.
        rebased_ns = [metadata.get("epoch_ns") or 0 for metadata in (before, part)]
    return int(rebased_ns[1] - rebased_ns[0])


def _notes(chains: list[list[int]], pause_ns: int, restored: int, cut: int) -> list[str]:
    notes = []
    moved = sum(len(chain) == 1 for chain in chains[1:])
    if moved:
        notes.append(f"{moved} of {len(chains)} traces begin {pause_ns:,} ns after the last completion before them: "
                     "their own distance is not used")
    if restored:
        notes.append(f"{restored:,} dependencies between slices of one trace restored")
    if cut:
        notes.append(f"{counted(cut, 'I/O')} waited for an I/O that is in none of the slices")
    return notes


def _part_of(traces: Sequence[Trace], chains: list[list[int]], remaining: list[list[int]], rows: int) -> Metadata:
    """The key `part_of` if all traces are one range of rows of one trace, and not all of it."""
    first: Any = traces[0].metadata.get("part_of")
    if not first or len(chains[-1]) < len(traces) or rows == first["source_rows"]:
        return {}
    cut = dict(zip(CUT_COLUMNS, map(list, zip(*remaining, strict=True)), strict=True)) \
        if remaining else {name: [] for name in CUT_COLUMNS}
    return {"part_of": {**first, "rows": rows, "cut": cut}}
