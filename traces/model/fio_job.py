"""A workload model as a job file of fio. docs/model.md lists what fio cannot express."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from blkreel.common.errors import UsageError

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
    burst_ios, pause_ns, busy_ns = _bursts(model)
    rates = [max(1, round(count * 1e9 / busy_ns)) if count and busy_ns else 0 for count in (read, write)]
    settings = {
        "rw": "randrw" if read and write else "randread" if read else "randwrite",
        **({"rwmixread": round(100 * read / (read + write))} if read and write else {}),
        "bssplit": ",".join(_bssplit(model, name) if ios.get(name) else "" for name in _DIRECTIONS),
        "percentage_random": ",".join(str(_percent_random(model, name)) for name in _DIRECTIONS),
        "random_distribution": _zones(model),
        "size": model.capacity_bytes,
        "iodepth": max(1, round(model.properties.get("depth_p99", 1))),
        "number_ios": read + write,
        **({"rate_iops": ",".join(str(rate) if rate else "" for rate in rates), "rate_process": "poisson"}
           if busy_ns else {}),
        **({"thinktime": f"{round(pause_ns / 1000)}us", "thinktime_blocks": burst_ios} if pause_ns else {}),
        **({"fsync": max(1, round(write / ios["flush"]))} if write and ios.get("flush") else {})}
    text = ["; A workload model as a job of fio. The job has no file name: fio uses a file of its own in the current",
            "; directory. With --filename=DEVICE it overwrites that drive without asking.",
            "[global]", "ioengine=libaio", "direct=1", "", "[workload]",
            *(f"{key}={value}" for key, value in settings.items())]
    lost = ["the order of operations and of gaps between them", "reuse of single offsets", "latencies",
            "offsets that are not multiples of the length",
            "sequential streams beside each other: fio has one for each direction"]
    if read and write:
        lost.append("hot regions of reads that are not those of writes")
    lost += [f"{name} ({count:,} I/Os)" for name, count in ios.items()
             if count and name not in (*_DIRECTIONS, "flush")]
    if ios.get("flush") and not write:
        lost.append(f"flush ({ios['flush']:,} I/Os)")
    return FioJob("\n".join(text) + "\n", lost)


def _bursts(model: WorkloadModel) -> tuple[int, int, float]:
    """I/Os of a burst and the pause after it, as means, and the time of all gaps that are no pauses."""
    counts = np.zeros(len(model.gaps_ns), np.int64)
    for _, end, count in model.transitions:
        counts[model.states[end].gap_class] += count
    means_ns = np.array([np.mean(table) if table else 0 for table in model.gaps_ns])
    pauses = np.arange(len(counts)) > GAP_BOUNDS_NS.index(_PAUSE_NS)
    total = int(counts[pauses].sum())
    busy_ns = float((counts * means_ns)[~pauses].sum())
    if not total:
        return 0, 0, busy_ns
    return max(1, round(model.ios / (total + 1))), round(float((counts * means_ns)[pauses].sum()) / total), busy_ns


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


def _zones(model: WorkloadModel) -> str:
    """The accesses to zones of equal size, from the beginning of the drive, by reads and writes together."""
    zone_bytes = -(-model.capacity_bytes // _ZONES)
    accesses = np.zeros(_ZONES, np.int64)
    for name in _DIRECTIONS:
        op = model.ops.get(name)
        if op:
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
