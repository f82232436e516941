"""The metadata of a trace that is made from another one: what still holds, and how it was made."""

from collections.abc import Iterable, Sequence
from typing import Any

from blkreel import __version__
from blkreel.traces.format.exposure import KEY as EXPOSURE
from blkreel.traces.format.integrity import KEY as INTEGRITY
from blkreel.traces.format.metadata_types import computed_at_least, of_recording
from blkreel.traces.format.schema import Metadata
from blkreel.traces.format.trace import Trace

WRITER = f"blkreel {__version__}"
# Of the writer, or of one whole recording: counts that other rows do not have. Of the ledger stays what a replay asks
# for: it is unknown which rows the missing I/Os were between, and of which the lost uses were.
_NOT_CARRIED = {INTEGRITY, EXPOSURE, "schema_version", "op_names", "flag_names", "survey", "boundary", "ledger",
                "diskstats", "in_flight_at_start", "in_flight_at_end", "ring", "helper_cpu_ns",
                "duration_ns", "run", "history", "part_of", "certificate"}


def carried(metadata: Metadata) -> Metadata:
    """The keys that hold for any rows of the trace."""
    metadata = of_recording(metadata)
    return {**{key: value for key, value in metadata.items() if key not in _NOT_CARRIED},
            **shortfall([metadata])}


def shortfall(recordings: Iterable[Metadata]) -> Metadata:
    """The key `ledger` with what recordings are known to lack, if there is anything: of their metadata."""
    recordings = [of_recording(metadata) for metadata in recordings]
    ledgers = [metadata.get("ledger") or {} for metadata in recordings]
    least_ns, within_ns = max((computed_at_least(metadata) or (0, 0) for metadata in recordings), default=(0, 0))
    ledger = {"missing": list(dict.fromkeys(text for of in ledgers for text in of.get("missing") or [])),
              **{name: sum(of.get(name) or 0 for of in ledgers)
                 for name in ("commands_unseen", "uses_lost", "uses_mapped")},
              "least_computed_ns": least_ns, "computed_within_ns": least_ns and within_ns}
    return {"ledger": {key: value for key, value in ledger.items() if value}} if any(ledger.values()) else {}


def without_computing(metadata: Metadata) -> Metadata:
    """The metadata of a trace of which no I/O is of the workload, for shortfall()."""
    ledger = metadata.get("ledger") or {}
    return {**metadata, "command": None, "filters": None,
            "ledger": {key: value for key, value in ledger.items() if key != "least_computed_ns"}}


def history(sources: Sequence[Trace], command: str, options: Metadata, notes: Sequence[str] = ()) -> Metadata:
    """The key `history`: the steps of the first source that has any, and this one.

    options: those that were given. notes: what was lost or assumed, as text.
    """
    steps: list[Any] = next((list(trace.metadata["history"]) for trace in sources if trace.metadata.get("history")), [])
    return {"history": [*steps, {
        "command": command, "writer": WRITER, "options": {key: value for key, value in options.items() if value},
        "sources": [{"name": trace.path.name, "rows": trace.rows, "sha256": trace.footer.identity}
                    for trace in sources],
        "notes": list(notes)}]}


def lost_per_cpu(intervals: Sequence[Metadata]) -> dict[str, int]:
    """The lost events of intervals that state their processor."""
    per_cpu: dict[str, int] = {}
    for interval in intervals:
        if "cpu" in interval:
            per_cpu[str(interval["cpu"])] = per_cpu.get(str(interval["cpu"]), 0) + interval["count"]
    return per_cpu


def with_warnings(metadata: Metadata, warnings: Sequence[str]) -> Metadata:
    """The metadata with further `import_warnings`, which blkreel check shows."""
    before = metadata.get("import_warnings") or []
    return {**metadata, "import_warnings": [*before, *warnings]} if before or warnings else metadata

