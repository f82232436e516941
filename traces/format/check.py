"""Checks a trace: reads every page, and tests every invariant of docs/trace-format.md on the rows."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from blkreel.common.command_line import command_line
from blkreel.common.errors import TraceError, UsageError
from blkreel.common.units import counted
from blkreel.common.verdict import UNSEEN_LIMIT

from .integrity import KEY, disagreement
from .metadata_types import lacks, layers_of, missing_ios
from .reader import how_to_repair
from .schema import (
    FLAGS,
    HINT_FLAGS,
    LENGTH_LIMIT_BYTES,
    MOST_END_BYTES,
    OP_NAMES,
    OPS,
    TIME_LIMIT_NS,
    WAKE_COLUMNS,
    ZONE_MANAGEMENT_CODES,
    Metadata,
)
from .trace import Trace
from .trace_survey import survey_in

_OTHER_THINK = "think_ns is not submit_ns - the completion of waited_on"
# Errors that blkreel check --repair removes: by sorting rows, and by removing dependencies.
_REPAIRABLE = ("submit_ns goes back", "waited_on is not an earlier row", "think_ns without waited_on",
               "think_ns is negative", _OTHER_THINK)
_LOOK_BACK = 262_144  # rows: no replay uses a dependency on a row further back
# The least value of columns whose other values the rows do not limit; that of times is limited by TIME_LIMIT_NS too.
_LEAST = {"queue_ns": -1, "blocked_ns": -1, "slept_ns": -1, "runnable_ns": -1, "used_ns": -2, "used_by": -1,
          "used_think_ns": -1, "used_blocked_ns": -1, "used_slept_ns": -1, "used_runnable_ns": -1, "idle_removed_ns": 0,
          **dict.fromkeys(WAKE_COLUMNS, -1),
          "cpu": -1, "tid": -1, "inode": -1, "cgroup": -1, "burst": -1, "source_row": -1}


@dataclass
class Findings:
    """errors: the file violates the format. beyond_repair: those of them that blkreel check --repair cannot remove.
    warnings: it is valid, but its content is incomplete."""

    rows: int = 0
    errors: list[str] = field(default_factory=list)
    beyond_repair: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def refuse_layers(trace: Trace) -> None:
    """Raises TraceError for a trace of a volume and of the drives below it: a metric would count an I/O twice."""
    if layers := layers_of(trace.metadata):
        option = " ".join(f"--device {number}" for number in layers[0])
        raise TraceError(f"{trace.name} has the I/Os of a volume and of the drives below it, and each I/O twice",
                         f"extract one layer: {command_line('slice', trace.path, '-o', 'layer.parquet')} {option}")


def check(trace: Trace) -> Findings:
    """Read all of a trace, opened with verify=False. Raises TraceError at a damaged page."""
    findings = Findings()
    if changed := disagreement(trace):
        findings.errors.append(f"changed after it was written: {changed}")
    problems: dict[str, _Problem] = {}
    last_submit_ns: int | None = None
    unseen = 0
    complete_ns = np.empty(0, np.int64)  # of the latest rows; -1: unknown
    for batch in trace.batches():
        columns = {name: batch[name].to_numpy() for name in batch.schema.names}
        latency_ns = columns["latency_ns"]
        unseen += int((latency_ns < 0).sum())
        complete_ns = np.concatenate([complete_ns[-_LOOK_BACK:],
                                      np.where(latency_ns < 0, -1, columns["submit_ns"] + latency_ns)])
        for text, wrong in (*wrong_rows(columns, trace.metadata, last_submit_ns, findings.rows),
                            (_OTHER_THINK, _other_think(columns, complete_ns, findings.rows))):
            if wrong.any():
                problem = problems.setdefault(text, _Problem(findings.rows + int(np.argmax(wrong))))
                problem.count += int(wrong.sum())
        last_submit_ns = columns["submit_ns"][-1]
        findings.rows += batch.num_rows
    for text, problem in problems.items():
        error = f"{counted(problem.count, 'row')}: {text} (first at row {problem.first_row:,})"
        findings.errors.append(error)
        if text not in _REPAIRABLE:
            findings.beyond_repair.append(error)
    findings.warnings += _incompleteness(trace.metadata, unseen, findings.rows)
    return findings


@dataclass
class _Problem:
    first_row: int
    count: int = 0


def wrong_rows(columns: dict[str, np.ndarray], metadata: Metadata, last_submit_ns: int | None,
               row: int) -> Iterator[tuple[str, np.ndarray]]:
    """Each invariant, and which rows violate it. row: the number of the first row."""
    submit_ns = columns["submit_ns"]
    before = np.concatenate([[submit_ns[0] if last_submit_ns is None else last_submit_ns], submit_ns[:-1]])
    yield "submit_ns goes back", submit_ns < before
    latency_ns, offset_bytes, length_bytes = (columns[name] for name in ("latency_ns", "offset_bytes", "length_bytes"))
    yield "submit_ns is negative", submit_ns < 0
    yield "latency_ns below -1", latency_ns < -1
    # Compared without a sum, which would wrap.
    yield "completion at 2^61 ns or later", latency_ns.clip(0) >= TIME_LIMIT_NS - submit_ns.clip(0)
    for name, least in _LEAST.items():
        if name in columns:
            yield f"{name} below {least}", columns[name] < least
            if name.endswith("_ns"):
                yield f"{name} of 2^61 or more", columns[name] >= TIME_LIMIT_NS
    yield "unknown op", ~np.isin(columns["op"], list(OP_NAMES))
    yield "unknown flags", (columns["flags"] & ~_known_flags(metadata)) != 0
    hints = columns["flags"] & HINT_FLAGS
    yield "more than one write hint", (hints & (hints - 1)) != 0
    yield "status is positive: it must be 0 or -errno", columns["status"] > 0
    yield "negative offset or length", (offset_bytes < 0) | (length_bytes < 0)
    is_management = np.isin(columns["op"], ZONE_MANAGEMENT_CODES)
    may_be_empty = is_management | (columns["op"] == OPS["flush"]) | (
        (columns["op"] == OPS["write"]) & (columns["flags"] & FLAGS["preflush"] != 0))
    yield "length_bytes of 0 and no flush", (length_bytes == 0) & ~may_be_empty
    yield "length_bytes of zone management above 0", is_management & (length_bytes > 0)
    yield "offset_bytes + length_bytes above 2^62", offset_bytes > MOST_END_BYTES - length_bytes.clip(0)
    yield "length_bytes of 2^50 or more", length_bytes >= LENGTH_LIMIT_BYTES
    rows = np.arange(row, row + len(submit_ns))
    yield "waited_on is not an earlier row", (columns["waited_on"] < -1) | (columns["waited_on"] >= rows)
    unrelated = (columns["waited_on"] < 0) & (columns["think_ns"] != 0)
    yield "think_ns without waited_on", unrelated
    yield "think_ns is negative", (columns["think_ns"] < 0) & ~unrelated
    yield "think_ns of 2^61 or more", columns["think_ns"] >= TIME_LIMIT_NS
    devices = metadata.get("devices")
    # Without a table the devices have numbers only; an empty one is that of a trace of one device.
    in_table = columns["device"] >= 0
    if devices is not None:
        in_table &= columns["device"] < max(1, len(devices))
    yield "device is not in the device table", ~in_table
    if devices:
        sizes = np.array([entry.get("size_bytes") or np.iinfo(np.int64).max for entry in devices])
        size = sizes[np.where(in_table, columns["device"], 0)]
        # A run of a remapped trace stays inside its own target, which is its device.
        yield "reaches past the end of its device", length_bytes > size - offset_bytes.clip(0)


def _other_think(columns: dict[str, np.ndarray], complete_ns: np.ndarray, row: int) -> np.ndarray:
    """Rows whose think time disagrees with the completion that they waited for. complete_ns ends with their own."""
    waited_on, think_ns = columns["waited_on"], columns["think_ns"]
    at = waited_on - (row + len(waited_on) - len(complete_ns))
    known = ((at >= 0) & (waited_on < np.arange(row, row + len(waited_on)))
             & (think_ns >= 0) & (think_ns < TIME_LIMIT_NS))
    parent_ns = complete_ns[np.where(known, at, 0)]
    wrong: np.ndarray = known & ((parent_ns < 0) | (think_ns != columns["submit_ns"] - parent_ns))
    return wrong


def _known_flags(metadata: Metadata) -> int:
    """The bits of the format, and those that the trace names itself."""
    named = metadata.get("flag_names") or {}
    bits = sum(FLAGS.values())
    for bit in named:
        bits |= int(bit) & np.iinfo(np.int32).max
    return bits


def _incompleteness(metadata: Metadata, unseen: int, rows: int) -> list[str]:
    """What the verdict of a report holds against the recording too. unseen: rows without a completion."""
    warnings = []
    lost = (metadata.get("lost") or {"total": 0})["total"]
    if lost is None:
        warnings.append("the number of lost events is unknown: the source does not count them")
    elif lost:
        warnings.append(f"{counted(lost, 'event')} lost while capturing")
    warnings += missing_ios(metadata)
    if unseen > UNSEEN_LIMIT * rows and not (metadata.get("ledger") or {}).get("reused"):  # which has a warning
        source = " (its source records none)" if lacks(metadata, "latency") else ""
        warnings.append(f"{unseen:,} of {counted(rows, 'I/O')} without a completion{source}")
    if metadata.get("import_warnings"):
        warnings += metadata["import_warnings"]
    run = metadata.get("run") or {}
    if run.get("partial"):
        warnings.append(f"a partial run: {run['partial']}")
    return list(dict.fromkeys(warnings))  # a capture warns of what its ledger lacks, too


def check_order(trace: Trace) -> None:
    """Raises UsageError if submit times step back. Reads the column submit_ns, unless blkreel wrote the file.

    The writer refuses such rows; its checksums, which open_trace() has compared, or its survey, which has the offsets
    of the row groups, show that the rows are those that it wrote.
    """
    if KEY in trace.metadata or survey_in(trace.metadata, trace.row_groups_at) is not None:
        return
    last_ns, row, first_row, steps = np.iinfo(np.int64).min, 0, None, 0
    for batch in trace.batches(["submit_ns"]):
        submit_ns = batch["submit_ns"].to_numpy()
        if not len(submit_ns):
            continue
        back = np.flatnonzero(submit_ns < np.concatenate([[last_ns], submit_ns[:-1]]))
        if len(back) and first_row is None:
            first_row = row + int(back[0])
        steps += len(back)
        last_ns, row = int(submit_ns[-1]), row + len(submit_ns)
    if first_row is not None:
        raise UsageError(f"{trace.name}: submit times step back {steps:,} times, first at row {first_row:,}",
                         how_to_repair(trace))
