"""What there is to replay of a trace, and which blocks it needs written beforehand.

Known from its metadata, kept from an earlier replay, or found by one pass over it.
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from blkreel.traces.block_set import BlockSet, FirstTouch
from blkreel.traces.errors import TraceError, UsageError
from blkreel.traces.outline import (
    BLOCK_SIZES,
    COLUMNS,
    DeviceOutline,
    Outline,
    facts_of,
    outline_from,
    outline_in,
    select,
)
from blkreel.traces.reader import Trace
from blkreel.traces.schema import OPS

from . import survey_cache
from .idle import IdleCompressor, IdlePolicy
from .mapping import Mapping
from .placed import PlacedBlocks

__all__ = ["CHANGING", "COLUMNS", "Survey", "TraceSurvey", "choose_device", "device_ios", "read_first_on", "select",
           "source_bytes", "survey_trace"]

CHANGING = ("write", "discard", "write_zeroes")


@dataclass
class Survey:
    """What one device of a trace holds: the counts of its outline, in the source's bytes and times.

    first_submit_ns, last_submit_ns, removed_ns: of all devices that are replayed, on their one clock.
    rounded: I/Os that must grow to whole blocks of the target.
    """

    device: int
    outline: DeviceOutline
    first_submit_ns: int
    last_submit_ns: int
    removed_ns: int
    rounded: int

    bounded = True  # by its rows

    @property
    def ios(self) -> dict[str, int]:
        return self.outline.ios

    @property
    def bytes(self) -> dict[str, int]:
        return self.outline.bytes

    @property
    def unfinished(self) -> int:
        return self.outline.unfinished

    @property
    def left_out(self) -> int:
        return self.outline.left_out

    @property
    def longest_bytes(self) -> int:
        return self.outline.longest_bytes

    @property
    def touched(self) -> BlockSet:
        return self.outline.touched

    @property
    def read_first(self) -> BlockSet:
        return self.outline.read_first

    @property
    def total_ios(self) -> int:
        return self.outline.total_ios

    @property
    def duration_ns(self) -> int:
        """From the first submit to the last, after the idle policy."""
        return self.last_submit_ns - self.first_submit_ns - self.removed_ns

    def changes_the_drive(self) -> bool:
        return any(self.ios.get(name) for name in CHANGING)


@dataclass
class TraceSurvey:
    """Several devices of a trace on one clock. removed_ns: idle time of all of them together that is taken out."""

    first_submit_ns: int
    last_submit_ns: int
    removed_ns: int
    by_device: dict[int, Survey]

    @property
    def total_ios(self) -> int:
        return sum(one.total_ios for one in self.by_device.values())

    @property
    def duration_ns(self) -> int:
        return self.last_submit_ns - self.first_submit_ns - self.removed_ns


def device_ios(trace: Trace) -> dict[int, int]:
    """How many rows each device of a trace has, in the order of devices."""
    known = _known(trace)
    if known is not None:
        return {device: one.total_ios + one.left_out for device, one in sorted(known.items())}
    counts = trace.only_value("device")
    if counts is not None:
        return {counts: trace.rows} if trace.rows else {}
    counts = {}
    for batch in trace.batches(["device"]):
        for device, count in zip(*np.unique(batch["device"].to_numpy(), return_counts=True), strict=True):
            counts[int(device)] = counts.get(int(device), 0) + int(count)
    return dict(sorted(counts.items()))


def choose_device(trace: Trace, wanted: int | None) -> int:
    """The device of a trace to replay: the wanted one, or the only one with I/O.

    Raises TraceError for a trace without I/O, UsageError where a choice is needed or wrong.
    """
    counts = device_ios(trace)
    if not counts:
        raise TraceError(f"{trace.path} holds no I/O: there is nothing to replay",
                         "capture a workload that reaches its drive: blkreel capture --cold")
    names = trace.metadata.get("devices") or []
    listing = ", ".join(f"{one} ({_name(names, one)}, {count:,} I/Os)" for one, count in counts.items())
    if wanted is None and len(counts) > 1:
        raise UsageError(f"{trace.path} holds the I/O of {len(counts)} devices: {listing}",
                         f"choose one with --device {min(counts)}")
    if wanted is not None and wanted not in counts:
        raise UsageError(f"{trace.path} has no I/O of device {wanted}", f"it has: {listing}")
    return wanted if wanted is not None else min(counts)


def survey_trace(trace: Trace, devices: Collection[int], idle: IdlePolicy, block_bytes: dict[int, int] | None = None,
                 on_rows=lambda rows: None) -> TraceSurvey:
    """What the devices hold. block_bytes: the size of a block of the target of each, 512 where it is not given.

    The trace is passed over where neither its writer nor an earlier replay has left what is asked for. on_rows is told
    how many rows are done. Raises TraceError where a device has nothing to replay.
    """
    devices = sorted(set(devices))
    known = _known(trace)
    removed_ns = 0 if idle.cap_ns is None else _known_removed_ns(trace, devices, idle)
    if known is None or removed_ns is None:
        outline = None if known is not None else Outline()
        compressor = IdleCompressor(idle)
        _pass_over(trace, devices, outline, compressor, on_rows)
        removed_ns = compressor.removed_ns
        if outline is not None:
            known = outline.by_device
            _keep(trace, known)
        if idle.cap_ns is not None:
            survey_cache.store(trace, _idle_key(devices, idle), {"removed_ns": removed_ns}, {})
    for device in devices:
        _check_device(trace, known.get(device))
    first_ns = min(known[device].first_submit_ns for device in devices)
    last_ns = max(known[device].last_submit_ns for device in devices)
    found = TraceSurvey(first_ns, last_ns, removed_ns, {})
    for device in devices:
        size = (block_bytes or {}).get(device, BLOCK_SIZES[0])
        rounded = known[device].unaligned[BLOCK_SIZES.index(size)]
        found.by_device[device] = Survey(device, known[device], first_ns, last_ns, removed_ns, rounded)
    return found


def source_bytes(trace: Trace, device: int) -> int | None:
    """The size of the device that was recorded; None where the trace does not say."""
    devices = trace.metadata.get("devices") or []
    size = devices[device].get("size_bytes") if 0 <= device < len(devices) else None
    return size if isinstance(size, int) and size > 0 else None


def read_first_on(trace: Trace, found: Survey, mapping: Mapping, on_rows=lambda rows: None) -> PlacedBlocks:
    """The blocks of the target that a read touches first, once the I/Os are where the map puts them."""
    if mapping.folds:
        return PlacedBlocks(_folded_read_first(trace, found.device, mapping, on_rows))
    return PlacedBlocks(found.read_first.grown(mapping.block_bytes), mapping)


def _folded_read_first(trace, device, mapping, on_rows) -> BlockSet:
    """Where a map puts several blocks of the source on one. Takes a pass over the trace, the first time."""
    what = f"placed:{device}:{mapping.key()}"
    kept = survey_cache.load(trace, what)
    if kept is not None:
        try:
            return BlockSet.load(kept["read_first"])
        except (KeyError, ValueError, OSError):
            pass
    touch, seen = FirstTouch(), 0
    for batch in trace.batches(COLUMNS):
        io, _, _ = select(batch, device, 0)
        touch.add(*mapping.place(io["offset_bytes"], io["length_bytes"]), io["op"] == OPS["read"])
        seen += batch.num_rows
        on_rows(seen)
    survey_cache.store(trace, what, {}, {"read_first": touch.read_first})
    return touch.read_first


def _pass_over(trace, devices, outline, compressor, on_rows):
    seen = 0
    for batch in trace.batches(COLUMNS):
        columns = {name: batch[name].to_numpy() for name in COLUMNS}
        if outline is not None:
            outline.add(columns)
        if compressor.changes:
            io, _, _ = select(columns, devices, 0)
            compressor.move(io["submit_ns"], io["latency_ns"])
        seen += batch.num_rows
        on_rows(seen)


def _known(trace) -> dict[int, DeviceOutline] | None:
    """The outline of all devices, where somebody has left one. Kept with the trace: it is asked for more than once."""
    if "outline" not in trace.memory:
        trace.memory["outline"] = outline_in(trace.metadata, trace.row_groups_at) or _kept(trace)
    return trace.memory["outline"]


def _kept(trace):
    kept = survey_cache.load(trace, "outline")
    if kept is None:
        return None
    try:
        return {int(device): outline_from(one, _Sets(kept, device)) for device, one in kept.facts.items()}
    except (KeyError, TypeError, ValueError, OSError):
        return None


class _Sets:
    """The sets of one device among those of a cache's entry."""

    def __init__(self, entry, device):
        self._entry, self._device = entry, device

    def __getitem__(self, name):
        return self._entry[f"{self._device} {name}"]


def _keep(trace, by_device):
    trace.memory["outline"] = by_device
    facts, sets = {}, {}
    for device, one in by_device.items():
        facts[str(device)], found = facts_of(one)
        sets |= {f"{device} {name}": blocks for name, blocks in found.items()}
    survey_cache.store(trace, "outline", facts, sets)


def _known_removed_ns(trace, devices, idle) -> int | None:
    kept = survey_cache.load(trace, _idle_key(devices, idle))
    removed_ns = kept.facts.get("removed_ns") if kept else None
    return removed_ns if isinstance(removed_ns, int) else None


def _idle_key(devices, idle) -> str:
    return f"idle:{idle.cap_ns}:{','.join(map(str, devices))}"


def _check_device(trace, found):
    if found is None or not found.ios:
        raise TraceError(f"{trace.path} holds no I/O that moves data or flushes: there is nothing to replay",
                         "capture a workload that reaches its drive: blkreel capture --cold")
    unknown = set(found.ios) - set(OPS)
    if unknown:
        raise TraceError(f"{trace.path} holds operations that no version knows: {', '.join(sorted(unknown))}",
                         f"see what is wrong with it: blkreel check {trace.path}")


def _name(devices, index) -> str:
    if 0 <= index < len(devices):
        return str(devices[index].get("name") or devices[index].get("model") or "unnamed")
    return "unnamed"
