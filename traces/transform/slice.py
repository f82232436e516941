"""`blkreel slice`: some of the rows of a trace."""

from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from blkreel.common.errors import UsageError, did_you_mean
from blkreel.common.units import counted
from blkreel.traces.format.check import check_order
from blkreel.traces.format.metadata_types import storage_layer
from blkreel.traces.format.schema import FLAGS, OPS, ZONE_MANAGEMENT_CODES, Metadata
from blkreel.traces.format.trace import Trace

from .carry import carried, history, lost_per_cpu
from .output import Transformed, TransformOutput
from .rows import TRACE_FLAGS, RowNumbers, trace_schema, without_lost_dependencies

# Dependencies that reach out of the slice are kept in its metadata up to this number, so that concat restores them.
_MOST_CUT = 50_000
_OF_ALL = "of the whole recording: "  # which a warning counts


@dataclass
class Selection:
    """Which rows to take: those that match each criterion, and of a criterion any of its values.

    from_ns, to_ns: submission in [from, to), on the clock of the trace, whose recording began at 0. processes: names of
    the process or the thread. offsets_bytes: I/Os that touch [begin, end). own: workload I/O.
    """

    from_ns: int | None = None
    to_ns: int | None = None
    processes: tuple[str, ...] = ()
    tids: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()
    ops: tuple[str, ...] = ()
    offsets_bytes: tuple[int, int] | None = None
    own: bool = False

    def options(self) -> Metadata:
        """The criteria that were given."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()
                if value not in (None, (), False)}

    @property
    def by_time_only(self) -> bool:
        return set(self.options()) <= {"from_ns", "to_ns"}


@dataclass
class _Cut:
    """Dependencies on rows outside of the slice. row: in the slice; waited_on: in the source."""

    count: int = 0
    row: list[int] = field(default_factory=list)
    waited_on: list[int] = field(default_factory=list)
    inherited: list[int] = field(default_factory=list)

    def add(self, row: np.ndarray, waited_on: np.ndarray, flags: np.ndarray) -> None:
        self.count += len(row)
        if self.count <= _MOST_CUT:
            self.row += row.tolist()
            self.waited_on += waited_on.tolist()
            self.inherited += ((flags & FLAGS["inherited"]) != 0).astype(int).tolist()

    def metadata(self) -> Metadata:
        return {"row": self.row, "waited_on": self.waited_on, "inherited": self.inherited}


def slice_trace(trace: Trace, output: Path, selection: Selection, *, rebase: bool = False, force: bool = False,
                public: bool = False) -> Transformed:
    """Write the selected rows. A dependency on a row that is not selected becomes none: that I/O is issued at its time.

    rebase: the first row gets time 0. Raises UsageError for a name, thread or device that the trace does not have, and
    if no row is selected.
    """
    check_order(trace)
    tids = _tids(trace, selection)
    devices = _devices(trace, selection.devices)
    zone_bytes = np.array([device.get("zone_bytes") or 1 for device in trace.metadata.get("devices") or [{}]])
    groups, first_row = _groups(trace, selection)
    schema = trace_schema(trace.schema)
    cut, first_selected, shift_ns = _Cut(), -1, 0
    with (TransformOutput(output, schema, trace.metadata, force=force, public=public) as out,
          closing(RowNumbers(output.parent, trace.rows)) as numbers):
        for batch in trace.batches(schema.names, groups=groups):
            columns = {name: batch[name].to_numpy() for name in schema.names}
            selected = _selected(columns, selection, tids, zone_bytes)
            count = int(selected.sum())
            numbers.put(first_row, np.where(selected, out.rows + np.cumsum(selected) - 1, -1))
            if count and first_selected < 0:
                first_selected = first_row + int(np.argmax(selected))
                shift_ns = int(columns["submit_ns"][selected][0]) if rebase else 0
            first_row += len(selected)
            columns = {name: values[selected] for name, values in columns.items()}
            waited_on = numbers.of(columns["waited_on"])
            lost = np.flatnonzero((columns["waited_on"] >= 0) & (waited_on < 0))
            cut.add(out.rows + lost, columns["waited_on"][lost], columns["flags"][lost])
            columns |= without_lost_dependencies(waited_on, columns["think_ns"], columns["flags"] & TRACE_FLAGS)
            columns["submit_ns"] = columns["submit_ns"] - shift_ns
            columns["device"] = devices[columns["device"]] if len(devices) else columns["device"]
            out.write(columns)
        if not out.rows:
            raise UsageError(f"{trace.name}: no I/O matches", f"see what the trace has: blkreel info {trace.name}")
        notes = [f"{cut.count:,} of {counted(out.rows, 'I/O')} waited for an I/O outside of the slice: a dependent "
                 "replay issues them at their own time"] if cut.count else []
        options = {**selection.options(), "rebase": rebase}
        metadata = {**_metadata(trace, selection, shift_ns), **history([trace], "slice", options, notes)}
        if selection.by_time_only and cut.count <= _MOST_CUT:
            metadata["part_of"] = {"sha256": trace.footer.identity, "source_rows": trace.rows,
                                   "first_row": first_selected, "rows": out.rows, "rebased_ns": shift_ns,
                                   "cut": cut.metadata()}
        return out.finish(metadata, notes, cut_dependencies=cut.count)


def _selected(columns: dict[str, np.ndarray], selection: Selection, tids: set[int] | None,
              zone_bytes: np.ndarray) -> np.ndarray:
    """zone_bytes: of the zones of each device."""
    submit_ns, offset_bytes = columns["submit_ns"], columns["offset_bytes"]
    selected = np.ones(len(submit_ns), bool)
    if selection.from_ns is not None:
        selected &= submit_ns >= selection.from_ns
    if selection.to_ns is not None:
        selected &= submit_ns < selection.to_ns
    if tids is not None:
        selected &= np.isin(columns["tid"], list(tids))
    if selection.devices:
        selected &= np.isin(columns["device"], selection.devices)
    if selection.ops:
        selected &= np.isin(columns["op"], [OPS[name] for name in selection.ops])
    if selection.own:
        selected &= (columns["flags"] & FLAGS["own"]) != 0
    if selection.offsets_bytes:
        begin, end = selection.offsets_bytes
        # An operation on a zone has no length, and touches all of it.
        length_bytes = np.where(np.isin(columns["op"], ZONE_MANAGEMENT_CODES),
                                zone_bytes.take(columns["device"], mode="clip"), columns["length_bytes"])
        touches = (offset_bytes < end) & (offset_bytes + length_bytes > begin)
        selected &= touches | (columns["op"] == OPS["zone_reset_all"])
    return selected


def _tids(trace: Trace, selection: Selection) -> set[int] | None:
    """The selected threads; None for all."""
    if not selection.processes and not selection.tids:
        return None
    names = {int(tid): {thread.get("comm"), thread.get("process")} for tid, thread in trace.threads.items()}
    all_names = {name for thread_names in names.values() for name in thread_names if name}
    for process in selection.processes:
        if process not in all_names:
            raise UsageError(f"{trace.name} has no process or thread named {process!r}",
                             did_you_mean(process, sorted(all_names), f"list them: blkreel info {trace.name}"))
    named = {tid for tid, thread_names in names.items() if thread_names & set(selection.processes)}
    if not selection.processes:
        return set(selection.tids)
    return named & set(selection.tids) if selection.tids else named


def _devices(trace: Trace, selected: tuple[int, ...]) -> np.ndarray:
    """The new number of each device; empty if they stay. Only selected ones stay in the device table."""
    table = trace.metadata.get("devices") or []
    if not selected or not table:
        return np.empty(0, np.int16)
    for number in selected:
        if number not in range(len(table)):
            raise UsageError(f"{trace.name} has no device {number}", f"it has devices 0 to {len(table) - 1}: "
                             f"blkreel info {trace.name}")
    numbers = np.zeros(len(table), np.int16)
    numbers[sorted(set(selected))] = np.arange(len(set(selected)))
    return numbers


def _groups(trace: Trace, selection: Selection) -> tuple[range, int]:
    """The row groups that may have rows of the time range, and the number of the first row in them."""
    begin, end = 0, len(trace.group_rows)
    bounds = [trace.bounds("submit_ns", group) for group in range(end)]
    while begin < end and selection.from_ns is not None and (bound := bounds[begin]) and bound[1] < selection.from_ns:
        begin += 1
    while end > begin and selection.to_ns is not None and (bound := bounds[end - 1]) and bound[0] >= selection.to_ns:
        end -= 1
    return range(begin, end), sum(trace.group_rows[:begin])


def _metadata(trace: Trace, selection: Selection, shift_ns: int) -> Metadata:
    """What holds of the slice; TransformOutput removes the names of threads and files that it does not have."""
    metadata = carried(trace.metadata)
    if selection.devices and metadata.get("devices"):
        devices = metadata["devices"] = [metadata["devices"][number] for number in sorted(set(selection.devices))]
        if "storage_layer" in metadata:
            metadata["storage_layer"] = storage_layer(devices, metadata.get("volumes") or [])
            layers = {device["layer"] for device in devices}
            metadata["capture_layer"] = layers.pop() if len(layers) == 1 else "mixed"
    if warnings := metadata.get("import_warnings"):
        metadata["import_warnings"] = [_OF_ALL + text.removeprefix(_OF_ALL) for text in warnings]
    metadata["epoch_ns"] = (metadata.get("epoch_ns") or 0) + shift_ns
    lost: Any = metadata.get("lost")
    if lost and lost.get("total"):
        metadata["lost"] = _lost(lost, selection, shift_ns)
    return metadata


def _lost(lost: Metadata, selection: Selection, shift_ns: int) -> Metadata:
    """The lost events of the time range; all of them if their times are not known."""
    recorded: list[Metadata] = lost.get("intervals") or []
    intervals = [{**interval, "first_ns": interval["first_ns"] - shift_ns, "last_ns": interval["last_ns"] - shift_ns}
                 for interval in recorded
                 if (selection.from_ns is None or interval["last_ns"] >= selection.from_ns)
                 and (selection.to_ns is None or interval["first_ns"] < selection.to_ns)]
    if sum(interval["count"] for interval in recorded) != lost["total"]:
        return {**lost, "intervals": intervals} if "intervals" in lost else lost
    return {**lost, "total": sum(interval["count"] for interval in intervals), "per_cpu": lost_per_cpu(intervals),
            "intervals": intervals}
