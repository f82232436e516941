"""Erasing a drive by its own commands, through nvme-cli: format and sanitize. (A discard is a stream like any other.)

Both take more than what was named may be: a format may be of all namespaces, a sanitize always is. Neither is done
where there is another one.
"""

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from blkreel.traces.device import SYS, list_drives
from blkreel.traces.errors import BlkreelError, SafetyError, UsageError

from .target import Target

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
    """Raise unless the target can be erased so. Nothing is changed; asks the drive what it is able to.

    UsageError where it never could (a partition, no NVMe drive), BlkreelError where something lacks, SafetyError where
    it would erase more than this namespace.
    """
    if kind not in KINDS:
        raise UsageError(f"no such way to erase: {kind}", f"use one of: {', '.join(KINDS)}")
    if kind in ("discard", "none"):
        return
    if target.partition:
        raise UsageError(f"{target.path} is a partition, and a {kind} takes the whole drive",
                         f"name the drive: {target.drive.path}; or {_WITHOUT}")
    if not re.fullmatch(r"nvme\d+n\d+", target.drive.name):
        raise UsageError(f"{target.path} is no NVMe drive, which alone has a {kind}", _WITHOUT)
    if not shutil.which("nvme") and not shutil.which("nvme", path="/usr/sbin:/sbin"):
        raise BlkreelError(f"a {kind} needs nvme-cli, which is not installed", "apt-get install nvme-cli")
    able = _json("id-ctrl", target)
    others = _other_namespaces(target, sys_root)
    if kind == "format":
        if not able.get("oacs", 0) & _OACS_FORMAT:
            raise BlkreelError(f"{target.path} has no format", _WITHOUT)
        if others and able.get("fna", 0) & (_FNA_FORMATS_ALL | _FNA_ERASES_ALL):
            raise SafetyError(f"a format of {target.path} would erase {' and '.join(others)}, too", _WITHOUT)
    else:
        if not able.get("sanicap", 0) & _SANICAP_BLOCK_ERASE:
            raise BlkreelError(f"{target.path} has no sanitize by block erase", f"try --erase format; or {_WITHOUT}")
        if others:
            raise SafetyError(f"a sanitize of {target.path} would erase {' and '.join(others)}, too", _WITHOUT)


def format_drive(target: Target, progress) -> None:
    """Erase its user data by a format, which keeps its block size. Raises BlkreelError where the drive refuses."""
    shape = _json("id-ns", target)
    flbas, protection = shape.get("flbas", 0), shape.get("dps", 0)
    # All of it as it is: what is not said is set to nothing.
    layout = {"lbaf": flbas & 15 | (flbas >> 5 & 3) << 4, "ms": flbas >> 4 & 1, "pi": protection & 7,
              "pil": protection >> 3 & 1}
    with progress("formatting", None) as task:
        task.update(0, "the drive does not tell how far it is")
        _run("format", target, f"--ses={_SES_USER_DATA}", *(f"--{name}={value}" for name, value in layout.items()),
             "--force", f"--timeout={_FORMAT_TIMEOUT_S * 1000}", timeout_s=_FORMAT_TIMEOUT_S)


def sanitize(target: Target, began: bool, on_began: Callable[[], None], progress, poll_s: float = _POLL_S) -> None:
    """Erase it by a sanitize and wait for its end; the drive goes on with it whatever happens here.

    began: whether it was asked for it before, by a command that was interrupted; it is then only waited for.
    Raises BlkreelError where it fails.
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


def _sanitize_status(target) -> tuple[int, int]:
    """The status, and the progress in parts of 65,536."""
    log = _json("sanitize-log", target)
    # Under the name of the drive, in some versions; the status a number or, in others, `(2) Sanitize in progress`.
    log = next((entry for entry in [log, *log.values()] if isinstance(entry, dict) and "sprog" in entry), {})
    status = log.get("sstat")
    status = status.get("status") if isinstance(status, dict) else status
    number = re.search(r"\d+", str(status))
    if not number:
        raise BlkreelError(f"nvme-cli does not tell how far {target.path} is with its sanitize",
                           f"see: nvme sanitize-log {target.path}")
    return int(number[0]) & 7, int(log.get("sprog", 0))


def _other_namespaces(target, sys_root) -> list[str]:
    """What else of this drive the kernel shows, by the serial; with those it does not, where the drive lists them."""
    mine = target.drive
    names = [drive.path for drive in list_drives(sys_root)
             if drive.serial == mine.serial and drive.name != mine.name and drive.name.startswith("nvme")]
    try:
        listed = _json("list-ns", target, "--all")
    except BlkreelError:
        return names  # a drive without namespace management has only those that it shows
    known = [entry for entry in listed.get("nsid_list", []) if isinstance(entry, dict) and entry.get("nsid")]
    hidden = len(known) - 1 - len(names)
    return [*names, f"{hidden} more that this machine does not see"] if hidden > 0 else names


def _json(verb, target, *more) -> dict:
    text = _run(verb, target, *more, "--output-format=json")
    try:
        found = json.loads(text[text.index("{"):])
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise BlkreelError(f"nvme {verb} {target.path} printed no JSON",
                           "see whether nvme-cli is of version 2: nvme version")
    return found


def _run(verb, target, *more, timeout_s=_CALL_TIMEOUT_S) -> str:
    program = shutil.which("nvme") or shutil.which("nvme", path="/usr/sbin:/sbin")
    command = [program, verb, str(target.path), *more]
    try:
        # A session of its own: a Ctrl-C must not take it down while the drive is at it.
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, start_new_session=True)
    except subprocess.TimeoutExpired:
        raise BlkreelError(f"nvme {verb} {target.path} has not ended after {timeout_s} s",
                           "look at: dmesg | tail") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
        raise BlkreelError(f"nvme {verb} {target.path} failed: {said[-1]}", "look at: dmesg | tail")
    return done.stdout
