"""The directory of a run: made only where nothing is lost by it."""

from pathlib import Path

from blkreel.traces.errors import BlkreelError, OutputExists, TraceError
from blkreel.traces.reader import RUN_RECORDS, open_trace
from blkreel.traces.spool import spool_of


class RunDirectory:
    """path: the directory. records: the file in it. Nothing is made before create()."""

    def __init__(self, path, force: bool):
        self.path = Path(path)
        self.records = self.path / RUN_RECORDS
        self._force = force
        self._created = False

    def check(self) -> None:
        """Raise where create() would fail, or would take something away that is no run.

        An empty directory holds nothing to lose, and is taken.
        """
        if not self.path.exists():
            if not self.path.parent.is_dir():
                raise BlkreelError(f"{self.path.parent} is not a directory", f"mkdir -p {self.path.parent}")
            return
        if not self.path.is_dir():
            raise BlkreelError(f"{self.path} is a file, and a run is a directory", "name another output")
        if not any(self.path.iterdir()):
            return
        if not self._force and spool_of(self.records).is_dir():
            raise BlkreelError(f"{self.path} holds the rest of a replay that died",
                               f"finish it with: blkreel recover {self.records}, or add --force to discard it")
        if not self._force:
            raise OutputExists(self.path)
        if not self._is_run():
            raise BlkreelError(f"{self.path} is not a run, so --force does not replace it", "name another output")

    def create(self) -> None:
        """Make the directory. Raises BlkreelError where that is refused."""
        if self.path.exists():
            return
        try:
            self.path.mkdir()
        except OSError as error:
            raise BlkreelError(f"cannot make {self.path}: {error.strerror}", "name another output") from error
        self._created = True

    def abandon(self) -> None:
        """Take the directory away again, if it was made here and nothing is in it."""
        if self._created and not any(self.path.iterdir()):
            self.path.rmdir()

    def _is_run(self) -> bool:
        if spool_of(self.records).is_dir():
            return True  # the rest of a replay that died
        try:
            return open_trace(self.records).is_run
        except TraceError:
            return False
