"""Whether a trace is whole and sound: every page read, every invariant of docs/trace-format.md held to the rows."""

from dataclasses import dataclass, field

import numpy as np

from .reader import Trace
from .schema import OP_NAMES


@dataclass
class Findings:
    """errors: the file breaks the format. warnings: it is sound, but what it records is not complete."""

    rows: int = 0
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def check(trace: Trace) -> Findings:
    """Read all of a trace. Raises TraceError at a damaged page: nothing behind it can be trusted."""
    findings = Findings()
    problems: dict[str, _Problem] = {}
    last_submit_ns = None
    for batch in trace.batches():
        columns = {name: batch[name].to_numpy() for name in batch.schema.names}
        for text, wrong in _wrong_rows(columns, trace, last_submit_ns, findings.rows):
            if wrong.any():
                problem = problems.setdefault(text, _Problem(findings.rows + int(np.argmax(wrong))))
                problem.count += int(wrong.sum())
        last_submit_ns = columns["submit_ns"][-1]
        findings.rows += batch.num_rows
    findings.errors += [f"{p.count:,} rows: {text} (first at row {p.first_row:,})" for text, p in problems.items()]
    findings.warnings += _incompleteness(trace.metadata)
    return findings


@dataclass
class _Problem:
    first_row: int
    count: int = 0


def _wrong_rows(columns, trace, last_submit_ns, row):
    submit_ns = columns["submit_ns"]
    before = np.concatenate([[submit_ns[0] if last_submit_ns is None else last_submit_ns], submit_ns[:-1]])
    yield "submit_ns goes back", submit_ns < before
    yield "latency_ns below -1", columns["latency_ns"] < -1
    yield "queue_ns below -1", columns["queue_ns"] < -1
    yield "unknown op", ~np.isin(columns["op"], list(OP_NAMES))
    yield "negative offset or length", (columns["offset_bytes"] < 0) | (columns["length_bytes"] < 0)
    own = np.arange(row, row + len(submit_ns))
    yield "waited_on is not an earlier row", (columns["waited_on"] < -1) | (columns["waited_on"] >= own)
    devices = trace.metadata.get("devices")
    if devices:
        known = (columns["device"] >= 0) & (columns["device"] < len(devices))
        yield "device is not in the device table", ~known
        sizes = np.array([entry.get("size_bytes") or np.iinfo(np.int64).max for entry in devices])
        size = sizes[np.where(known, columns["device"], 0)]
        # A run of a remapped trace stays inside its own target, which is its device.
        yield "reaches past the end of its device", columns["offset_bytes"] + columns["length_bytes"] > size


def _incompleteness(metadata) -> list[str]:
    warnings = []
    lost = (metadata.get("lost") or {}).get("total", 0)
    if lost:
        warnings.append(f"{lost:,} events were lost while capturing")
    if metadata.get("unmatched"):
        warnings.append(f"{metadata['unmatched']:,} completions had no matching submission")
    if metadata.get("import_warnings"):
        warnings += metadata["import_warnings"]
    run = metadata.get("run") or {}
    if run.get("partial"):
        warnings.append(f"a partial run: {run['partial']}")
    return warnings
