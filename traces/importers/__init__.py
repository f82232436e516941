"""Imports recordings of other tools. One file per format; the format is detected by content."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from blkreel.common.errors import TraceError, UsageError, did_you_mean
from blkreel.traces.format.schema import KEY_PREFIX, OPS, Metadata

from . import blktrace
from .column_mapping import EXAMPLE as COLUMNS_EXAMPLE
from .column_mapping import ColumnMapping
from .pipeline import Records, import_records
from .registry import FORMATS
from .source_file import SourceFile, read_head
from .source_format import ALIKE, ImportOptions, SourceFormat

__all__ = ["BLKTRACE", "FORMATS", "ImportOptions", "Imported", "Preview", "format_titles", "import_recording",
           "preview_recording"]

BLKTRACE = "blktrace"


@dataclass(frozen=True)
class Imported:
    """The result of an import. warnings: what is missing or incomplete, as in the metadata. missing: lost I/Os.

    assumed: units that the detected format assumes and the file does not state; "" if the format was chosen.
    """

    path: Path
    metadata: Metadata
    ios: dict[str, int]
    bytes: dict[str, int]
    missing: list[str]
    assumed: str = ""

    @property
    def warnings(self) -> list[str]:
        return list(self.metadata["import_warnings"])


@dataclass(frozen=True)
class Preview:
    """The first rows of an import: columns of a trace, times on the source's clock. rejected, ignored: of them."""

    format: str
    columns: dict[str, np.ndarray]
    devices: list[str]
    rejected: list[str]
    ignored: list[str]


def import_recording(names: list[Path], output: Path, *, force: bool = False, public: bool = False,
                     format_name: str | None = None, options: ImportOptions | None = None) -> Imported:
    """Make one trace from the files of one recording. Raises TraceError if their format is unknown.

    public: whether other users may read the trace. format_name: instead of detection by content.
    """
    files = files_of(names)
    format_ = format_of(files, format_name, options)
    refuse_options(format_, options)
    assumed = format_.assumed if isinstance(format_, SourceFormat) and format_name is None else ""
    if isinstance(format_, SourceFormat):
        metadata, ios, moved_bytes, missing = import_records(format_, files, output, options or ImportOptions(),
                                                             force=force, public=public)
    else:
        metadata, end, missing = blktrace.import_files(files, output, force=force, public=public)
        ios, moved_bytes = end["ios"], end["bytes"]
    return Imported(output, metadata, dict(zip(OPS, ios, strict=True)), dict(zip(OPS, moved_bytes, strict=True)),
                    missing, assumed)


def preview_recording(names: list[Path], rows: int, *, format_name: str | None = None,
                      options: ImportOptions | None = None) -> Preview:
    """The first rows as they would be imported, in the order of the source."""
    files = files_of(names)
    format_ = format_of(files, format_name, options)
    refuse_options(format_, options)
    if not isinstance(format_, SourceFormat):
        raise UsageError("--preview does not apply to binary files of blktrace", "import them; they need no mapping")
    records = Records(format_, files[:1], options or ImportOptions())
    parts: list[dict[str, np.ndarray]] = []
    for columns in records.columns():
        parts.append({name: values[:rows] for name, values in columns.items()})
        if sum(len(part["submit_ns"]) for part in parts) >= rows:
            break
    shared = [name for name in parts[0] if all(name in part for part in parts)] if parts else []
    return Preview(format_.name, {name: np.concatenate([part[name] for part in parts])[:rows] for name in shared},
                   [name.decode(errors="replace") for name in records.devices],
                   records.account.lines(records.account.rejected, "rejected"),
                   records.account.lines(records.account.ignored, "ignored"))


def format_titles() -> dict[str, str]:
    return {BLKTRACE: blktrace.NAME, **{format_.name: format_.title for format_ in FORMATS},
            ColumnMapping.name: ColumnMapping.title}


def refuse_options(format_: SourceFormat | str, options: ImportOptions | None) -> None:
    """Raise UsageError for an option that does not apply to the format."""
    if options is None:
        return
    if isinstance(format_, SourceFormat):
        if options.block_bytes is not None and not format_.has_block_size:
            raise UsageError(f"--block-size does not apply to the format {format_.name}, which states its units",
                             "leave it out; the preview has offsets and lengths in bytes: --preview")
    elif options != ImportOptions():
        raise UsageError("--device, --max-rejected, --block-size, --columns, --skip-lines and --clock-resolution do "
                         "not apply to files of blktrace",
                         "name the files of the device instead: blkreel import sda.blktrace.* -o sda.parquet")


def files_of(names: list[Path]) -> list[Path]:
    """The named files, or those that begin with a name, as DEVICE.blktrace.0 begins with DEVICE."""
    files: list[Path] = []
    for name in names:
        matches = [name] if name.is_file() else blktrace.files_named(name)
        if name.is_dir() and not matches:
            raise UsageError(f"{name} is a directory", f"name its files, for example: blkreel import {name}/* ...")
        if not matches and name.exists():
            raise UsageError(f"{name} is a pipe or a device", "write it to a file first: an import reads it twice")
        if not matches:
            raise UsageError(f"no such file: {name}", "name a file, or the common beginning of its files' names")
        files += [file for file in matches if file not in files]
    return files


def format_of(files: list[Path], name: str | None = None, options: ImportOptions | None = None) -> SourceFormat | str:
    """The format of all these files, or BLKTRACE.

    Raises TraceError if no format fits, UsageError if the files differ or `name` is unknown.
    """
    columns = options.columns if options else None
    if columns is not None:
        if name not in (None, ColumnMapping.name):
            raise UsageError(f"--columns does not apply to the format {name}", "give one of them")
        return ColumnMapping(columns)
    if options and options.skip_lines:
        raise UsageError("--skip-lines needs --columns", f"blkreel import FILE --columns {COLUMNS_EXAMPLE}")
    if name == ColumnMapping.name:
        raise UsageError("the format columns needs --columns", f"blkreel import FILE --columns {COLUMNS_EXAMPLE}")
    by_name = {format_.name: format_ for format_ in FORMATS}
    if name is not None:
        if name == BLKTRACE:
            return BLKTRACE
        if name not in by_name:
            raise UsageError(f"no such format: {name}", did_you_mean(name, format_titles(), _known()))
        return by_name[name]
    detected: dict[SourceFormat | str, Path] = {}
    for file in files:
        head = read_head(file)
        if head:
            detected.setdefault(_detect(file, head), file)
    if not detected:
        raise TraceError(f"{files[0]} is empty", "name a recording that has events")
    if len(detected) > 1:
        names = " and ".join(str(file) for file in detected.values())
        raise UsageError(f"{names} have different formats", "import them one by one")
    return next(iter(detected))


def _detect(file: Path, head: bytes) -> SourceFormat | str:
    if blktrace.recognize(head):
        with SourceFile(file) as source:
            source.refuse_packed("a file of blktrace")
        return BLKTRACE
    likeness = {format_: format_.likeness(head) for format_ in FORMATS}
    best = max(likeness, key=lambda format_: likeness[format_])
    if likeness[best] >= ALIKE:
        return best
    if _is_trace(file):
        raise UsageError(f"{file} is a trace of blkreel", f"use it as it is: blkreel info {file}")
    near = [f"{format_.name} {difference}" for format_ in FORMATS if (difference := format_.near_miss(head))]
    raise TraceError(f"{file}: unknown format",
                     (f"closest: {' or '.join(near)}; " if near else "")
                     + f"any CSV or Parquet file can be imported by --columns {COLUMNS_EXAMPLE}; {_known()}")


def _is_trace(file: Path) -> bool:
    with suppress(OSError, pa.ArrowException):
        return any(key.startswith(KEY_PREFIX.encode()) for key in pq.read_metadata(file).metadata or {})
    return False


def _known() -> str:
    return f"known formats: {', '.join(format_titles())}"
