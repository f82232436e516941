"""Emulated drives of this machine (`blkreel emulate`), and how exact each of them is.

Each has a directory in RUN with the file that its device is over, and its account, which the command renews twice a
second.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NotRequired, TypedDict, cast

from blkreel.common.files.typed_document import read_json

from .system import text_in
from .units import format_ns, format_share
from .verdict import Level, Reason, reason

RUN = Path("/run/blkreel/emulated")
LINKS = Path("/dev/blkreel")
FILE = "drive"  # the mounted file of a drive, in its directory
UBLK = "ublk"  # the file that names the ublk device of a drive, its server and its key, while the device exists
_SERVER = "blkreel-emulate"
MODEL = "emulated drive"
_ACCOUNT = "account.json"
_RENEWED_WITHIN_S = 2.0
_POLL_S = 0.05

# Limits of a verdict, as shares.
LATE_QUALIFIED, LATE_INVALID = 0.01, 0.10
WAITED_LIMIT = 0.02
OVERHEAD_LIMIT = 0.05
BLOCKING_LIMIT = 0.02


class Reached(TypedDict):
    """Of 4 KiB I/Os one at a time, each of which was to take the asked time."""

    p50_ns: int
    p99_ns: int


class Check(TypedDict):
    asked_ns: int
    read: Reached
    write: Reached
    flush: NotRequired[Reached]


class Calibration(TypedDict):
    """Overhead that replies compensate, and the most that this machine reached. Bandwidths in bytes/s.

    return_ns: the part of an overhead from the kernel's completion to the return of the program's call.
    """

    read_overhead_ns: int
    read_ns_per_byte: float
    read_return_ns: NotRequired[int]  # accounts of earlier versions have neither these nor figures of flushes
    write_overhead_ns: int
    write_ns_per_byte: float
    write_return_ns: NotRequired[int]
    flush_overhead_ns: NotRequired[int]
    flush_return_ns: NotRequired[int]
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


class FittedFacts(TypedDict, total=False):
    """Facts in the file of a fitted drive about its runs.

    reads_in_flight: how many reads complete while one is in flight, itself included, of 99 % of the reads of a run; the
    most of all runs. reads_from_bytes, reads_to_bytes: sizes of the reads of the runs with many writes, their own or a
    background's; missing if no run had them. written_bytes: the most that a run wrote. slowdown_by_writes_open: runs
    whose slowdown the runs leave open.
    """

    drive: str
    firmware: str
    runs: int
    traces: int
    held_out: bool
    load_time_error: float
    read_p99_error: float
    slowdown_by_writes_error: float
    slowdown_by_writes_open: int
    reads_in_flight: int
    reads_from_bytes: int
    reads_to_bytes: int
    written_bytes: int
    version: str


class EmulatedAccount(TypedDict):
    """drive: its description; fitted: of its file, if it was fitted to runs. image: None in memory.

    times_of: where the time of an I/O begins: its `issue` by the kernel or, without BPF, its `arrival` at the server.
    beyond: what the machine cannot reach of the description.

    check: of the calibration again, at the end; None before.
    """

    version: int
    name: str
    drive: str
    fitted: NotRequired[FittedFacts | None]
    size_bytes: int
    device: str
    backend: str
    times_of: str
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


def file_of(device: str, run: Path = RUN, processes: Path = Path("/proc")) -> str:
    """What name_of() takes, of the ublk device of an emulated drive; "" of any other device.

    A device of a server that has ended is none: its number may be that of another device.
    """
    for file in run.glob(f"*/{UBLK}"):
        node, server, *_ = text_in(file).split() or ("", "")
        if node == device and text_in(processes / server / "comm") == _SERVER:
            return str(file.with_name(FILE))
    return ""


def account_file(name: str, run: Path = RUN) -> Path:
    return run / name / _ACCOUNT


def read_account(name: str, run: Path = RUN) -> EmulatedAccount | None:
    """None if it is missing or damaged."""
    try:
        return read_json(account_file(name, run), EmulatedAccount)
    except (OSError, ValueError):
        return None


def renewed_account(name: str, run: Path = RUN,
                    now_ns: Callable[[], int] = time.monotonic_ns) -> EmulatedAccount | None:
    """The account with all I/Os up to now: waits until it is renewed, and at most _RENEWED_WITHIN_S."""
    since_ns = now_ns()
    deadline_ns = since_ns + int(_RENEWED_WITHIN_S * 1e9)
    while (account := read_account(name, run)) and account["renewed_ns"] < since_ns and now_ns() < deadline_ns:
        time.sleep(_POLL_S)
    return account


def fitted_facts_of(backing_file: str) -> FittedFacts | None:
    """Of the emulated drive that a device is over, if it was fitted to runs."""
    account = account_of(backing_file)
    return account.get("fitted") if account else None


def account_of(backing_file: str, run: Path = RUN) -> EmulatedAccount | None:
    """Of the emulated drive that a device is over; None if it is over anything else."""
    name = name_of(backing_file, run)
    return read_account(name, run) if name else None


class EmulatedUse(HostCounts):
    """The use of an emulated drive by a recording or a replay, with the counts of that time."""

    name: str
    drive: str
    backend: str
    beyond: list[str]
    calibration: Calibration
    duration_ns: int
    ios: int
    late_ios: int
    late_ns: int
    blocking_ns: int
    beside_blocking: int


IO_KINDS = ("read", "write", "flush", "discard", "write_zeroes")


def use_between(begin: EmulatedAccount, end: EmulatedAccount) -> EmulatedUse:
    """The use from one account of a drive to a later one."""
    def grown(kind: str) -> int:
        return sum(sign * cast(dict[str, int], account["counts"])[kind] for sign, account in ((1, end), (-1, begin)))

    def host(kind: str) -> int | None:
        after, before = (cast(dict[str, int | None], account["host"])[kind] for account in (end, begin))
        return None if after is None or before is None else after - before

    return {"name": end["name"], "drive": end["drive"], "backend": end["backend"], "beyond": end["beyond"],
            "calibration": end["calibration"], "duration_ns": end["renewed_ns"] - begin["renewed_ns"],
            "ios": sum(grown(f"{kind}_ios") for kind in IO_KINDS),
            "late_ios": grown("late_ios"), "late_ns": grown("late_ns"), "blocking_ns": grown("blocking_ns"),
            "beside_blocking": grown("beside_blocking"), "waited_ns": host("waited_ns"),
            "stolen_ns": host("stolen_ns"), "reported_kib": host("reported_kib")}


class EmulatedUses:
    """Watches the emulated drives among some devices, from its creation on. backing_files: of their loop devices."""

    def __init__(self, backing_files: Iterable[str], run: Path = RUN):
        self._run = run
        names = filter(None, (name_of(file, run) for file in backing_files))
        self._begin = [account for name in names if (account := renewed_account(name, run))]

    def end(self) -> list[EmulatedUse]:
        """Up to now. A drive that has ended is left out: its I/Os failed."""
        return [use_between(begin, account) for begin in self._begin
                if (account := renewed_account(begin["name"], self._run))]


def reasons(uses: Iterable[EmulatedUse]) -> Iterator[Reason]:
    """Why figures from emulated drives are limited."""
    for use in uses:
        drive = f"emulated drive {use['name']}"
        late = use["late_ios"] / use["ios"] if use["ios"] else 0.0
        if late > LATE_QUALIFIED:
            level: Level = "invalid" if late > LATE_INVALID else "qualified"
            limit = LATE_INVALID if late > LATE_INVALID else LATE_QUALIFIED
            yield reason("emulated_late", level, f"{drive}: {format_share(late)} of the I/Os completed late (limit "
                         f"{100 * limit:g} %), {format_ns(use['late_ns'])} in all", None, late, limit)
        yield from _overhead_reasons(drive, use)
        if use["beyond"]:
            yield reason("emulated_beyond", "qualified",
                         f"{drive}: this machine cannot reach {'; '.join(use['beyond'])}")
        waited = (use["waited_ns"] or 0) / use["duration_ns"] if use["duration_ns"] else 0.0
        if waited > WAITED_LIMIT:
            yield reason("emulated_waited", "qualified", f"{drive}: its server waited for a processor for "
                         f"{format_share(waited)} of the time (limit {100 * WAITED_LIMIT:g} %)", None, waited,
                         WAITED_LIMIT)
        blocking = use["blocking_ns"] / use["duration_ns"] if use["duration_ns"] else 0.0
        if blocking > BLOCKING_LIMIT and not use["beside_blocking"]:
            yield reason("emulated_flushes", "qualified", f"{drive}: flushes held back other I/O for "
                         f"{format_share(blocking)} of the time (limit {100 * BLOCKING_LIMIT:g} %)", None, blocking,
                         BLOCKING_LIMIT)


def _overhead_reasons(drive: str, use: EmulatedUse) -> Iterator[Reason]:
    check = use["calibration"]["check"]
    asked_ns = check["asked_ns"]
    for kind, reached in _checked(check):
        off = abs(reached["p50_ns"] / asked_ns - 1)
        if off > OVERHEAD_LIMIT:
            yield reason("emulated_overhead", "qualified", f"{drive}: {kind} of the calibration took "
                         f"{format_ns(reached['p50_ns'])} of {format_ns(asked_ns)} asked (limit "
                         f"{100 * OVERHEAD_LIMIT:g} %)", None, off, OVERHEAD_LIMIT)


def _checked(check: Check) -> Iterator[tuple[str, Reached]]:
    yield "reads", check["read"]
    yield "writes", check["write"]
    if "flush" in check:
        yield "flushes", check["flush"]


def check_text(check: Check) -> str:
    """`reads 200 us, writes 200 us, flushes 201 us of 200 us asked`."""
    reached = ", ".join(f"{kind} {format_ns(reached['p50_ns'])}" for kind, reached in _checked(check))
    return f"{reached} of {format_ns(check['asked_ns'])} asked"


def exactness(use: EmulatedUse) -> str:
    """`reads 200 us, writes 200 us, flushes 201 us of 200 us asked, 0.1 % late`."""
    late = use["late_ios"] / use["ios"] if use["ios"] else 0.0
    return f"{check_text(use['calibration']['check'])}, {format_share(late)} late"
