"""A workload model as a job file of fio. docs/model.md lists what fio cannot express."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from blkreel.common.errors import UsageError
from blkreel.common.units import counted

from .workload_model import GAP_BOUNDS_NS, Counts, WorkloadModel

# Limits of fio: entries of bssplit for a direction, and zones of random_distribution.
_MOST_SIZES, _ZONES = 64, 50
# A gap of at least this length is a pause (thinktime) between bursts.
_PAUSE_NS = 100_000_000
_DIRECTIONS = ("read", "write")


@dataclass(frozen=True)
class FioJob:
    """text: of the job file. not_expressed: what the model has and fio has no setting for, as text."""

    text: str
    not_expressed: list[str]


def fio_job(model: WorkloadModel) -> FioJob:
    """Raises UsageError for a model without reads and writes."""
    ios = {name: round(model.ios * model.properties.get(f"{name}_share", 0)) for name in model.ops}
    read, write = (ios.get(name, 0) for name in _DIRECTIONS)
    if not read + write:
        raise UsageError("the model has neither reads nor writes, which a fio job needs",
                         "write the model itself: --format toml")
    text = ["; A workload model as jobs of fio. They have no file name: fio uses a file of its own in the current",
            "; directory. With --filename=DEVICE it overwrites that drive without asking.",
            "[global]", "ioengine=libaio", "direct=1", f"size={model.capacity_bytes}",
            f"iodepth={max(1, round(model.properties.get('depth_p99', 1)))}", "filename_format=workload"]
    for name in filter(ios.get, _DIRECTIONS):
        text += ["", f"[{name}s]", *(f"{key}={value}" for key, value in _settings(model, name, ios).items())]
    lost = ["the order of operations and of gaps between them", "reuse of single offsets", "latencies",
            "offsets that are not multiples of the length",
            "sequential streams beside each other: fio has one for each direction"]
    lost += [f"{name} ({counted(count, 'I/O')})" for name, count in ios.items()
             if count and name not in (*_DIRECTIONS, "flush")]
    if ios.get("flush") and not write:
        lost.append(f"flush ({counted(ios['flush'], 'I/O')})")
    return FioJob("\n".join(text) + "\n", lost)


def _settings(model: WorkloadModel, name: str, ios: dict[str, int]) -> dict[str, object]:
    """Of the job for the reads or the writes. In one job for both, fio 3.33 has a flush before each read after a write
    that is due for one, and makes up for the pauses in a direction that did not end the burst."""
    count, flushes = ios[name], ios.get("flush", 0) if name == "write" else 0
    pauses, pause_ns, busy_ns = _pauses(model)
    rate = max(1, round(count * 1e9 / busy_ns)) if busy_ns else 0
    mean_bytes = model.properties.get(f"{name}_size_mean_bytes", 0)
    settings: dict[str, object] = {
        "rw": f"rand{name}", "bssplit": _bssplit(model, name), "percentage_random": _percent_random(model, name),
        "random_distribution": _zones(model, name), "number_ios": count,
        # fio ends after as many bytes as the file has, unless more are given.
        "io_size": max(model.capacity_bytes, round(2 * count * mean_bytes))}
    if rate and flushes:
        # With flushes, fio 3.33 dies of rate_process. rate_iops alone would count each I/O as one of the least size.
        settings["rate"] = round(rate * mean_bytes)
    elif rate:
        settings |= {"rate_iops": rate, "rate_process": "poisson"}
    if pauses:
        settings |= {"thinktime": f"{round(pause_ns / 1000)}us",
                     "thinktime_blocks": max(1, round(count / (pauses + 1))),
                     **({"rate_ignore_thinktime": 1} if rate else {})}
    return settings | ({"fsync": max(1, round(count / flushes))} if flushes else {})


def _pauses(model: WorkloadModel) -> tuple[int, float, float]:
    """The number of pauses, their mean, and the time of all gaps that are no pauses."""
    counts = np.zeros(len(model.gaps_ns), np.int64)
    for _, end, count in model.transitions:
        counts[model.states[end].gap_class] += count
    means_ns = np.array([np.mean(table) if table else 0 for table in model.gaps_ns])
    pauses = np.arange(len(counts)) > GAP_BOUNDS_NS.index(_PAUSE_NS)
    total = int(counts[pauses].sum())
    return total, float((counts * means_ns)[pauses].sum()) / max(1, total), float((counts * means_ns)[~pauses].sum())


def _bssplit(model: WorkloadModel, name: str) -> str:
    op = model.ops[name]
    sizes: dict[int, int] = {}
    for length, count in [*op.sizes_random, *op.sizes_sequential]:
        if length:
            sizes[length] = sizes.get(length, 0) + count
    common: Counts = sorted([list(pair) for pair in sizes.items()], key=lambda pair: -pair[1])[:_MOST_SIZES]
    shares = _percent([count for _, count in common])
    return ":".join(f"{length}/{share}" for (length, _), share in zip(common, shares, strict=True) if share)


def _percent_random(model: WorkloadModel, name: str) -> int:
    return round(100 * (1 - model.properties.get(f"{name}_sequential_share", 0.0)))


def _zones(model: WorkloadModel, name: str) -> str:
    """The accesses to zones of equal size, from the beginning of the drive."""
    zone_bytes = -(-model.capacity_bytes // _ZONES)
    accesses = np.zeros(_ZONES, np.int64)
    op = model.ops[name]
    for region, count, _ in op.regions:
        accesses[min(region * op.region_bytes // zone_bytes, _ZONES - 1)] += count
    if not accesses.any():
        return "random"
    return "zoned:" + ":".join(f"{share}/{100 // _ZONES}" for share in _percent(accesses.tolist()))


def _percent(counts: Sequence[int]) -> list[int]:
    """Whole percents that sum to 100, by the largest remainders."""
    exact = np.array(counts) * 100 / sum(counts)
    shares = np.floor(exact).astype(np.int64)
    shares[np.argsort(shares - exact, kind="stable")[:100 - int(shares.sum())]] += 1
    result: list[int] = shares.tolist()
    return result
