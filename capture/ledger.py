"""The proof that a capture is complete: what the helper counted, held against the kernel's own counters."""

import os
from pathlib import Path

# Counters and the capture are not switched in one instant: a share of the I/Os may fall between.
_TOLERATED_SHARE = 0.001


def ended(end: dict, begun: dict) -> dict:
    """The metadata keys that are known at the end of a capture, from its totals and what was noted at its start."""
    pair = {"monotonic_ns": end["monotonic_ns"], "realtime_ns": end["realtime_ns"]}
    found = metadata_of(end, [device["name"] for device in begun["devices"]])
    return {**found, "duration_ns": end["stopped_ns"], "clock_pairs": [*begun["clock_pairs"], pair],
            "import_warnings": [*_told(found["ledger"]["ended_early"]), *_gone(found), *incomplete(found)]}


def metadata_of(end: dict, drive_names: list[str]) -> dict:
    """The ledger of a finished capture."""
    ledger = end["ledger"]
    return {
        "lost": end["lost"],
        "unmatched": ledger.get("unmatched"),
        "in_flight_at_start": ledger.get("in_flight_at_start"),
        "in_flight_at_end": end["in_flight_at_end"],
        "ledger": {**ledger, "recursion_misses": end.get("recursion_misses"),
                   "queued_at_end": end.get("queued_at_end"),
                   "ended_early": ended_early(end),
                   "gone": [name for name, drive in zip(drive_names, end["drives"], strict=True) if drive.get("gone")]},
        "diskstats": _reconciled(end, drive_names),
        "helper_cpu_ns": end["cpu_ns"],
    }


def missing(metadata: dict) -> list[str]:
    """I/Os that happened and are not in the trace, in words; empty where it holds all."""
    lost, ledger, diskstats = metadata["lost"], metadata["ledger"], metadata["diskstats"]
    found = [*_told(ledger["ended_early"]), *_gone(metadata)]
    if lost["total"]:
        found.append(f"{lost['total']:,} {lost.get('unit', 'I/Os')} were lost because the ring was full: "
                     "give a larger one with --ring-size")
    if ledger.get("unmatched"):
        found.append(f"{ledger['unmatched']:,} I/Os completed whose issue was not seen")
    if ledger.get("out_of_range"):
        found.append(f"{ledger['out_of_range']:,} events had a tag beyond what the drive announces")
    difference = diskstats["difference"]
    tolerated = 1 + diskstats.get("uncertain", 0) + _TOLERATED_SHARE * diskstats["issued"]
    # One that seems to be in flight at the end may be done, its completion unseen: it has its row all the same.
    if difference is not None and not -tolerated <= difference <= tolerated + (metadata["in_flight_at_end"] or 0):
        found.append(f"the kernel's counters say {diskstats['issued']:,} I/Os, the capture accounts for "
                     f"{diskstats['issued'] - difference:,}")
    return found


def incomplete(metadata: dict) -> list[str]:
    """What the trace holds, but not whole, in words.

    An I/O whose completion was not seen has no latency; for a replay it is as good as any.
    """
    unseen = metadata["ledger"].get("reused")
    return [f"{unseen:,} I/Os have no latency: their completion was not seen"] if unseen else []


def ended_early(end):
    """Why the rows end before the capture was told to."""
    code = end.get("write_error")
    if code is None:
        return None
    return (f"the capture ended early, because its rows could not be written ({os.strerror(code)}): "
            f"{end['unwritten_rows']:,} I/Os of its end are missing")


def _gone(metadata):
    """A drive that was taken away took its counters along: nobody vouches for its last rows."""
    gone = metadata["ledger"].get("gone") or []
    return [f"{name} is gone: it was taken away, and the capture ended with it; see: dmesg" for name in gone]


def _told(text):
    return [text] if text else []


def _reconciled(end, drive_names):
    """Per drive what /sys/block/X/stat counted and what was recorded; in total what nobody accounts for.

    uncertain: I/Os that completed while the counters were read and the capture switched on or off, which may be
    on either side. An fsync without data is a write of no bytes to the counters, and a flush request to the drive.
    """
    ledger = end["ledger"]
    issued = sum(sum((drive["diskstats"] or {}).values()) for drive in end["drives"])
    seen = sum(sum(drive["seen"].values()) for drive in end["drives"])
    # Some sources lose events, of which an I/O has several: what that cost in I/Os, the difference says.
    lost = 0 if end["lost"].get("unit") == "events" else end["lost"]["total"] or 0
    explained = lost + sum(
        ledger.get(key) or 0
        for key in ("empty_flushes", "in_flight_at_start", "unmatched", "reused", "unissued", "not_own"))
    gone = any(drive.get("gone") for drive in end["drives"])
    counted = not gone and all(drive["diskstats"] for drive in end["drives"])
    counts = counted and (issued or all(_counts_io(name) for name in drive_names))
    return {"issued": issued, "seen": seen, "explained": explained,
            "uncertain": sum(drive.get("uncertain", 0) for drive in end["drives"]),
            "difference": issued - seen - explained if counts else None, "drives": end["drives"]}


def _counts_io(name):
    """False where iostats are switched off: its counters stand still."""
    try:
        return Path(f"/sys/block/{name}/queue/iostats").read_text().strip() != "0"
    except OSError:
        return False
