"""The properties by which a model is compared with its trace."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from blkreel.traces.format.schema import CHECKS, OPS, ZONE_OPS

from .arrivals import WINDOWS_NS
from .measurement import Measurement
from .workload_model import NO_OFFSET

_TRANSFERS = ("read", "write")


@dataclass(frozen=True)
class Property:
    """title, unit: for the table. unit: ns, bytes, share, ios, or empty for a plain number."""

    title: str
    unit: str = ""


@dataclass(frozen=True)
class Comparison:
    """A property of the trace and of the model; None: it does not exist there."""

    key: str
    trace: float | None
    model: float | None

    @property
    def relative_difference(self) -> float | None:
        """(model − trace) / trace; None without both, or beside 0."""
        if self.trace is None or self.model is None or not self.trace:
            return 0.0 if self.trace == self.model == 0 else None
        return (self.model - self.trace) / self.trace


def _window(window_ns: int) -> str:
    return f"{window_ns // 1_000_000} ms" if window_ns < 1_000_000_000 else f"{window_ns // 1_000_000_000} s"


PROPERTIES = {
    "ios": Property("I/Os", "ios"),
    "duration_ns": Property("first to last submit", "ns"),
    **{f"{op}_share": Property(f"{op.replace('_', ' ')} share of I/Os", "share") for op in OPS if op not in ZONE_OPS},
    **{key: value for op in _TRANSFERS for key, value in {
        f"{op}_size_mean_bytes": Property(f"{op} size, mean", "bytes"),
        f"{op}_size_p50_bytes": Property(f"{op} size, p50", "bytes"),
        f"{op}_sequential_share": Property(f"sequential {op}s", "share")}.items()},
    "gap_p50_ns": Property("gap between submits, p50", "ns"),
    "gap_p90_ns": Property("gap between submits, p90", "ns"),
    "gap_p99_ns": Property("gap between submits, p99", "ns"),
    **{f"fano_{_window(window_ns).replace(' ', '')}": Property(f"Fano factor in {_window(window_ns)}")
       for window_ns in WINDOWS_NS},
    "depth_mean": Property("I/Os in flight at submit, mean"),
    "depth_p99": Property("I/Os in flight at submit, p99"),
    "reuse_share": Property("I/Os at the offset of an earlier one", "share"),
    "footprint_bytes": Property("footprint, in blocks of 1 MiB", "bytes"),
    "hot_share": Property("I/Os in the hottest 10 % of blocks", "share"),
}


def properties(measurement: Measurement) -> dict[str, float | None]:
    """The value of each of PROPERTIES, as numbers in its unit; None if it does not exist."""
    placement, arrivals = measurement.placement, measurement.arrivals
    ios = int(measurement.ios.sum())
    values: dict[str, float | None] = {"ios": ios, "duration_ns": arrivals.duration_ns}
    for op, code in OPS.items():
        if op in ZONE_OPS:
            continue
        count = int(measurement.ios[code])
        values[f"{op}_share"] = count / ios if count or op not in CHECKS else None
    for op in _TRANSFERS:
        code = OPS[op]
        count, located = int(measurement.ios[code]), int(placement.located[code])
        values[f"{op}_size_mean_bytes"] = int(measurement.bytes[code]) / count if count else None
        values[f"{op}_size_p50_bytes"] = _median(measurement, op)
        values[f"{op}_sequential_share"] = int(placement.open_ends[code].sum()) / located if located else None
    for percent in (50, 90, 99):
        values[f"gap_p{percent}_ns"] = arrivals.gaps.quantile(percent / 100)
    for window_ns in WINDOWS_NS:
        values[f"fano_{_window(window_ns).replace(' ', '')}"] = arrivals.fano_factor(window_ns)
    depths = measurement.depths
    total = int(depths.sum())
    values["depth_mean"] = float((depths * np.arange(len(depths))).sum() / total) if total else None
    values["depth_p99"] = int(np.searchsorted(np.cumsum(depths), np.ceil(0.99 * total))) if total else None
    values["reuse_share"] = placement.reuse()[0]
    values["footprint_bytes"] = placement.footprint_bytes() or None
    values["hot_share"] = placement.hot_share()
    return values


def compared(trace: Mapping[str, float | None], model: Mapping[str, float | None]) -> list[Comparison]:
    """Every property that the trace or the model has, in the order of PROPERTIES; none that is 0 in both."""
    pairs = [(key, trace.get(key), model.get(key)) for key in PROPERTIES]
    return [Comparison(*pair) for pair in pairs if pair[1] or pair[2]]


def _median(measurement: Measurement, op: str) -> float | None:
    counts: dict[int, int] = {}
    for kind in (False, True):
        for length, count in measurement.lengths.get((op, kind), {}).items():
            counts[length] = counts.get(length, 0) + count
    if not counts or op in NO_OFFSET:
        return None
    lengths = sorted(counts)
    totals = np.cumsum([counts[length] for length in lengths])
    return lengths[int(np.searchsorted(totals, -(-totals[-1] // 2)))]
