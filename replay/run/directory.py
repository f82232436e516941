"""The directory of a run. Creating it never destroys anything but a run, and that only with --force."""

import os
from pathlib import Path
from typing import Any

from blkreel.common.errors import BlkreelError, OutputExists, TraceError, os_errors
from blkreel.common.files.output_lock import lock_directory, refuse_in_use, spool_of
from blkreel.common.files.safe_files import directory_at, make_directory, refuse_missing_directory, remove_directory
from blkreel.traces.format.overrides import FILE as OVERRIDES
from blkreel.traces.format.reader import BASELINE, LATENCY_LOG, RUN_RECORDS, open_trace
from blkreel.traces.spool.spool import LAYOUT as SPOOL_LAYOUT
from blkreel.traces.telemetry.file import FILE as TELEMETRY

# All files that blkreel creates in a run's directory. The last patterns are temporary files, and figures that a report
# caches.
LAYOUT: dict[str, Any] = {RUN_RECORDS: None, TELEMETRY: None, OVERRIDES: None, f".{TELEMETRY}.spool": None,
          f".{RUN_RECORDS}.spool": SPOOL_LAYOUT, f".{RUN_RECORDS}.*": None, f".{TELEMETRY}.*.tmp": None,
          f".{OVERRIDES}.*.tmp": None}
LAYOUT |= {LATENCY_LOG: None, f".{LATENCY_LOG}.*.tmp": None}
LAYOUT[BASELINE] = dict(LAYOUT)


class RunDirectory:
    """path: the directory. records: the file of records in it. create() makes the directory, nothing before it.

    From create() to release() no other command writes to it.
    """

    def __init__(self, path: Path | str, force: bool):
        self.path = Path(path)
        self.records = self.path / RUN_RECORDS
        self._force = force
        self._created = False
        self._lock: int | None = None

    def check(self) -> None:
        """Raise BlkreelError if create() would fail or would replace something other than a run.

        An empty directory is fine, and one with nothing but a baseline. Raises SafetyError for a directory behind
        another user's symbolic link, OutputInUse for one that another command writes to.
        """
        self.check_place()
        refuse_in_use(self.path)
        refuse_in_use(self.records)  # the helper of a killed command still writes its last rows
        if not self.path.exists() or not {entry.name for entry in self.path.iterdir()} - {BASELINE}:
            return
        if not self._force and spool_of(self.records).is_dir():
            raise BlkreelError(f"{self.path} holds an unfinished replay that was killed",
                               f"finish it with: blkreel recover {self.path}, or add --force to discard it")
        if not self._force:
            raise OutputExists(self.path)
        if not self._is_run():
            raise BlkreelError(f"{self.path} is not a run: --force replaces only runs", "name another output")

    def check_place(self) -> None:
        """Raise BlkreelError if no directory of this path can be made or used, whatever it holds."""
        if not self.path.exists():
            refuse_missing_directory(self.path)
            return
        if not self.path.is_dir():
            raise BlkreelError(f"{self.path} is a file: a run needs a directory", "name another output")
        with directory_at(self.path):
            pass

    def create(self) -> None:
        """Make the directory and lock it. Raises BlkreelError if that fails, OutputInUse if another command has it."""
        if self._lock is not None:
            return
        with os_errors(BlkreelError, f"cannot make {self.path}", "name another output"):
            if not self.path.exists():
                make_directory(self.path)
                self._created = True
            self._lock = lock_directory(self.path)

    def release(self) -> None:
        """Let other commands write to it again."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def abandon(self) -> None:
        """Release it, and remove it if create() made it and it is empty."""
        if self._created:
            remove_directory(self.path, {})
        self.release()

    def _is_run(self) -> bool:
        if spool_of(self.records).is_dir():
            return True  # an unfinished replay
        try:
            return open_trace(self.records).is_run
        except TraceError:
            return False
