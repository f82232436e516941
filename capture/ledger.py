"""The proof that a capture is complete: what the helper counted, held against the kernel's own counters."""

from pathlib import Path

# Counters and the capture are not switched in one instant: a share of the I/Os may fall between.
_TOLERATED_SHARE = 0.001


def metadata_of(end: dict, drives) -> dict:
    """The metadata keys of a finished capture, from the helper's end block."""
    ledger = end["ledger"]
    return {
        "lost": end["lost"],
        "unmatched": ledger["unmatched"],
        "in_flight_at_start": ledger["in_flight_at_start"],
        "in_flight_at_end": end["in_flight_at_end"],
        "ledger": {**ledger, "recursion_misses": end["recursion_misses"], "queued_at_end": end["queued_at_end"]},
        "diskstats": _reconciled(end, drives),
        "helper_cpu_ns": end["cpu_ns"],
    }


def missing(metadata: dict) -> list[str]:
    """I/Os that happened and are not in the trace, in words; empty where it holds all."""
    lost, ledger, diskstats = metadata["lost"], metadata["ledger"], metadata["diskstats"]
    found = []
    if lost["total"]:
        found.append(f"{lost['total']:,} I/Os were lost because the ring was full: give a larger one with --ring-size")
    if ledger["unmatched"]:
        found.append(f"{ledger['unmatched']:,} I/Os completed whose issue was not seen")
    if ledger["out_of_range"]:
        found.append(f"{ledger['out_of_range']:,} events had a tag beyond what the drive announces")
    difference = diskstats["difference"]
    if difference is not None and abs(difference) > 1 + _TOLERATED_SHARE * diskstats["issued"]:
        found.append(f"the kernel's counters say {diskstats['issued']:,} I/Os, the capture accounts for "
                     f"{diskstats['issued'] - difference:,}")
    return found


def incomplete(metadata: dict) -> list[str]:
    """What the trace holds, but not whole, in words.

    An I/O whose completion was not seen has no latency; for a replay it is as good as any.
    """
    unseen = metadata["ledger"]["reused"]
    return [f"{unseen:,} I/Os have no latency: their completion was not seen"] if unseen else []


def _reconciled(end, drives):
    """Per drive what /sys/block/X/stat counted and what was recorded; in total what nobody accounts for.

    An fsync without data is a write of no bytes to the counters, and a flush request to the drive.
    """
    ledger = end["ledger"]
    issued = sum(sum(drive["diskstats"].values()) for drive in end["drives"])
    seen = sum(sum(drive["seen"].values()) for drive in end["drives"])
    explained = end["lost"]["total"] + sum(
        ledger[key] for key in ("empty_flushes", "in_flight_at_start", "unmatched", "reused", "unissued"))
    counts = all(_counts_io(drive) for drive in drives)
    return {"issued": issued, "seen": seen, "explained": explained,
            "difference": issued - seen - explained if counts else None, "drives": end["drives"]}


def _counts_io(drive):
    """False where iostats are switched off: its counters stand still."""
    try:
        return Path(f"/sys/block/{drive.name}/queue/iostats").read_text().strip() != "0"
    except OSError:
        return False
