"""Emulated drives of this machine (`blkreel emulate`), and how exact each of them is.

Each has a directory in RUN with the file that its device is over, and its account, which the command renews twice a
second.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict, cast

from .typed_document import mismatch, parse_json

RUN = Path("/run/blkreel/emulated")
LINKS = Path("/dev/blkreel")
FILE = "drive"  # the mounted file of a drive, in its directory
MODEL = "emulated drive"
_ACCOUNT = "account.json"
_RENEWED_WITHIN_S = 2.0
_POLL_S = 0.05


class Reached(TypedDict):
    """Of 4 KiB I/Os one at a time, each of which was to take the asked time."""

    p50_ns: int
    p99_ns: int


class Check(TypedDict):
    asked_ns: int
    read: Reached
    write: Reached


class Calibration(TypedDict):
    """Overhead that replies compensate, and the most that this machine reached. Bandwidths in bytes/s."""

    read_overhead_ns: int
    read_ns_per_byte: float
    write_overhead_ns: int
    write_ns_per_byte: float
    read_iops: float
    write_iops: float
    read_bandwidth: float
    write_bandwidth: float
    check: Check


class Counts(TypedDict):
    """Since the start of the drive. late_ns: time that late replies added; latest_ns: the longest of them.

    blocking_ns: flushes and discards in flight. beside_blocking: reads and writes that arrived meanwhile; none of many
    means that the back end held them back.
    """

    read_ios: int
    read_bytes: int
    write_ios: int
    write_bytes: int
    flush_ios: int
    flush_bytes: int
    discard_ios: int
    discard_bytes: int
    write_zeroes_ios: int
    write_zeroes_bytes: int
    in_flight: int
    late_ios: int
    late_ns: int
    latest_ns: int
    blocking_ns: int
    beside_blocking: int
    cache_fill_bytes: float
    temperature_c: float
    throttled: bool


class HostCounts(TypedDict):
    """Of this machine, since the start of the drive; None if the kernel has no count.

    waited_ns: the server's threads were ready and had no processor. stolen_ns: by a hypervisor, of all processors.
    reported_kib: free memory that was returned to the host, which takes time to come back.
    """

    waited_ns: int | None
    stolen_ns: int | None
    reported_kib: int | None


class EmulatedAccount(TypedDict):
    """drive: its description. image: None in memory. beyond: what the machine cannot reach of the description.

    check: of the calibration again, at the end; None before.
    """

    version: int
    name: str
    drive: str
    size_bytes: int
    device: str
    backend: str
    image: str | None
    pid: int
    started_at: str
    renewed_ns: int  # on CLOCK_MONOTONIC
    calibration: Calibration
    check: Check | None
    beyond: list[str]
    counts: Counts
    host: HostCounts


def name_of(backing_file: str, run: Path = RUN) -> str | None:
    """The name of the emulated drive that a loop device is over; None if it is over anything else."""
    path = Path(backing_file)
    return path.parent.name if path.name == FILE and path.parent.parent == run else None


def account_file(name: str, run: Path = RUN) -> Path:
    return run / name / _ACCOUNT


def read_account(name: str, run: Path = RUN) -> EmulatedAccount | None:
    """None if it is missing or damaged."""
    try:
        document = parse_json(account_file(name, run).read_text())
    except (OSError, ValueError):
        return None
    return None if mismatch(document, EmulatedAccount) else cast(EmulatedAccount, document)


def renewed_account(name: str, run: Path = RUN,
                    now_ns: Callable[[], int] = time.monotonic_ns) -> EmulatedAccount | None:
    """The account with all I/Os up to now: waits until it is renewed, and at most _RENEWED_WITHIN_S."""
    since_ns = now_ns()
    deadline_ns = since_ns + int(_RENEWED_WITHIN_S * 1e9)
    while (account := read_account(name, run)) and account["renewed_ns"] < since_ns and now_ns() < deadline_ns:
        time.sleep(_POLL_S)
    return account


class EmulatedUse(TypedDict):
    """What a recording or a replay has to say about one emulated drive that it used. Counts of that time only."""

    name: str
    drive: str
    backend: str
    beyond: list[str]
    calibration: Calibration
    ios: int
    late_ios: int
    late_ns: int
    blocking_ns: int
    beside_blocking: int
    waited_ns: int | None
    stolen_ns: int | None
    reported_kib: int | None


IO_KINDS = ("read", "write", "flush", "discard", "write_zeroes")


def use_between(begin: EmulatedAccount, end: EmulatedAccount) -> EmulatedUse:
    """The use from one account of a drive to a later one."""
    def grown(kind: str) -> int:
        return sum(sign * cast(dict[str, int], account["counts"])[kind] for sign, account in ((1, end), (-1, begin)))

    def host(kind: str) -> int | None:
        after, before = (cast(dict[str, int | None], account["host"])[kind] for account in (end, begin))
        return None if after is None or before is None else after - before

    return {"name": end["name"], "drive": end["drive"], "backend": end["backend"], "beyond": end["beyond"],
            "calibration": end["calibration"], "ios": sum(grown(f"{kind}_ios") for kind in IO_KINDS),
            "late_ios": grown("late_ios"), "late_ns": grown("late_ns"), "blocking_ns": grown("blocking_ns"),
            "beside_blocking": grown("beside_blocking"), "waited_ns": host("waited_ns"),
            "stolen_ns": host("stolen_ns"), "reported_kib": host("reported_kib")}
