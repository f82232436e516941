"""Repetitions of one replay: runs 1, 2, ... in one directory, which the same command continues.

`repetitions.json` holds the options that determine the runs, and the state that each of them starts from.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict

from blkreel.common.errors import BlkreelError, OutputExists, os_errors
from blkreel.common.files.json_file import write_json
from blkreel.common.files.output_lock import lock_directory, refuse_in_use, spool_of
from blkreel.common.files.safe_files import clear_directory, make_directory
from blkreel.common.files.typed_document import field_mismatch, parse_typed
from blkreel.common.system import closing_descriptor
from blkreel.replay.engine.untimed_io import Interrupted
from blkreel.replay.prepare.restore import StateRecipe
from blkreel.traces.format.reader import RUN_RECORDS, open_trace

from .account import RunAccount
from .directory import LAYOUT, RunDirectory

FILE = "repetitions.json"
MOST_REPETITIONS = 1000
MOST_ATTEMPTS = 3  # of --until-valid, per repetition wanted

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Repetition:
    number: int
    path: Path
    account: RunAccount

    @property
    def is_valid(self) -> bool:
        """Whether its verdict is valid or qualified."""
        return bool(self.account["verdict"]["level"] != "invalid")


class _Settings(TypedDict, total=False):
    on: list[str]


class _Document(TypedDict):
    version: int
    settings: _Settings
    states: list[dict[str, Any] | None]


class Repetitions:
    """The directory. wanted: how many runs. until_valid: count only runs that are not invalid.

    settings: the options that determine a run, as JSON values.
    """

    def __init__(self, path: Path | str, wanted: int, until_valid: bool, settings: Settings, force: bool):
        self.path, self.wanted, self.until_valid = Path(path), wanted, until_valid
        self._settings, self._force = dict(settings), force
        self.finished: list[Repetition] = []

    @property
    def is_complete(self) -> bool:
        counted = [repetition for repetition in self.finished if repetition.is_valid or not self.until_valid]
        return len(counted) >= self.wanted

    @property
    def attempts_left(self) -> int:
        """Runs that may follow: with until_valid at most MOST_ATTEMPTS for each run wanted."""
        most = self.wanted * MOST_ATTEMPTS if self.until_valid else self.wanted
        return 0 if self.is_complete else max(0, most - len(self.finished))

    def check(self) -> None:
        """Find the finished runs. Raises BlkreelError if the directory holds anything else, before it is changed."""
        RunDirectory(self.path, force=True).check_place()
        refuse_in_use(self.path)
        if not self.path.exists() or not any(self.path.iterdir()):
            return
        try:
            document = self._read()
        except OSError:
            raise OutputExists(self.path) if not self._force else BlkreelError(
                f"{self.path} holds no repetitions: --force replaces only those", "name another output") from None
        except ValueError as error:
            raise BlkreelError(f"{self.path / FILE} is damaged: {error}", "restore it from a copy, or name another "
                               "output") from None
        if self._force:
            return
        if different := [key for key, value in self._settings.items() if document["settings"].get(key) != value]:
            raise BlkreelError(f"{self.path} holds repetitions of another replay: {', '.join(different)} differ",
                               "name another output, or add --force to overwrite it")
        self.finished = list(self._finished_runs())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the directory, and exclude other commands from it during the block. Raises OutputInUse, BlkreelError."""
        with os_errors(BlkreelError, f"cannot make {self.path}", "name another output"):
            if not self.path.exists():
                make_directory(self.path)
            lock = lock_directory(self.path)
        with closing_descriptor(lock):
            yield

    def states(self, current: Callable[[], Sequence[StateRecipe | None]]) -> list[StateRecipe | None]:
        """The state of each drive that every run starts from; current() gives it for the first run.

        Empties the directory for the first run. An interrupted preparation leaves a drive without a state, so it is
        stored here.
        """
        document = None if self._force or not (self.path / FILE).exists() else self._read()
        if document is None:
            recipes = list(current())
            self._clear()
            write_json(self.path / FILE, {"version": 1, "settings": self._settings,
                                          "states": [recipe and asdict(recipe) for recipe in recipes]})
            return recipes
        return [StateRecipe(**recipe) if recipe else None for recipe in document["states"]]

    def next(self) -> tuple[int, RunDirectory]:
        """(number, directory) of the next run. A part of it, left by an interruption, is replaced."""
        number = len(self.finished) + 1
        return number, RunDirectory(self.path / str(number), force=True)

    def add(self, number: int, account: RunAccount) -> Repetition:
        """A run that has ended. Raises Interrupted if Ctrl-C cut it short."""
        if account["partial"] == "interrupted":
            raise self.interrupted()
        self.finished.append(Repetition(number, self.path / str(number), account))
        return self.finished[-1]

    def interrupted(self) -> Interrupted:
        return Interrupted(f"interrupted after {len(self.finished)} of {self.wanted} repetitions",
                           "run the same command again to continue")

    def _finished_runs(self) -> Iterator[Repetition]:
        """Those from 1 on, up to the first one that is missing or was interrupted."""
        number = 1
        while (self.path / str(number) / RUN_RECORDS).is_file():
            path = self.path / str(number)
            trace = open_trace(path)
            has_baseline = not self._settings.get("baseline") or trace.account.baseline
            if (not trace.is_run or trace.account.partial or not has_baseline
                    or spool_of(path / RUN_RECORDS).is_dir()):
                return
            yield Repetition(number, path, trace.metadata["run"])
            number += 1

    def _read(self) -> _Document:
        """Raises OSError, and ValueError for a damaged document."""
        document = parse_typed((self.path / FILE).read_bytes(), _Document)
        if document["version"] != 1:
            raise ValueError(f"version is {document['version']}, not 1")
        if len(document["states"]) != len(document["settings"].get("on", document["states"])):
            raise ValueError("states has not one entry for each drive")
        for state in filter(None, document["states"]):
            if wrong := field_mismatch(state, StateRecipe):
                raise ValueError(f"states: {wrong}")
            try:
                StateRecipe(**state)
            except TypeError as error:
                raise ValueError(f"states: {error}") from None
        return document

    def _clear(self) -> None:
        with os_errors(BlkreelError, f"cannot empty {self.path}", "name another output"):
            runs = {entry.name: LAYOUT for entry in self.path.iterdir() if entry.name.isdecimal()}
            clear_directory(self.path, {FILE: None, **runs})
