"""Reads the telemetry of a run, complete or as a killed run left it."""

import os
from pathlib import Path

from blkreel.common.files.output_lock import take_lock
from blkreel.common.files.safe_files import open_own, unlink

from .file import FILE, Telemetry, read_file, write_telemetry
from .spool import read_spool, spool_of

_CUT = "recovered after its writer died: the last samples may be missing"


def read_telemetry(run_directory: str | Path) -> Telemetry | None:
    """The telemetry of a run; None without any. Raises TraceError if it is damaged or of a later version."""
    path = Path(run_directory) / FILE
    if path.is_file():
        return read_file(path)
    spool = spool_of(run_directory)
    return read_spool(spool) if spool.is_file() else None


def recover_telemetry(run_directory: str | Path) -> Path | None:
    """Finish the spool of a killed run; None without one.

    Raises OutputInUse while the run is active, BlkreelError if the file cannot be written; the spool then stays.
    """
    spool = spool_of(run_directory)
    try:
        file = open(open_own(spool, os.O_RDONLY), "rb")
    except FileNotFoundError:
        return None
    with file:
        take_lock(run_directory, file.fileno())
        telemetry = read_spool(spool)
        for entry in telemetry.sensors.values():
            if entry["missing"] is None:
                entry["notes"].append(_CUT)
        # A file of that name is older: a run removes its spool as soon as its own file exists.
        path = write_telemetry(Path(run_directory) / FILE, telemetry, force=True)
        unlink(spool)
    return path
