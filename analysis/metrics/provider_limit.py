"""A token bucket of a provider: a constant rate that the drive has exceeded with the same kind of I/O before, or the
known rate of a control group (io.max).

A volume with a limit serves I/O at full speed while it has credit, and then at exactly the rate of the limit. A drive
that is merely busy, or was asked for less, looks alike in one of these: it never was faster, or its latency did not
rise, or its I/Os changed. A worn write cache does look alike; so writes count only if their rate of I/Os stays the same
while their size changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from blkreel.analysis.metrics.partials.partial import Partial
from blkreel.common.units import digits, duration

_WINDOW_NS = 10**9
_FEWEST_WINDOWS, _FEWEST_OPS = 5, 500  # at the limit
_EVEN = 0.03  # (highest - lowest) / median of the rate at the limit
# A limit of a control group is known, so that a second at it suffices: loads of games take few seconds.
_KNOWN_WINDOW_NS = _WINDOW_NS // _FEWEST_WINDOWS
_KNOWN = 0.1  # distance of the mean over the windows from that limit
_FASTER = 1.5  # rate before / rate at the limit, and latency at the limit / latency before
_ALIKE = 1.25  # mean sizes of the I/Os
_WRITES = 0.01  # share of the I/Os, above which a write cache may be the cause
_SIZE_VARIES = 0.1  # standard deviation / mean of the mean sizes
_BUSY = 0.8  # mean number of I/Os in flight

Rates = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ProviderLimit:
    """since_ns: from the first submit on, to a second. iops, mb_s: the rate; one of them is None if sizes vary."""

    since_ns: int
    iops: float | None
    mb_s: float | None

    @property
    def words(self) -> str:
        """`limited by the provider from 12 s on, 3,000 IOPS (12.3 MB/s)`."""
        rates = [*([f"{digits(self.iops)} IOPS"] if self.iops is not None else []),
                 *([f"{digits(self.mb_s)} MB/s"] if self.mb_s is not None else [])]
        return (f"limited by the provider from {duration(round(self.since_ns, -8))} on, {rates[0]}"
                + (f" ({rates[1]})" if rates[1:] else ""))


@dataclass(frozen=True)
class GroupLimit:
    """Limits of a control group that the I/O reached. since_ns: of the first one, from the first submit on."""

    since_ns: int
    limits: Mapping[str, int]

    @property
    def words(self) -> str:
        """`limited by its control group from 12 s on, 200 read IOPS`."""
        since = duration(round(self.since_ns, -8)) if self.since_ns else "the start"
        return f"limited by its control group from {since} on, {group_limit_words(self.limits)}"


def group_limit_words(io_max: Mapping[str, int]) -> str:
    """`200 read IOPS, 50.0 write MB/s`."""
    return ", ".join(f"{f'{limit:,}' if key.endswith('iops') else digits(limit / 1e6)} "
                     f"{'read' if key.startswith('r') else 'write'} {'IOPS' if key.endswith('iops') else 'MB/s'}"
                     for key, limit in io_max.items())


@dataclass(frozen=True)
class _Windows:
    """Reads and writes of a run in windows of window_ns: arrays of (2, number of windows)."""

    window_ns: int
    ops: Rates
    bytes: Rates


def _windows(partial: Partial, window_ns: int = _WINDOW_NS) -> _Windows | None:
    """None of pooled runs, and of those that are too short for a limit."""
    line = partial.timeline
    if line is None or line.span_ns is None:
        return None
    together = -(-window_ns // line.width_ns)
    count = line.span_ns // (together * line.width_ns)  # the last one is not whole
    if count <= _FEWEST_WINDOWS:
        return None
    ops, moved = (bins[:, :count * together].reshape(2, count, together).sum(axis=2).astype(float)
                  for bins in (line.ops, line.bytes))
    return _Windows(together * line.width_ns, ops, moved)


def group_limit(partial: Partial, io_max: Mapping[str, int]) -> GroupLimit | None:
    """The limits among io_max that one run or trace reached; None if it reached none."""
    windows = _windows(partial, _KNOWN_WINDOW_NS)
    if windows is None:
        return None
    reached: dict[str, tuple[int, int]] = {}
    for key, limit in io_max.items():
        rates = (windows.ops if key.endswith("iops") else windows.bytes)[int(key.startswith("w"))]
        means = np.convolve(rates, np.ones(_FEWEST_WINDOWS), "valid") * 1e9 / (_FEWEST_WINDOWS * windows.window_ns)
        at_limit = np.flatnonzero(np.abs(means - limit) <= _KNOWN * limit)
        if len(at_limit):
            reached[key] = int(at_limit[0]) * windows.window_ns, limit
    if not reached:
        return None
    return GroupLimit(min(since_ns for since_ns, _ in reached.values()),
                      {key: limit for key, (_, limit) in reached.items()})


def provider_limit(partial: Partial) -> ProviderLimit | None:
    """The limit of one run or trace; None if there is none to see, and of pooled runs."""
    windows, points = _windows(partial), partial.latency_points
    if windows is None or points is None:
        return None
    window_ns, ops, moved = windows.window_ns, windows.ops.sum(axis=0), windows.bytes.sum(axis=0)
    count = len(ops)
    at = points.since_ns // window_ns
    within = at < count
    weights = np.bincount(at[within], points.ops[within], count)
    latency_ns = np.bincount(at[within], points.ops[within] * points.latency_ns[within].astype(float),
                             count) / np.maximum(weights, 1)
    sizes = moved / np.maximum(ops, 1)
    has_writes = windows.ops[1] > _WRITES * ops
    of_ops = _level(ops, ops, sizes, latency_ns, has_writes, window_ns, is_ops=True)
    of_bytes = _level(moved, ops, sizes, latency_ns, has_writes, window_ns, is_ops=False)
    if of_ops is None and of_bytes is None:
        return None
    since = min(first for first, _ in filter(None, (of_ops, of_bytes)))
    return ProviderLimit(since * window_ns, of_ops and of_ops[1] * 1e9 / window_ns,
                         of_bytes and of_bytes[1] * 1e3 / window_ns)


def _level(rate: Rates, ops: Rates, sizes: Rates, latency_ns: Rates, has_writes: npt.NDArray[np.bool_], window_ns: int,
           is_ops: bool) -> tuple[int, float] | None:
    """(first window at the limit, its rate per window); None without a limit."""
    first, behind = _longest_even(rate)
    limited = slice(first, behind)
    level = float(np.median(rate[limited])) if behind > first else 0.0
    if behind - first < _FEWEST_WINDOWS or ops[limited].sum() < _FEWEST_OPS:
        return None
    is_faster = rate >= _FASTER * level
    size = float(sizes[limited].mean())
    varies = is_ops and float(sizes[limited].std()) > _SIZE_VARIES * size
    if not varies:
        is_faster &= (sizes < _ALIKE * size) & (_ALIKE * sizes > size) & ~has_writes
        if has_writes[limited].any():
            return None
    if not is_faster.any():
        return None
    waited_ns = float(latency_ns[limited].mean())
    in_flight = float(ops[limited].mean()) * waited_ns / window_ns
    if waited_ns < _FASTER * float(latency_ns[is_faster].min()) or in_flight < _BUSY:
        return None
    return first, level


def _longest_even(rate: Rates) -> tuple[int, int]:
    """The longest stretch [first, behind) whose rates are nearly the same."""
    best = (0, 0)
    for first in range(len(rate)):
        lowest = highest = float(rate[first])
        behind = first
        while behind < len(rate):
            lowest, highest = min(lowest, float(rate[behind])), max(highest, float(rate[behind]))
            if highest - lowest > _EVEN * lowest:
                break
            behind += 1
        if behind - first > best[1] - best[0]:
            best = (first, behind)
    return best
