"""What was measured beside a run: read whole, or as a run that was killed has left it."""

from pathlib import Path

from .errors import TraceError
from .telemetry_file import FILE, Telemetry, read_file, write_telemetry
from .telemetry_spool import lock_file, read_spool, spool_of

_CUT = "it was recovered after its writer died: what came last may be missing"


def read_telemetry(run_directory) -> Telemetry | None:
    """What was measured beside a run, whole or left by one that was killed; None where nothing was.

    Raises TraceError for a file that is damaged or of a later version.
    """
    path = Path(run_directory) / FILE
    if path.is_file():
        return read_file(path)
    spool = spool_of(run_directory)
    return read_spool(spool) if spool.is_file() else None


def recover_telemetry(run_directory) -> Path | None:
    """Finish what a killed run left behind; None where it left nothing.

    Raises TraceError while the run still lives, BlkreelError where the file cannot be written: the spool then stays.
    """
    spool = spool_of(run_directory)
    try:
        file = open(spool, "rb")
    except FileNotFoundError:
        return None
    with file:
        if not lock_file(file):
            raise TraceError(f"{spool} is still being written", "stop its replay with Ctrl-C")
        held = read_spool(spool)
        for entry in held.sensors.values():
            if entry["missing"] is None:
                entry["notes"].append(_CUT)
        # Whatever has the name is older: a run removes its spool as soon as its own file is there.
        path = write_telemetry(Path(run_directory) / FILE, held, force=True)
        spool.unlink()
    return path
