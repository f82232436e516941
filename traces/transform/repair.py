"""`blkreel check --repair`: a trace whose rows and metadata agree again, from one that another program changed."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from blkreel.common.errors import TraceError
from blkreel.common.files.safe_files import caller_of_sudo
from blkreel.traces.format.check import check
from blkreel.traces.format.integrity import disagreement
from blkreel.traces.format.trace import Trace
from blkreel.traces.format.writer import TraceWriter
from blkreel.traces.spool.reorder import in_submit_order
from blkreel.traces.spool.spool import PRIVATE_MODE

from .carry import carried, history, with_warnings
from .completions import Completions
from .rows import Span, trace_schema, without_lost_dependencies

_BATCH_ROWS = 131_072


@dataclass
class Repair:
    """What a repair changed. steps_back: submit times earlier than those of the row before. dependencies: of the input;
    renumbered: of these, those that now name another row; dropped: those whose I/O is not among the rows."""

    path: Path
    rows: int = 0
    steps_back: int = 0
    dependencies: int = 0
    renumbered: int = 0
    dropped: int = 0

    def lines(self) -> list[str]:
        """What changed, as text; empty if nothing did."""
        return [text for count, text in (
            (self.steps_back, f"{self.steps_back:,} submit times stepped back: rows sorted"),
            (self.renumbered, f"{self.renumbered:,} of {self.dependencies:,} dependencies renumbered"),
            (self.dropped, f"{self.dropped:,} of {self.dependencies:,} dependencies dropped: the I/O that they name is "
                           "missing or ambiguous"))
            if count]


def repair(trace: Trace, output: Path, *, force: bool = False, public: bool = False) -> Repair:
    """Write a trace of the same rows in order of submission, with dependencies that agree with the times.

    `think_ns` is the time from the completion of the I/O waited for. So a dependency is kept if that row completed at
    submit − think, renumbered if exactly one other earlier row did, and dropped otherwise.

    trace: opened with verify=False. Raises TraceError for a run, and for errors that no order or number can repair.
    """
    if trace.is_run:
        raise TraceError(f"{trace.path} holds the records of a run, whose counts and verdict describe all of its rows",
                         "copy it again from an intact copy, or replay the trace again")
    findings = check(trace)
    if findings.beyond_repair:
        raise TraceError(f"{trace.path} cannot be repaired: {'; '.join(findings.beyond_repair)}", "record it again")
    changed = disagreement(trace)
    schema = trace_schema(trace.schema)
    done = Repair(output)
    with (TraceWriter(output, schema, force=force, owner=caller_of_sudo(),
                      mode=None if public else PRIVATE_MODE) as writer,
          closing(Completions(output.parent)) as completions):
        span = Span()
        for table in in_submit_order(lambda: _batches(trace, schema, done), output.parent):
            columns = {name: table[name].to_numpy() for name in table.column_names}
            span.add(columns)
            writer.write(_relinked(columns, completions, done))
        done.rows = span.rows
        notes = [*([changed] if changed else []), *done.lines()]
        metadata = {**carried(trace.metadata), **history([trace], "check --repair", {}, notes),
                    "duration_ns": span.duration_ns}
        writer.close(with_warnings(metadata, [f"repaired: {note}" for note in notes]))
    return done


def _batches(trace: Trace, schema: pa.Schema, done: Repair) -> Iterator[pa.RecordBatch]:
    """The rows as they are in the file. Each pass counts the steps back anew."""
    done.steps_back, last_ns = 0, None
    for batch in trace.batches(schema.names, _BATCH_ROWS):
        submit_ns = batch["submit_ns"].to_numpy()
        if not len(submit_ns):
            continue
        before_ns = submit_ns[0] if last_ns is None else last_ns
        done.steps_back += int(np.count_nonzero(np.diff(submit_ns, prepend=before_ns) < 0))
        last_ns = submit_ns[-1]
        yield pa.RecordBatch.from_arrays([batch[name] for name in schema.names], schema=schema)


def _relinked(columns: dict[str, np.ndarray], completions: Completions, done: Repair) -> dict[str, np.ndarray]:
    """The rows with dependencies that agree with their times."""
    first_row = completions.rows
    completions.add(columns["submit_ns"], columns["latency_ns"])
    waited_on, think_ns, submit_ns = columns["waited_on"], columns["think_ns"], columns["submit_ns"]
    linked = np.flatnonzero(waited_on >= 0)
    at_ns = submit_ns[linked] - think_ns[linked]
    stays = (completions.of_rows(waited_on[linked]) == at_ns) & (at_ns >= 0)
    row = waited_on[linked].copy()
    row[~stays] = completions.only_row_at(at_ns[~stays])
    row[(row >= first_row + linked) | (think_ns[linked] < 0)] = -1
    done.dependencies += len(linked)
    done.renumbered += int((~stays & (row >= 0)).sum())
    done.dropped += int((row < 0).sum())
    result = np.full(len(waited_on), -1, np.int64)
    result[linked] = row
    return {**columns, **without_lost_dependencies(result, think_ns, columns["flags"])}
