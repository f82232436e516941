"""The completeness of a capture: the helper's counts against the kernel's own counters."""

import os
import time
from collections.abc import Iterable
from typing import Any, TypedDict

from blkreel.common.device import SYS, multipath_paths
from blkreel.common.system import text_in
from blkreel.common.units import counted, format_share
from blkreel.common.verdict import UNSEEN_LIMIT
from blkreel.traces.format.metadata_types import ClockPair, Lost
from blkreel.traces.spool.rows_child import DriveTotals, Totals

# Counters and the capture are not switched at one instant: a share of the I/Os may fall between.
_TOLERATED_SHARE = 0.001
# Two clocks are not read at one instant.
_LEAST_SUSPENDED_NS = 100_000_000

# Why a completion is missing, and what helps, by the source's part of source_format.
_UNSEEN_REASONS = {
    "bpf": ("the kernel runs no BPF program in some interrupts", "--source ftrace records them"),
    "bpftrace": ("the kernel runs no BPF program in some interrupts", "--source ftrace records them"),
    "ftrace": ("their completion event was lost", "a larger --ring-size helps"),
    "blktrace": ("their completion event was lost", "--source ftrace with a larger --ring-size helps"),
}


class Reconciled(TypedDict):
    """I/Os of all drives: by their own counters, recorded, and explained by the ledger.

    uncertain: completed while the capture was switched on or off, so on either side. difference: issued and neither
    recorded nor explained; None if a drive has no counters.
    """

    issued: int
    seen: int
    explained: int
    uncertain: int
    difference: int | None
    drives: list[DriveTotals]


class LedgerMetadata(TypedDict):
    """The keys of a trace's metadata that state its completeness."""

    lost: Lost
    unmatched: int | None
    in_flight_at_start: int | None
    in_flight_at_end: int
    ledger: dict[str, Any]
    diskstats: Reconciled
    helper_cpu_ns: int


class EndMetadata(LedgerMetadata):
    duration_ns: int
    clock_pairs: list[ClockPair]
    import_warnings: list[str]


def suspended_since_boot_ns() -> int:
    """How long the machine has been suspended: the clock of all events stops then, and that since boot does not."""
    return max(time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.monotonic_ns() for _ in range(3))


def ended(end: Totals, begun: dict[str, Any], suspended_ns: int = 0, drives_added: Iterable[str] = ()) -> EndMetadata:
    """The metadata keys of the end of a capture. begun: the metadata of its start. suspended_ns, drives_added: during
    the capture."""
    pair: ClockPair = {"monotonic_ns": end["monotonic_ns"], "realtime_ns": end["realtime_ns"]}
    # A recovered spool may have lost the metadata of its start.
    devices = begun.get("devices")
    drives = end["drives"]
    if not devices or len(devices) != len(drives):
        devices = [{}] * len(drives)
    names = [device.get("name", drive["device"]) for device, drive in zip(devices, drives, strict=True)]
    metadata = metadata_of(end, names)
    if added := sorted(drives_added):
        metadata["ledger"]["drives_added"] = added
    lost = _lost_or_unmatched(metadata)  # commands state these by the metadata itself
    metadata["ledger"]["missing"] = [text for text in missing(metadata) if text not in lost]
    if suspended_ns >= _LEAST_SUSPENDED_NS:
        metadata["ledger"]["suspended_ns"] = suspended_ns
    return {**metadata, "duration_ns": end["stopped_ns"], "clock_pairs": [*begun.get("clock_pairs", []), pair],
            "import_warnings": [*metadata["ledger"]["missing"],
                                *incomplete(metadata, begun.get("source_format", ""))]}


def metadata_of(end: Totals, drive_names: list[str]) -> LedgerMetadata:
    ledger, diskstats, in_flight_at_end = {**end["ledger"]}, _reconciled(end, drive_names), end["in_flight_at_end"]
    drives = list(zip(drive_names, end["drives"], strict=True))
    difference, unseen = diskstats["difference"], 0
    if difference and difference > _tolerated(diskstats):
        # The kernel counts them as completed, so they were not in flight any more: their completion was not seen.
        unseen = min(in_flight_at_end, difference)
        ledger["reused"] = (ledger.get("reused") or 0) + unseen
        diskstats["explained"] += unseen
        diskstats["difference"] = difference - unseen
    return {
        "lost": end["lost"],
        "unmatched": ledger.get("unmatched"),
        "in_flight_at_start": ledger.get("in_flight_at_start"),
        "in_flight_at_end": in_flight_at_end - unseen,
        "ledger": {**ledger, "recursion_misses": end.get("recursion_misses"),
                   "queued_at_end": end.get("queued_at_end"),
                   "ended_early": ended_early(end),
                   "gone": [name for name, drive in drives if drive.get("gone")],
                   "stuck": {name: drive["stuck"] for name, drive in drives if drive.get("stuck")},
                   "paths_added": {name: drive["paths_added"] for name, drive in drives if drive.get("paths_added")}},
        "diskstats": diskstats,
        "helper_cpu_ns": end["cpu_ns"],
    }


def missing(metadata: LedgerMetadata) -> list[str]:
    """Messages about the I/Os that the trace lacks; empty where it has all."""
    ledger, diskstats = metadata["ledger"], metadata["diskstats"]
    messages = [*_early_end_and_gone(metadata), *_lost_or_unmatched(metadata)]
    if ledger.get("out_of_range"):
        messages.append(f"{ledger['out_of_range']:,} events had a tag beyond what the drive announces")
    if ledger.get("impossible_extents"):
        messages.append(f"{ledger['impossible_extents']:,} events were left out: their extent ends above 2^62 "
                        "bytes")
    if ledger.get("cgroup_replaced"):
        messages.append("the control group of the workload was removed and created again during the capture, and I/O "
                        "of the new one is not workload I/O: capture again")
    messages += [f"no row for {counted(count, 'I/O')} of {name}, in flight during the whole capture, so the drive may "
                 f"hang; see: dmesg, and cat /sys/block/{name}/inflight"
                 for name, count in ledger.get("stuck", {}).items()]
    messages += [f"paths of {name} were added during the capture ({count:,}), and their I/O is not recorded: "
                 "capture again"
                 for name, count in ledger.get("paths_added", {}).items()]
    messages += [f"{name} was added to a volume or file system during the capture, and its I/O is not recorded: "
                 "capture again" for name in ledger.get("drives_added", ())]
    difference = diskstats["difference"]
    tolerated = _tolerated(diskstats)
    # An I/O in flight at the end may have completed without an event; it has its row all the same.
    if difference is not None and not -tolerated <= difference <= tolerated + (metadata["in_flight_at_end"] or 0):
        messages.append(f"the kernel's counters say {diskstats['issued']:,} I/Os, the capture accounts for "
                        f"{diskstats['issued'] - difference:,}")
    return messages


def _tolerated(diskstats: Reconciled) -> float:
    return 1 + diskstats.get("uncertain", 0) + _TOLERATED_SHARE * diskstats["issued"]


def incomplete(metadata: LedgerMetadata, source_format: str) -> list[str]:
    """Messages about I/Os that the trace has without a latency, a use or a time, with the reason and the remedy."""
    messages = []
    if suspended_ns := metadata["ledger"].get("suspended_ns"):
        messages.append(f"the machine was suspended for {suspended_ns / 1e9:,.1f} s, which the times of the trace do "
                        "not include: record it again without a suspend")
    if uses_lost := metadata["ledger"].get("uses_lost"):
        messages.append(f"{uses_lost:,} first uses of pages were lost because the ring was full, so the load time on a "
                        "slower drive is a lower bound: give a larger one with --ring-size")
    if wakes_lost := metadata["ledger"].get("wakes_lost"):
        messages.append(f"{wakes_lost:,} wake-ups of threads by other threads were lost because the ring was full, so "
                        "those waits keep their length on another drive: give a larger one with --ring-size")
    if commands := metadata["ledger"].get("commands_unseen"):
        messages.append(f"no row for {counted(commands, 'command')} that programs passed to the drive: a trace does "
                        "not have their operation (such as compare, verify, copy) or their place (deallocate, unmap)")
    unseen = metadata["ledger"].get("reused")
    if not unseen:
        return messages
    # A recovered spool may have lost its source.
    reason, remedy = _UNSEEN_REASONS.get(source_format.partition(":")[0],
                                         ("their completion was not seen", "record it again"))
    return [*messages, f"no latency for {counted(unseen, 'I/O')} ({format_share(unseen_share(metadata))}), "
                       f"because {reason}; {remedy}"]


def unseen_share(metadata: LedgerMetadata) -> float:
    """The share of I/Os without a completion event, 0 to 1, those in flight at the end excepted."""
    unseen: int = metadata["ledger"].get("reused") or 0
    return unseen / (metadata["diskstats"]["seen"] + unseen) if unseen else 0.0


def is_trustworthy(metadata: LedgerMetadata) -> bool:
    """Whether nothing is missing, and at most UNSEEN_LIMIT of the I/Os have no latency."""
    return not missing(metadata) and unseen_share(metadata) <= UNSEEN_LIMIT


def ended_early(end: Totals) -> str | None:
    """The reason why the rows end before the capture was stopped."""
    code = end.get("write_error")
    if code is None:
        # A removed drive ends the helper, too, and has a message of its own.
        is_signal = end.get("ended_by_signal") and not any(drive.get("gone") for drive in end["drives"])
        return "the capture ended early, because its helper got a signal from another program" if is_signal else None
    return (f"the capture ended early, because its rows could not be written ({os.strerror(code)}): "
            f"{end.get('unwritten_rows', 0):,} I/Os of its end are missing")


def _lost_or_unmatched(metadata: LedgerMetadata) -> list[str]:
    lost, unmatched = metadata["lost"], metadata["unmatched"]
    return [*([f"{lost['total']:,} {lost.get('unit', 'I/Os')} were lost because the ring was full: "
               "give a larger one with --ring-size"] if lost["total"] else []),
            *([f"{counted(unmatched, 'I/O')} completed whose issue was not seen"] if unmatched else [])]


def _early_end_and_gone(metadata: LedgerMetadata) -> list[str]:
    """The counters of a removed drive are gone too, so that its last rows cannot be checked."""
    early, gone = metadata["ledger"]["ended_early"], metadata["ledger"].get("gone") or []
    return [*([early] if early else []),
            *(f"{name} is gone: it was taken away during the capture; see: dmesg" for name in gone)]


def _reconciled(end: Totals, drive_names: list[str]) -> Reconciled:
    """An fsync without data is a write of no bytes in the counters, and a flush request at the drive."""
    ledger = end["ledger"]
    issued = sum(sum((drive["diskstats"] or {}).values()) for drive in end["drives"])
    seen = sum(sum(drive["seen"].values()) for drive in end["drives"])
    # Sources that lose events, several per I/O: the difference states the cost in I/Os.
    lost = 0 if end["lost"].get("unit") == "events" else end["lost"]["total"] or 0
    explained = lost + sum(
        ledger.get(key) or 0
        for key in ("empty_flushes", "in_flight_at_start", "unmatched", "reused", "unissued", "not_own", "failed_over",
                    "parts"))
    uncounted = sum(drive["seen"].get(op, 0) for drive, name in zip(end["drives"], drive_names, strict=True)
                    for op in _uncounted_ops(name))
    gone = any(drive.get("gone") for drive in end["drives"])
    # The kernel counts flushes also where iostats are switched off.
    counts = not gone and all(drive["diskstats"] and (
        any(count for op, count in drive["diskstats"].items() if op != "flush") or _counts_io(name))
        for drive, name in zip(end["drives"], drive_names, strict=True))
    return {"issued": issued, "seen": seen, "explained": explained,
            "uncertain": sum(drive.get("uncertain", 0) for drive in end["drives"]),
            "difference": issued - seen - explained + uncounted if counts else None, "drives": end["drives"]}


def _uncounted_ops(name: str) -> tuple[str, ...]:
    """What the counters of an array of md lack, in which it is not passed through the accounting of the level."""
    level = text_in(SYS / "block" / name / "md/level")
    return ("flush", "discard") if level == "raid0" else ("flush",) if level else ()


def _counts_io(name: str) -> bool:
    """False where iostats are switched off, so that the counters do not change."""
    disk = SYS / "block" / name
    return all(text_in(path / "queue/iostats") not in ("", "0") for path in multipath_paths(disk) or [disk])
