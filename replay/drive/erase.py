"""Erasing a drive by its own commands, through nvme-cli: format and sanitize. (A discard is a stream like any other.)

Both may erase more than the named namespace: a format possibly, a sanitize always erases all of them. Neither is done
if the drive has another one.
"""

import json
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from blkreel.common.device import SYS, list_drives
from blkreel.common.errors import BlkreelError, SafetyError, UsageError, did_you_mean
from blkreel.common.progress import Progress
from blkreel.common.system import find_program

from .target import Identity, Target

KINDS = {
    "discard": "discard the whole drive",
    "format": "NVMe format with erase of user data",
    "sanitize": "NVMe sanitize by block erase",
    "none": "leave what is there",
}

# Bits and numbers of the NVM Express base specification 2.0: Identify Controller (OACS, FNA, SANICAP), Format NVM
# (SES), Sanitize (SANACT), the log page Sanitize Status (SSTAT, SPROG).
_OACS_FORMAT = 1 << 1
_FNA_FORMATS_ALL, _FNA_ERASES_ALL = 1 << 0, 1 << 1
_SANICAP_BLOCK_ERASE = 1 << 1
_SES_USER_DATA = 1
_SANACT_BLOCK_ERASE = 2
_SSTAT_DONE, _SSTAT_RUNNING, _SSTAT_FAILED, _SSTAT_DONE_ALLOCATED = 1, 2, 3, 4
_SPROG_WHOLE = 65536

_FORMAT_TIMEOUT_S = 7200
_CALL_TIMEOUT_S = 60
_POLL_S = 1.0
_WITHOUT = "erase it with: --erase discard"


def check(kind: str, target: Target, sys_root: Path = SYS) -> None:
    """Raise unless the target can be erased by this command. Reads the drive's capabilities and changes nothing.

    UsageError for a target that never can (a partition, no NVMe drive), BlkreelError if the drive or a program lacks
    support, SafetyError if it would erase more than this namespace.
    """
    if kind not in KINDS:
        raise UsageError(f"no such way to erase: {kind}", did_you_mean(kind, KINDS, f"use one of: {', '.join(KINDS)}"))
    if kind in ("discard", "none"):
        return
    if target.partition:
        raise UsageError(f"{target.path} is a partition, and a {kind} takes the whole drive",
                         f"name the drive: {target.drive.path}; or {_WITHOUT}")
    if not re.fullmatch(r"nvme\d+n\d+", target.drive.name):
        raise UsageError(f"{target.path} is no NVMe drive, which alone has a {kind}", _WITHOUT)
    if not find_program("nvme"):
        raise BlkreelError(f"a {kind} needs nvme-cli, which is not installed", "apt-get install nvme-cli")
    able = _json("id-ctrl", target)
    namespaces = _other_namespaces(target, sys_root)
    if kind == "format":
        if not able.get("oacs", 0) & _OACS_FORMAT:
            raise BlkreelError(f"{target.path} has no format", _WITHOUT)
        if namespaces and able.get("fna", 0) & (_FNA_FORMATS_ALL | _FNA_ERASES_ALL):
            raise SafetyError(f"a format of {target.path} would erase {' and '.join(namespaces)}, too", _WITHOUT)
    else:
        if not able.get("sanicap", 0) & _SANICAP_BLOCK_ERASE:
            raise BlkreelError(f"{target.path} has no sanitize by block erase", f"try --erase format; or {_WITHOUT}")
        if namespaces:
            raise SafetyError(f"a sanitize of {target.path} would erase {' and '.join(namespaces)}, too", _WITHOUT)


def format_drive(target: Target, progress: Progress) -> None:
    """Erase its user data by a format, which keeps its block size. Raises BlkreelError if the drive refuses."""
    shape = _json("id-ns", target)
    flbas, protection = shape.get("flbas", 0), shape.get("dps", 0)
    # All fields, because nvme-cli clears those that are not given.
    layout = {"lbaf": flbas & 15 | (flbas >> 5 & 3) << 4, "ms": flbas >> 4 & 1, "pi": protection & 7,
              "pil": protection >> 3 & 1}
    with progress("formatting", None) as task:
        task.update(0, "the drive reports no progress")
        _run("format", target, f"--ses={_SES_USER_DATA}", *(f"--{name}={value}" for name, value in layout.items()),
             "--force", f"--timeout={_FORMAT_TIMEOUT_S * 1000}", timeout_s=_FORMAT_TIMEOUT_S)


def sanitize(target: Target, began: bool, on_began: Callable[[], None], progress: Progress,
             poll_s: float = _POLL_S) -> None:
    """Erase it by a sanitize and wait for its end; the drive continues even if this process ends.

    began: whether an interrupted command has started it already; then only wait. Raises BlkreelError if it fails.
    """
    status, _ = _sanitize_status(target)
    if status != _SSTAT_RUNNING and not (began and status in (_SSTAT_DONE, _SSTAT_DONE_ALLOCATED)):
        _run("sanitize", target, f"--sanact={_SANACT_BLOCK_ERASE}")
    on_began()
    with progress("sanitizing", 100) as task:
        while True:
            status, done = _sanitize_status(target)
            if status in (_SSTAT_DONE, _SSTAT_DONE_ALLOCATED):
                return
            if status != _SSTAT_RUNNING:
                raise BlkreelError(f"the sanitize of {target.path} failed; the drive takes no I/O until one succeeds",
                                   f"see: nvme sanitize-log {target.path}; then run the same again")
            task.update(100 * done / _SPROG_WHOLE, "it goes on even if this ends")
            time.sleep(poll_s)


def _sanitize_status(target: Target) -> tuple[int, int]:
    """The status, and the progress in parts of 65,536."""
    log = _json("sanitize-log", target)
    # Under the name of the drive, in some versions; the status a number or, in others, `(2) Sanitize in progress`.
    log = next((entry for entry in [log, *log.values()] if isinstance(entry, dict) and "sprog" in entry), {})
    status = log.get("sstat")
    status = status.get("status") if isinstance(status, dict) else status
    number = re.search(r"\d+", str(status))
    if not number:
        raise BlkreelError(f"nvme-cli printed no sanitize status of {target.path}",
                           f"see: nvme sanitize-log {target.path}")
    return int(number[0]) & 7, int(log.get("sprog", 0))


def _other_namespaces(target: Target, sys_root: Path) -> list[str]:
    """The drive's other namespaces: those that the kernel shows, by the serial, and others if the drive lists them."""
    erased = target.drive
    names = [drive.path for drive in list_drives(sys_root)
             if drive.serial == erased.serial and drive.name != erased.name and drive.name.startswith("nvme")]
    try:
        listed = _json("list-ns", target, "--all")
    except BlkreelError:
        return names  # a drive without namespace management has only those that it shows
    entries = [entry for entry in listed.get("nsid_list", []) if isinstance(entry, dict) and entry.get("nsid")]
    hidden = len(entries) - 1 - len(names)
    return [*names, f"{hidden} more that this machine does not show"] if hidden > 0 else names


def _json(verb: str, target: Target, *more: str) -> dict[str, Any]:
    text = _run(verb, target, *more, "--output-format=json")
    try:
        document = json.loads(text[text.index("{"):])
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise BlkreelError(f"nvme {verb} {target.path} printed no JSON",
                           "check that nvme-cli has version 2: nvme version")
    return document


def _run(verb: str, target: Target, *more: str, timeout_s: float = _CALL_TIMEOUT_S) -> str:
    program = find_program("nvme")
    if program is None:
        raise BlkreelError("nvme-cli is not installed", "apt-get install nvme-cli")
    command = [program, verb, str(target.path), *more]
    _require_same(target, f"nvme {verb} was not run")
    try:
        # A session of its own: a Ctrl-C must not take it down while the drive is at it.
        done: subprocess.CompletedProcess[str] = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, start_new_session=True)
    except subprocess.TimeoutExpired:
        raise BlkreelError(f"nvme {verb} {target.path} has not ended after {timeout_s} s",
                           "read the kernel log: dmesg | tail") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
        raise BlkreelError(f"nvme {verb} {target.path} failed: {lines[-1]}", "read the kernel log: dmesg | tail")
    _require_same(target, f"nvme {verb} may have gone to what it is now")
    return done.stdout


def _require_same(target: Target, consequence: str) -> None:
    """nvme-cli takes a name only. Claimed, the drive keeps its number, so only the node itself can be replaced."""
    identity = Identity.named(target.path)
    if identity != target.identity:
        raise SafetyError(f"{target.path} was replaced after it was checked; {consequence}",
                          f"see what it is now: ls -l {target.path}")
