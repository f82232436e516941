"""A first pass over a trace: what there is to replay, and which blocks it needs written beforehand."""

from dataclasses import dataclass, field

import numpy as np

from blkreel.traces.errors import TraceError, UsageError
from blkreel.traces.reader import Trace
from blkreel.traces.schema import FLAGS, OP_NAMES, OPS

from .extents import Extents
from .first_touch import FirstTouch
from .idle import IdleCompressor, IdlePolicy

COLUMNS = ["submit_ns", "latency_ns", "offset_bytes", "length_bytes", "op", "flags", "device"]
CHANGING = ("write", "discard", "write_zeroes")


@dataclass
class Survey:
    """What one device of a trace holds. Times are of the trace's clock, extents in the source's bytes.

    unfinished: I/Os without a completion. left_out: I/Os of nothing. rounded: those that must grow to whole
    blocks of the target.
    """

    device: int
    ios: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    first_submit_ns: int = 0
    last_submit_ns: int = 0
    removed_ns: int = 0
    unfinished: int = 0
    left_out: int = 0
    rounded: int = 0
    touched: Extents = field(default_factory=Extents.none)
    read_first: Extents = field(default_factory=Extents.none)

    @property
    def total_ios(self) -> int:
        return sum(self.ios.values())

    @property
    def duration_ns(self) -> int:
        """From the first submit to the last, after the idle policy."""
        return self.last_submit_ns - self.first_submit_ns - self.removed_ns

    def changes_the_drive(self) -> bool:
        return any(self.ios.get(name) for name in CHANGING)


def choose_device(trace: Trace, wanted: int | None) -> int:
    """The device of a trace to replay: the wanted one, or the only one with I/O.

    Raises TraceError for a trace without I/O, UsageError where a choice is needed or wrong.
    """
    counts: dict[int, int] = {}
    for batch in trace.batches(["device"]):
        for device, count in zip(*np.unique(batch["device"].to_numpy(), return_counts=True), strict=True):
            counts[int(device)] = counts.get(int(device), 0) + int(count)
    if not counts:
        raise TraceError(f"{trace.path} holds no I/O: there is nothing to replay",
                         "capture a workload that reaches its drive: blkreel capture --cold")
    names = trace.metadata.get("devices") or []
    listing = ", ".join(f"{one} ({_name(names, one)}, {count:,} I/Os)" for one, count in sorted(counts.items()))
    if wanted is None and len(counts) > 1:
        raise UsageError(f"{trace.path} holds the I/O of {len(counts)} devices: {listing}",
                         f"choose one with --device {min(counts)}")
    if wanted is not None and wanted not in counts:
        raise UsageError(f"{trace.path} has no I/O of device {wanted}", f"it has: {listing}")
    return wanted if wanted is not None else min(counts)


@dataclass
class TraceSurvey:
    """What several devices of a trace hold, on one clock: it idles while none of them has anything to do."""

    first_submit_ns: int = 0
    last_submit_ns: int = 0
    removed_ns: int = 0
    by_device: dict[int, Survey] = field(default_factory=dict)

    @property
    def total_ios(self) -> int:
        return sum(one.total_ios for one in self.by_device.values())

    @property
    def duration_ns(self) -> int:
        """From the first submit to the last, after the idle policy."""
        return self.last_submit_ns - self.first_submit_ns - self.removed_ns


def survey(trace: Trace, device: int, idle: IdlePolicy, block_bytes: int = 512, on_rows=lambda rows: None) -> Survey:
    """Pass over the trace once. on_rows is told how many rows are done."""
    return survey_trace(trace, [device], idle, {device: block_bytes}, on_rows).by_device[device]


def survey_trace(trace: Trace, devices: list[int], idle: IdlePolicy, block_bytes: dict[int, int],
                 on_rows=lambda rows: None) -> TraceSurvey:
    """The same for several devices in one pass. block_bytes: of the target of each."""
    whole, compressor = TraceSurvey(by_device={device: Survey(device) for device in devices}), IdleCompressor(idle)
    touch = {device: FirstTouch() for device in devices}
    seen = 0
    for batch in trace.batches(COLUMNS):
        seen += batch.num_rows
        io, _, left_out = select(batch, devices, 0)
        for device, count in left_out.items():
            whole.by_device[device].left_out += count
        on_rows(seen)
        if not len(io["op"]):
            continue
        if not whole.total_ios:
            whole.first_submit_ns = int(io["submit_ns"][0])
        whole.last_submit_ns = int(io["submit_ns"][-1])
        compressor.move(io["submit_ns"], io["latency_ns"])
        for device, found in whole.by_device.items():
            here = io["device"] == device
            _count({name: values[here] for name, values in io.items()}, found, touch[device], block_bytes[device])
    if not whole.total_ios:
        raise TraceError(f"{trace.path} holds no I/O that moves data or flushes: there is nothing to replay",
                         "capture a workload that reaches its drive: blkreel capture --cold")
    whole.removed_ns = compressor.removed_ns
    for device, found in whole.by_device.items():
        found.first_submit_ns, found.last_submit_ns = whole.first_submit_ns, whole.last_submit_ns
        found.removed_ns = whole.removed_ns
        found.touched, found.read_first = touch[device].touched, touch[device].read_first
    return whole


def _count(io, found, touch, block_bytes):
    found.unfinished += int((io["latency_ns"] < 0).sum())
    found.rounded += int(((io["offset_bytes"] | io["length_bytes"]) % block_bytes != 0).sum())
    for code in np.unique(io["op"]):
        name, here = OP_NAMES[int(code)], io["op"] == code
        found.ios[name] = found.ios.get(name, 0) + int(here.sum())
        found.bytes[name] = found.bytes.get(name, 0) + int(io["length_bytes"][here].sum())
    touch.add(io["offset_bytes"], io["offset_bytes"] + io["length_bytes"], io["op"] == OPS["read"])


def select(batch, devices: list[int], first_row: int) -> tuple[dict[str, np.ndarray], np.ndarray, dict[int, int]]:
    """The I/Os of some devices in a batch, their rows in the trace, and how many of each are left out as empty.

    A write of nothing that asks for a flush is a flush. Any other I/O of nothing has no counterpart on a
    drive. A flush has no place: whatever offset it carries is dropped.
    """
    io = {name: batch[name].to_numpy() for name in COLUMNS}
    mine = np.isin(io["device"], devices)
    empty = (io["length_bytes"] == 0) & (io["op"] != OPS["flush"])
    flush = empty & (io["op"] == OPS["write"]) & ((io["flags"] & FLAGS["preflush"]) != 0)
    kept = mine & (~empty | flush)
    row = first_row + np.flatnonzero(kept)
    left_of = io["device"]
    io = {name: values[kept] for name, values in io.items()}
    io["op"] = np.where(flush[kept], np.int8(OPS["flush"]), io["op"])
    is_flush = io["op"] == OPS["flush"]
    io["offset_bytes"] = np.where(is_flush, 0, io["offset_bytes"])
    io["length_bytes"] = np.where(is_flush, 0, io["length_bytes"])
    left_out = empty & ~flush
    return io, row, {device: int((left_out & (left_of == device)).sum()) for device in devices}


def _name(devices, index) -> str:
    if 0 <= index < len(devices):
        return str(devices[index].get("name") or devices[index].get("model") or "unnamed")
    return "unnamed"
