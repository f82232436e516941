"""What a machine cannot reach of a drive, by its calibration."""

from collections.abc import Iterator

from blkreel.common.emulated import Calibration
from blkreel.common.units import format_bytes, format_ns
from blkreel.replay.simulated.spec import SimulatedDrive

# A latency below this multiple of the overhead is not reached.
OVERHEADS = 1.5


def beyond(drive: SimulatedDrive, calibration: Calibration) -> list[str]:
    """A line for each part of the description that the machine cannot reach, with both figures."""
    return [*_latencies(drive, calibration), *_bandwidths(drive, calibration), *_iops(drive, calibration)]


def _latencies(drive: SimulatedDrive, calibration: Calibration) -> Iterator[str]:
    overheads_ns = {"read": calibration["read_overhead_ns"], "write": calibration["write_overhead_ns"],
                    "flush": calibration.get("flush_overhead_ns", 0)}
    for kind, overhead_ns in overheads_ns.items():
        latency_ns, limit_ns = drive[f"{kind}_latency_ns"], OVERHEADS * overhead_ns
        if latency_ns < limit_ns:
            yield f"{kind} latency {format_ns(latency_ns)} (from {format_ns(limit_ns)} on)"


def _bandwidths(drive: SimulatedDrive, calibration: Calibration) -> Iterator[str]:
    for kind, reached in (("read", calibration["read_bandwidth"]), ("write", calibration["write_bandwidth"])):
        asked = _bandwidth(drive, kind)
        if asked > reached:
            yield f"{kind} bandwidth {format_bytes(asked)}/s (up to {format_bytes(reached)}/s)"


def _bandwidth(drive: SimulatedDrive, kind: str) -> float:
    """The highest of the drive."""
    bandwidth = drive[f"{kind}_bandwidth"]
    if kind == "write" and drive["cache_bytes"]:
        bandwidth = max(bandwidth, drive["cache_bandwidth"])
    return min(bandwidth, drive["link_bandwidth"] or bandwidth)


def _iops(drive: SimulatedDrive, calibration: Calibration) -> Iterator[str]:
    """Of 4 KiB I/Os on all channels, within the commands that the drive accepts at once."""
    at_once = min(drive["channels"], drive["commands"] or drive["channels"])
    for kind, reached in (("read", calibration["read_iops"]), ("write", calibration["write_iops"])):
        asked = min(at_once * 1e9 / drive[f"{kind}_latency_ns"], _bandwidth(drive, kind) / 4096)
        if asked > reached:
            yield f"{asked:,.0f} {kind} IOPS (up to {reached:,.0f})"
