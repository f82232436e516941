"""Recordings of other tools as traces. One file a format; which one it is, the content says."""

from dataclasses import dataclass
from pathlib import Path

from ..errors import TraceError, UsageError
from ..schema import OPS
from . import blktrace

FORMATS = [blktrace]


@dataclass(frozen=True)
class Imported:
    """What came out. warnings: what could not be taken over or is known in part, as in the metadata."""

    path: Path
    metadata: dict
    ios: dict[str, int]
    bytes: dict[str, int]
    missing: list[str]

    @property
    def warnings(self) -> list[str]:
        return self.metadata["import_warnings"]


def import_recording(names: list[Path], output: Path, *, force: bool = False) -> Imported:
    """Make one trace of the files of one recording. Raises TraceError where they are of no known format."""
    files = files_of(names)
    format_ = format_of(files)
    metadata, end, missing = format_.import_files(files, output, force=force)
    return Imported(output, metadata, dict(zip(OPS, end["ios"], strict=True)),
                    dict(zip(OPS, end["bytes"], strict=True)), missing)


def files_of(names: list[Path]) -> list[Path]:
    """The files themselves, or those of which a name is the common part, as DEVICE is of DEVICE.blktrace.0."""
    files = []
    for name in names:
        found = [name] if name.is_file() else [file for one in FORMATS for file in one.files_named(name)]
        if name.is_dir() and not found:
            raise UsageError(f"{name} is a directory", f"name the files in it, as in: blkreel import {name}/* ...")
        if not found:
            raise UsageError(f"no such file: {name}", "name a file, or what its files' names begin with")
        files += [file for file in found if file not in files]
    return files


def format_of(files: list[Path]):
    """The importer that knows all of these files."""
    found = {}
    for file in files:
        try:
            with open(file, "rb") as opened:
                head = opened.read(4096)
        except OSError as error:
            raise TraceError(f"cannot read {file}: {error.strerror}") from error
        if head:
            found.setdefault(next((one for one in FORMATS if one.recognise(head)), None), file)
    known = ", ".join(one.NAME for one in FORMATS)
    if not found:
        raise TraceError(f"{files[0]} is empty", "name a recording that holds something")
    if None in found:
        raise TraceError(f"{found[None]}: of no known format", f"formats known are: {known}")
    if len(found) > 1:
        names = " and ".join(str(file) for file in found.values())
        raise UsageError(f"{names} are of different formats", "import them one by one")
    return next(iter(found))
