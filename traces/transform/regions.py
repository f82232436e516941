"""Moves regions of a drive to other offsets, so that offsets do not show where data was."""

import hmac

import numpy as np

from blkreel.traces.format.trace import Trace

_MOST_REGIONS = 1 << 24


class RegionPermutation:
    """A permutation of the regions of each device, chosen by a key.

    Regions between which an I/O reaches stay together, so every I/O stays whole, and I/Os that overlap still do.
    The last region with its neighbors stays at the end, because it may be shorter. Reads the trace once.
    """

    def __init__(self, trace: Trace, region_bytes: int, key: bytes):
        ends: dict[int, int] = {}
        joined: dict[int, set[int]] = {}
        for batch in trace.batches(["device", "offset_bytes", "length_bytes"]):
            device, offset_bytes, length_bytes = (batch[name].to_numpy() for name in batch.schema.names)
            first = offset_bytes // region_bytes
            last = (offset_bytes + length_bytes.clip(1) - 1) // region_bytes
            for number in np.unique(device).tolist():
                here = device == number
                ends[number] = max(ends.get(number, 0), int(last[here].max()) + 1)
                for low, high in set(zip(first[here & (last > first)].tolist(), last[here & (last > first)].tolist(),
                                         strict=True)):
                    joined.setdefault(number, set()).update(range(low, high))
        sizes = {number: device.get("size_bytes") for number, device in enumerate(trace.metadata.get("devices") or [])}
        self._region_bytes = region_bytes
        self._moved: dict[int, np.ndarray] = {}
        for number, end in ends.items():
            regions = max(end, -(-(sizes.get(number) or 0) // region_bytes))
            # A permutation of the regions in use hides enough where a drive has too many to list.
            regions = regions if regions <= _MOST_REGIONS else end
            self._moved[number] = _moved_regions(regions, joined.get(number, set()), key, number)

    @property
    def moves_any(self) -> bool:
        return any((regions != np.arange(len(regions))).any() for regions in self._moved.values())

    def apply(self, columns: dict[str, np.ndarray]) -> np.ndarray:
        """The new offsets of rows."""
        offset_bytes = columns["offset_bytes"].copy()
        for number in np.unique(columns["device"]).tolist():
            here = columns["device"] == number
            region, in_region_bytes = np.divmod(offset_bytes[here], self._region_bytes)
            offset_bytes[here] = self._moved[number][region] * self._region_bytes + in_region_bytes
        return offset_bytes


def _moved_regions(regions: int, joined: set[int], key: bytes, device: int) -> np.ndarray:
    """The new number of each region. joined: regions that stay before their next one."""
    starts = np.ones(regions, bool)
    starts[[region + 1 for region in joined]] = False
    begins = np.flatnonzero(starts)
    lengths = np.diff(np.append(begins, regions))
    seed = hmac.new(key, f"regions of device {device}".encode(), "sha256").digest()
    order = np.random.default_rng(list(seed)).permutation(len(begins) - 1)
    order = np.append(order, len(begins) - 1)
    new_begins = np.empty(len(begins), np.int64)
    new_begins[order] = np.cumsum(lengths[order]) - lengths[order]
    segment = np.cumsum(starts) - 1
    moved: np.ndarray = new_begins[segment] + np.arange(regions) - begins[segment]
    return moved
