"""Contents of a trace that a plan needs: counts, blocks it touches, and blocks to be written beforehand.

They come from the trace's metadata, from the cache of an earlier replay, or from one pass over the trace.
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from blkreel.common.command_line import command_line, running_command
from blkreel.common.errors import TraceError, UsageError
from blkreel.traces.blocksets.block_set import BlockSet, FirstTouch, max_memory_bytes
from blkreel.traces.format.names import devices_listed
from blkreel.traces.format.schema import OPS, READING_CODES, WRITES, ZONE_MANAGEMENT
from blkreel.traces.format.trace import Trace
from blkreel.traces.format.trace_survey import (
    BLOCK_SIZES,
    COLUMNS,
    DeviceSurvey,
    SurveyScan,
    facts_of,
    select,
    survey_from,
    survey_in,
)

from . import survey_cache
from .extents import MappedBlocks
from .mapping import Mapping
from .pace import IdleCompressor, IdlePolicy

CHANGING = (*WRITES, "discard", "write_zeroes", *ZONE_MANAGEMENT)
OnRows = Callable[[int], None]  # progress of a pass: rows read so far


@dataclass
class Survey(DeviceSurvey):
    """What a run does to one drive, in the source's bytes and times: a device of a trace, or generated streams.

    first_submit_ns, last_submit_ns, removed_ns: of all replayed devices, on their common clock.
    rounded: I/Os that must grow to whole blocks of the target. generated_ios: I/Os of generated streams, whose
    operations are not counted apart. bounded: False if the streams are endless; then `bytes` is only 0 or not.
    """

    device: int = 0
    removed_ns: int = 0
    rounded: int = 0
    generated_ios: int = 0
    bounded: bool = True

    @property
    def total_ios(self) -> int:
        return sum(self.ios.values()) + self.generated_ios

    def changes_drive(self) -> bool:
        return any(self.ios.get(name) or self.bytes.get(name) for name in CHANGING)


@dataclass
class TraceSurvey:
    """Several devices of a trace on one clock. removed_ns: idle time that the idle policy removes."""

    first_submit_ns: int
    last_submit_ns: int
    removed_ns: int
    by_device: dict[int, Survey]

    @property
    def total_ios(self) -> int:
        return sum(survey.total_ios for survey in self.by_device.values())

    @property
    def duration_ns(self) -> int:
        """From the first submit to the last, after the idle policy."""
        return self.last_submit_ns - self.first_submit_ns - self.removed_ns


def device_ios(trace: Trace) -> dict[int, int]:
    """Number of rows by device, in the order of devices."""
    surveys = _stored(trace)
    if surveys is not None:
        return {device: survey.total_ios + survey.left_out for device, survey in sorted(surveys.items())}
    only = trace.only_device()
    if only is not None:
        return {only: trace.rows} if trace.rows else {}
    counts: dict[int, int] = {}
    for batch in trace.batches(["device"]):
        for device, count in zip(*np.unique(batch["device"].to_numpy(), return_counts=True), strict=True):
            counts[int(device)] = counts.get(int(device), 0) + int(count)
    return dict(sorted(counts.items()))


def choose_device(trace: Trace, number: int | None, option: str = "--device ") -> int:
    """The device of a trace to replay: that number, or the only device with I/O. option: how the user gives a number.

    Raises TraceError for a trace without I/O, UsageError if a number is needed or the device has no I/O.
    """
    counts = device_ios(trace)
    if not counts:
        raise _nothing_to_replay(trace, "holds no I/O")
    listing = devices_listed(trace, counts)
    if number is None and len(counts) > 1:
        extract = command_line("slice", trace.path, "--device", min(counts), "-o", "one.parquet")
        raise UsageError(f"{trace.name} holds the I/O of {len(counts):,} devices: {listing}",
                         f"extract one: {extract}" if running_command() == "test" else
                         f"choose one with {option}{min(counts)}")
    if number is not None and number not in counts:
        raise UsageError(f"{trace.name} has no I/O of device {number}", f"it has: {listing}")
    return number if number is not None else min(counts)


def survey_trace(trace: Trace, devices: Collection[int], idle: IdlePolicy, block_bytes: dict[int, int] | None = None,
                 on_rows: OnRows = lambda rows: None, *, reads_only: bool = False) -> TraceSurvey:
    """The survey of some devices. block_bytes: block size of the target of each device, default 512.

    reads_only: counts and blocks to be written beforehand are those of the reads. Times, idle time and touched blocks
    remain those of all I/Os, so that a replay without the writes has the same times and offsets.
    Reads the trace if neither its writer nor an earlier replay stored the survey. Raises TraceError for a device
    without I/O, UsageError for one without reads if only they are replayed.
    """
    devices = sorted(set(devices))
    surveys = _stored(trace)
    removed_ns = 0 if idle.cap_ns is None else _stored_removed_ns(trace, devices, idle)
    if surveys is None or removed_ns is None:
        scan = None if surveys is not None else SurveyScan(max_memory_bytes=max_memory_bytes(trace.footer.size_bytes))
        removed_ns = _read(trace, devices, scan, idle, on_rows)
        if scan is not None:
            trace.cache["survey"] = surveys = scan.by_device
            _store(trace, "survey", surveys)
        if idle.cap_ns is not None:
            survey_cache.store(trace, _idle_key(devices, idle), {"removed_ns": removed_ns}, {})
    assert surveys is not None
    if any(device not in surveys or not surveys[device].ios for device in devices):
        raise _nothing_to_replay(trace, "holds no I/O that moves data or flushes")
    first_ns = min(surveys[device].first_submit_ns for device in devices)
    last_ns = max(surveys[device].last_submit_ns for device in devices)
    survey = TraceSurvey(first_ns, last_ns, removed_ns, {})
    if reads_only:
        surveys = _of_reads(trace, devices, surveys, on_rows)
    for device in devices:
        size = (block_bytes or {}).get(device, BLOCK_SIZES[0])
        rounded = surveys[device].unaligned[BLOCK_SIZES.index(size)]
        survey.by_device[device] = Survey(**{**vars(surveys[device]), "first_submit_ns": first_ns,
                                             "last_submit_ns": last_ns}, device=device, removed_ns=removed_ns,
                                          rounded=rounded)
    return survey


def source_bytes(trace: Trace, device: int) -> int | None:
    """The size of the traced device; None if the trace has none."""
    size = traced_device(trace, device).get("size_bytes")
    return size if isinstance(size, int) and size > 0 else None


def _of_reads(trace: Trace, devices: list[int], of_all: dict[int, DeviceSurvey],
              on_rows: OnRows) -> dict[int, DeviceSurvey]:
    """The surveys of the reads of these devices, with the touched blocks and the longest I/O of all I/Os."""
    reads = _cached(trace, "reads")
    if reads is None:
        scan, rows = SurveyScan(max_memory_bytes=max_memory_bytes(trace.footer.size_bytes)), 0
        for batch in trace.batches(COLUMNS):
            columns = {name: batch[name].to_numpy() for name in COLUMNS}
            is_read = columns["op"] == OPS["read"]
            scan.add({name: column[is_read] for name, column in columns.items()})
            rows += batch.num_rows
            on_rows(rows)
        reads = scan.by_device
        _store(trace, "reads", reads)
    for device in devices:
        if device not in reads or not reads[device].ios:
            raise UsageError(f"{trace.name} holds no reads of device {device}: nothing remains without its writes",
                             "replay it with its writes")
    return {device: replace(reads[device], touched=of_all[device].touched, longest_bytes=of_all[device].longest_bytes)
            for device in devices}


def read_first_on(trace: Trace, survey: Survey, mapping: Mapping, on_rows: OnRows = lambda rows: None, *,
                  reads_only: bool = False) -> MappedBlocks:
    """The blocks of the target that are read before they are written, after the mapping; see survey_trace()."""
    if mapping.folds:
        return MappedBlocks(_folded_read_first(trace, survey.device, mapping, on_rows, reads_only))
    return MappedBlocks(survey.read_first.grown(mapping.block_bytes), mapping)


def _folded_read_first(trace: Trace, device: int, mapping: Mapping, on_rows: OnRows, reads_only: bool) -> BlockSet:
    """For a map that folds. The first call reads the trace."""
    key = f"mapped:{device}:{mapping.key()}{':reads' if reads_only else ''}"
    entry = survey_cache.load(trace, key)
    if entry is not None:
        with suppress(KeyError, ValueError, OSError):
            return BlockSet.load(entry["read_first"])
    touch, rows = FirstTouch(max_memory_bytes(trace.footer.size_bytes)), 0
    for batch in trace.batches(COLUMNS):
        io, _, _ = select(batch, device, 0)
        is_read = io["op"] == OPS["read"] if reads_only else np.isin(io["op"], READING_CODES)
        start, end = mapping.map(io["offset_bytes"], io["length_bytes"])
        if reads_only:
            start, end, is_read = start[is_read], end[is_read], is_read[is_read]
        touch.add(start, end, is_read)
        rows += batch.num_rows
        on_rows(rows)
    survey_cache.store(trace, key, {}, {"read_first": touch.read_first})
    return touch.read_first


def _read(trace: Trace, devices: list[int], scan: SurveyScan | None, idle: IdlePolicy, on_rows: OnRows) -> int:
    """Add the rows to the scan, if any, and return the idle time that the policy removes."""
    compressor, rows = IdleCompressor(idle), 0
    for batch in trace.batches(COLUMNS):
        columns = {name: batch[name].to_numpy() for name in COLUMNS}
        if scan is not None:
            scan.add(columns)
        if idle.cap_ns is not None:
            io, _, _ = select(columns, devices, 0)
            compressor.move(io["submit_ns"], io["latency_ns"])
        rows += batch.num_rows
        on_rows(rows)
    return compressor.removed_ns


def _stored(trace: Trace) -> dict[int, DeviceSurvey] | None:
    """The surveys of all devices from the metadata or the cache; cached in the trace object for further calls."""
    if "survey" not in trace.cache:
        trace.cache["survey"] = survey_in(trace.metadata, trace.row_groups_at) or _cached(trace, "survey")
    stored: dict[int, DeviceSurvey] | None = trace.cache["survey"]
    return stored


def _cached(trace: Trace, key: str) -> dict[int, DeviceSurvey] | None:
    entry = survey_cache.load(trace, key)
    if entry is None:
        return None
    try:
        return {int(device): survey_from(facts, {name: entry[f"{device} {name}"]
                                                  for name in ("touched", "read_first")})
                for device, facts in entry.facts.items()}
    except (KeyError, TypeError, ValueError, OSError):
        return None


def _store(trace: Trace, key: str, by_device: dict[int, DeviceSurvey]) -> None:
    facts: dict[str, Any] = {}
    sets: dict[str, BlockSet] = {}
    for device, survey in by_device.items():
        facts[str(device)], blocks_by_name = facts_of(survey)
        sets |= {f"{device} {name}": blocks for name, blocks in blocks_by_name.items()}
    survey_cache.store(trace, key, facts, sets)


def _stored_removed_ns(trace: Trace, devices: list[int], idle: IdlePolicy) -> int | None:
    entry = survey_cache.load(trace, _idle_key(devices, idle))
    removed_ns = entry.facts.get("removed_ns") if entry else None
    return removed_ns if type(removed_ns) is int and 0 <= removed_ns < 1 << 63 else None


def _idle_key(devices: list[int], idle: IdlePolicy) -> str:
    return f"idle:{idle.cap_ns}:{','.join(map(str, devices))}"


def _nothing_to_replay(trace: Trace, why: str) -> TraceError:
    return TraceError(f"{trace.name} {why}: there is nothing to replay",
                      "capture a workload that reaches its drive: blkreel capture --cold")


def traced_device(trace: Trace, number: int) -> dict[str, Any]:
    """The description of a device; empty if the trace has none."""
    devices = trace.metadata.get("devices") or []
    return devices[number] if 0 <= number < len(devices) else {}
