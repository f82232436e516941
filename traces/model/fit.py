"""Fits a workload model to a trace."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from blkreel.common.errors import UsageError
from blkreel.common.units import counted, format_ns
from blkreel.traces.format.check import check_order
from blkreel.traces.format.metadata_types import COARSE_CLOCK_NS
from blkreel.traces.format.names import devices_listed
from blkreel.traces.format.schema import OP_NAMES, OPS, ZONE_OPS
from blkreel.traces.format.trace import Trace

from .measurement import COLUMNS, LENGTH_CLASSES, Columns, Measurement, measured
from .placement import sampled_ios
from .properties import properties
from .workload_model import CLOCK_KEYS, GAP_CLASSES, NO_OFFSET, OpModel, WorkloadModel

_LEAST_IOS = 2
_LIKELY_GAPS, _LIKELY_LATENCIES = 16, 100
_EXACT_SIZES, _MERGED_SIZES = 48, 16
_ALIGNED_SHARE = 0.99


def modeled_trace(trace: Trace, device: int | None = None,
                  progress: Callable[[int], None] = lambda rows: None) -> tuple[WorkloadModel, list[str]]:
    """The model of a trace, or of one of its devices, and what it lacks, as text.

    progress: gets the number of rows read. Raises UsageError for fewer than two I/Os, for I/Os without offsets only,
    and for several devices of which none is chosen.
    """
    check_order(trace)
    ios, capacity_bytes, unusual = _extent(trace, device)
    measurement = measured(_rows(trace, device, progress), capacity_bytes, ios, sampled_ios(trace.footer.size_bytes))
    model = fit_model(measurement)
    model.clock = {key: int(trace.metadata[key]) for key in CLOCK_KEYS if trace.metadata.get(key)}
    notes = []
    if (step_ns := max(model.clock.values(), default=1)) >= COARSE_CLOCK_NS:
        notes.append(f"the times of the trace have steps of {format_ns(step_ns)}: shorter gaps are not known")
    if not model.has_latency():
        notes.append("the trace has no latencies: the model has none, and no I/Os in flight")
        del unusual["without a recorded completion"]
    notes += [f"{counted(count, 'I/O')} of the trace {what}: all of the model complete without errors"
              for what, count in unusual.items() if count]
    return model, notes


def fit_model(measurement: Measurement) -> WorkloadModel:
    arrivals, placement = measurement.arrivals, measurement.placement
    states, transitions, exits, first = arrivals.chain()
    _, placements = placement.reuse()
    ops = {}
    for code in np.flatnonzero(measurement.ios).tolist():
        name = OP_NAMES[code]
        groups = range(code * LENGTH_CLASSES, (code + 1) * LENGTH_CLASSES)
        ops[name] = replace(
            placements.get(code, OpModel()), sizes_random=_sizes(measurement.lengths.get((name, False), {})),
            sizes_sequential=_sizes(measurement.lengths.get((name, True), {})),
            open_ends=placement.open_ends[code].tolist(), continued_runs=placement.continued_runs[code].tolist(),
            latencies_ns=[measurement.latencies.equally_likely(group, _LIKELY_LATENCIES) for group in groups])
    aligned = {step for step, count in placement.aligned.items() if count >= _ALIGNED_SHARE * placement.random}
    return WorkloadModel(
        int(measurement.ios.sum()), measurement.capacity_bytes, max(aligned, default=1),
        [arrivals.gaps.equally_likely(number, _LIKELY_GAPS) for number in range(GAP_CLASSES)],
        states, transitions, exits, first, ops,
        {key: value for key, value in properties(measurement).items() if value is not None})


def _extent(trace: Trace, device: int | None) -> tuple[int, int, dict[str, int]]:
    """The I/Os, the end of the highest one, and how many of them a model does not have, by what they did."""
    ios, end_bytes, located = 0, 0, 0
    unusual = {"failed": 0, "without a recorded completion": 0}
    devices: Counter[int] = Counter()
    for batch in trace.batches(["offset_bytes", "length_bytes", "op", "device", "latency_ns", "status"]):
        columns = {name: batch[name].to_numpy() for name in batch.schema.names}
        if zoned := set(np.unique(columns["op"]).tolist()) & {OPS[name] for name in ZONE_OPS}:
            raise UsageError(f"{trace.name} has operations on zones, and a model has no write pointers: "
                             f"{', '.join(OP_NAMES[code] for code in sorted(zoned))}",
                             "slice the other operations: blkreel slice --op read --op write")
        numbers, counts = np.unique(columns["device"], return_counts=True)
        devices.update(dict(zip(numbers.tolist(), counts.tolist(), strict=True)))
        rows = columns["device"] == device if device is not None else np.ones(batch.num_rows, bool)
        ios += int(rows.sum())
        unusual["failed"] += int((columns["status"][rows] != 0).sum())
        unusual["without a recorded completion"] += int((columns["latency_ns"][rows] < 0).sum())
        rows &= (columns["length_bytes"] > 0) & ~np.isin(columns["op"], [OPS[op] for op in NO_OFFSET])
        located += int(rows.sum())
        end_bytes = max(end_bytes, int((columns["offset_bytes"] + columns["length_bytes"])[rows].max(initial=0)))
    if device is None and len(devices) > 1:
        raise UsageError(f"{trace.name} has I/Os of {len(devices):,} devices, and a model has one: "
                         f"{devices_listed(trace, devices)}", f"choose one with --device {min(devices)}")
    if device is not None and device not in devices:
        raise UsageError(f"{trace.name} has no I/O of device {device}",
                         f"it has: {devices_listed(trace, devices)}"
                         if devices else f"see what the trace has: blkreel info {trace.name}")
    if ios < _LEAST_IOS:
        raise UsageError(f"{trace.name} has {ios} I/O{'s' * (ios != 1)}, and a model needs at least {_LEAST_IOS}",
                         f"see what the trace has: blkreel info {trace.name}")
    if not located:
        raise UsageError(f"{trace.name} has no I/O with data: only flushes or I/Os of 0 bytes",
                         f"see what the trace has: blkreel info {trace.name}")
    return ios, end_bytes, unusual


def _rows(trace: Trace, device: int | None, progress: Callable[[int], None]) -> Iterator[Columns]:
    done = 0
    for batch in trace.batches([*COLUMNS, "device"]):
        columns = {name: batch[name].to_numpy() for name in batch.schema.names}
        if device is not None:
            rows = columns["device"] == device
            columns = {name: values[rows] for name, values in columns.items()}
        if len(columns["op"]):
            is_flush = (columns["op"] == OPS["write"]) & (columns["length_bytes"] == 0)  # an empty write with preflush
            yield {**columns, "op": np.where(is_flush, columns["op"].dtype.type(OPS["flush"]), columns["op"])}
        done += batch.num_rows
        progress(done)


def _sizes(counts: dict[int, int]) -> list[list[int]]:
    """The most common lengths, and the others merged into groups of equal count with their mean length."""
    pairs = sorted(counts.items(), key=lambda pair: -pair[1])
    exact, rare = pairs[:_EXACT_SIZES], sorted(pairs[_EXACT_SIZES:])
    if len(rare) <= _MERGED_SIZES:
        return [list(pair) for pair in sorted(pairs)]
    lengths, number = np.array([pair[0] for pair in rare]), np.array([pair[1] for pair in rare])
    group = (np.cumsum(number) - number) * _MERGED_SIZES // number.sum()
    totals = np.bincount(group, number, _MERGED_SIZES)
    means = np.bincount(group, number * lengths, _MERGED_SIZES) / np.maximum(totals, 1)
    merged = [(max(512, round(mean / 512) * 512), int(total))
              for mean, total in zip(means, totals, strict=True) if total]
    return [list(pair) for pair in sorted([*exact, *merged])]
