"""`blkreel.write_trace`: a valid trace from rows that a program has in memory."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from blkreel.common.errors import UsageError
from blkreel.common.files.safe_files import caller_of_sudo
from blkreel.common.units import counted
from blkreel.traces.format.check import wrong_rows
from blkreel.traces.format.metadata_types import wrong_metadata
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import OPS, TRACE_SCHEMA, UNKNOWN, Metadata
from blkreel.traces.format.writer import TraceWriter
from blkreel.traces.spool.spool import PRIVATE_MODE

from .carry import WRITER, carried, history
from .rows import TRACE_FLAGS, Span, trace_schema, without_lost_dependencies

_RUN_COLUMNS = {"due_ns", "burst", "source_row", "idle_removed_ns"}  # of a run's records; a trace has none of them
_BATCH_ROWS = 500_000


def write_trace(path: str | Path, rows: Any, *, like: str | Path | None = None, metadata: Metadata | None = None,
                force: bool = False, public: bool = False) -> Path:
    """Write rows as a trace. See blkreel.write_trace."""
    columns, labels = _columns_of(rows)
    source = open_trace(str(like)) if like is not None else None
    described = {**({**carried(source.metadata), **history([source], "write_trace", {})} if source else
                    {"writer": WRITER, "source_format": "python"}), **_as_read(path, metadata or {})}
    columns = _complete(columns, labels)
    rows = len(columns["submit_ns"])
    schema = trace_schema(pa.schema([pa.field(name, pa.int64()) for name in columns]))
    problems = wrong_rows(columns, described, None, 0) if rows else iter(())
    problem = next(((text, wrong) for text, wrong in problems if wrong.any()), None)
    if problem:
        text, wrong = problem
        raise UsageError(f"{path}: {counted(int(wrong.sum()), 'row')}: {text} (first at row {int(np.argmax(wrong)):,})",
                         "docs/trace-format.md has the values that are valid")
    span = Span()
    span.add(columns)
    with TraceWriter(path, schema, force=force, owner=caller_of_sudo(), mode=None if public else PRIVATE_MODE) as out:
        for begin in range(0, rows, _BATCH_ROWS):
            out.write({name: values[begin:begin + _BATCH_ROWS] for name, values in columns.items()})
        return out.close({"duration_ns": span.duration_ns, **described})


def _as_read(path: str | Path, metadata: Metadata) -> Metadata:
    """The metadata as a reader of the file gets it, which must have no reason to call the file damaged."""
    try:
        metadata = json.loads(json.dumps(metadata, allow_nan=False))
        wrong = wrong_metadata(metadata)
    except (TypeError, ValueError) as error:
        wrong = f"no JSON: {error}"
    if wrong:
        raise UsageError(f"{path}: metadata: {wrong}", "docs/trace-format.md has the values that are valid")
    return {key: value for key, value in metadata.items() if key != "schema_version"}


def _columns_of(rows: Any) -> tuple[dict[str, Any], np.ndarray | None]:
    """The columns of rows of any kind, and the labels by which waited_on names rows; None: by their position."""
    labels = None
    if isinstance(rows, Mapping):
        columns = {name: np.asarray(values) for name, values in rows.items()}
    elif hasattr(rows, "index") and hasattr(rows, "columns"):  # a pandas frame: pandas need not be imported
        labels = rows.index.to_numpy()
        columns = {str(name): rows[name].to_numpy() for name in rows.columns}
    else:
        try:
            table = pa.table(rows)
        except (TypeError, ValueError, pa.ArrowException) as error:
            raise UsageError(f"rows are a {type(rows).__name__}, not a table",
                             "give a pandas frame, an Arrow table or stream, or {column: values}") from error
        columns = {name: table[name].to_numpy() for name in table.column_names}
    if len({values.shape for values in columns.values()}) > 1:
        raise UsageError("the columns have different lengths", "give each row a value in each column")
    return columns, labels


def _complete(columns: dict[str, Any], labels: np.ndarray | None) -> dict[str, np.ndarray]:
    """All columns with their types, sorted by submission, with dependencies as row numbers."""
    columns = {name: values for name, values in columns.items() if name not in _RUN_COLUMNS}
    missing = [name for name in TRACE_SCHEMA.names if name not in columns and name not in UNKNOWN]
    if missing:
        raise UsageError(f"the rows lack the column {missing[0]}", "a trace has at least "
                         + ", ".join(name for name in TRACE_SCHEMA.names if name not in UNKNOWN))
    schema = trace_schema(pa.schema([pa.field(name, pa.int64()) for name in columns]))
    if unknown := sorted(set(columns) - set(schema.names)):
        raise UsageError(f"a trace has no column {unknown[0]}", f"columns: {', '.join(schema.names)}; drop the others")
    if columns["op"].dtype.kind not in "iu":
        columns["op"] = _op_codes(columns["op"])
    count = len(columns["submit_ns"])
    typed = {field.name: _integers(field, columns[field.name]) if field.name in columns
             else np.full(count, UNKNOWN[field.name], str(field.type)) for field in schema}
    typed["flags"] = typed["flags"] & np.int32(TRACE_FLAGS)
    order = np.argsort(typed["submit_ns"], kind="stable")
    labels = np.arange(count) if labels is None else labels
    parent = _positions(typed["waited_on"], labels)
    complete_ns = typed["submit_ns"] + typed["latency_ns"]
    linked = parent >= 0
    think_ns = np.where(linked, typed["submit_ns"] - complete_ns[parent], 0)
    wrong = linked & ((typed["latency_ns"][parent] < 0) | (think_ns < 0))
    if "think_ns" not in columns and wrong.any():
        raise UsageError(f"{counted(int(wrong.sum()), 'row')}: the I/O of waited_on has no completion before submit_ns "
                         f"(first at row {int(np.argmax(wrong)):,})", "drop waited_on to write no dependencies")
    if "think_ns" in columns:
        wrong |= linked & (think_ns != typed["think_ns"])
    if wrong.any():
        raise UsageError(f"{counted(int(wrong.sum()), 'row')}: think_ns is not the time from the completion of "
                         f"waited_on to submit_ns (first at row {int(np.argmax(wrong)):,})",
                         "drop the column think_ns to compute it, or waited_on to write no dependencies")
    rank = np.empty(count, np.int64)
    rank[order] = np.arange(count)
    waited_on = np.where(linked, rank[parent], -1)
    typed |= without_lost_dependencies(waited_on, think_ns, typed["flags"])
    return {name: values[order] for name, values in typed.items()}


def _positions(waited_on: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The position of the row that each one waited for; −1 if it is not among the rows."""
    if not (waited_on >= 0).any():
        return np.full(len(waited_on), -1)
    if labels.dtype.kind not in "iuf":
        raise UsageError("the index of the rows is not row numbers, by which waited_on names rows",
                         "write the frame with the index that frame() gave it, or drop the column waited_on")
    order = np.argsort(labels, kind="stable")
    if (labels[order[1:]] == labels[order[:-1]]).any():
        raise UsageError("several rows have the same index, by which waited_on names rows",
                         "write the rows of one trace, or drop the column waited_on")
    at = np.minimum(np.searchsorted(labels, waited_on, sorter=order), len(labels) - 1)
    return np.where((waited_on >= 0) & (labels[order[at]] == waited_on), order[at], -1)


def _op_codes(names: np.ndarray) -> np.ndarray:
    codes = np.array([OPS.get(str(name), -1) for name in names], np.int8)
    if (codes < 0).any():
        raise UsageError(f"unknown op: {str(names[int(np.argmax(codes < 0))])!r}", f"operations: {', '.join(OPS)}")
    return codes


def _integers(field: pa.Field, values: np.ndarray) -> np.ndarray:
    kind = str(field.type)
    with suppress(TypeError, ValueError):
        with np.errstate(invalid="ignore"):
            typed = np.asarray(values).astype(kind)
        if values.dtype.kind in "iufb" and (typed == values).all():
            return typed
    raise UsageError(f"column {field.name} has values that are not {field.type}",
                     f"round them, and fill missing ones: {UNKNOWN.get(field.name, 'a value is required')}")


