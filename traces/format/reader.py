"""Opens traces and runs."""

from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from blkreel.common.command_line import command_line
from blkreel.common.errors import TraceError
from blkreel.common.files.storage_url import Location, StorageUrl
from blkreel.common.files.typed_document import parse_json
from blkreel.traces.samples import located

from .footer import FooterFirst, local_file, read_footer, refuse_unfinished
from .integrity import disagreement
from .metadata_types import wrong_metadata
from .overrides import amended
from .pages import check_columns, row_groups_of
from .schema import COLUMN_TYPES, FLAGS, KEY_PREFIX, OPS, SCHEMA_VERSION, TRACE_SCHEMA, Metadata
from .trace import Trace, damaged

RUN_RECORDS = "records.parquet"
BASELINE = "baseline"  # in the directory of a run: the run without the writes or the background
LATENCY_LOG = "latency-log.json"  # of the drives of a run, by themselves
TEST = "test.json"
CATALOG = "catalog.json"


def open_trace(path: str | Location, *, verify: bool = True) -> Trace:
    """Open a trace file, the records of a run directory, or a trace that ships (`sample:NAME`).

    path may be a URL (`s3://...`); only the needed ranges of the file are read. Raises TraceError for a file that is
    missing, empty, truncated, damaged, not Parquet, not a trace, or of a later version; with `verify` also for one
    whose rows are not those that its metadata describes.
    """
    path = located(path)
    if isinstance(path, StorageUrl):
        if path.suffix != ".parquet" and (path / RUN_RECORDS).is_file():
            path = path / RUN_RECORDS
    elif path.is_dir():
        if not (path / RUN_RECORDS).is_file() and (path / TEST).is_file():
            raise TraceError(f"{path} is a test; each of its steps is a run",
                             f"show the test: blkreel report {path}; or name a step: {path}/steps/NAME")
        if not (path / RUN_RECORDS).is_file():
            refuse_unfinished(path / RUN_RECORDS, path)
            if (baseline := path / BASELINE / RUN_RECORDS).is_file():
                raise TraceError(f"{path} is a run without its {RUN_RECORDS}: it has the baseline only",
                                 f"copy it again, or repeat the replay; the baseline alone: {baseline.parent}")
            raise TraceError(f"{path} is a directory without {RUN_RECORDS}",
                             "name a trace file, or a directory that `blkreel replay -o` made")
        path = path / RUN_RECORDS
    footer = read_footer(path)
    try:
        whole = FooterFirst(path, footer) if isinstance(path, StorageUrl) else local_file(path)
        row_groups = row_groups_of(footer)
        with pq.ParquetFile(whole) as file:
            schema, layout = file.schema_arrow, file.metadata
        check_columns(row_groups, [layout.schema.column(column).physical_type for column in range(layout.num_columns)])
        metadata = {(name := key.decode().removeprefix(KEY_PREFIX)): _decoded(name, value)
                    for key, value in (layout.metadata or {}).items() if key.startswith(KEY_PREFIX.encode())}
    except (OSError, pa.ArrowException, ValueError) as error:
        raise damaged(path, error) from error
    _check_schema(path, schema, metadata)
    if wrong := wrong_metadata(metadata):
        raise damaged(path, ValueError(f"metadata: {wrong}"))
    trace = Trace(path, amended(path, metadata), footer, layout, row_groups, verify)
    if verify and (why := disagreement(trace)):
        raise TraceError(f"{path} was changed after it was written: {why}", how_to_repair(trace))
    return trace


def _decoded(key: str, text: bytes) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise ValueError(f"metadata: {key} is not JSON: {error}") from None


def how_to_repair(trace: Trace) -> str:
    """The remedy for rows that do not agree with the metadata."""
    if trace.is_run:
        return "copy it again from an intact copy, or replay the trace again"
    output = f"{trace.path.stem}-repaired.parquet"
    return f"repair it: {command_line('check', '--repair', trace.path, '-o', output)}"


def counts_by_op(trace: Trace, devices: Collection[int] | None = None) -> tuple[dict[str, int], dict[str, int]]:
    """I/Os and bytes by operation name; of all devices, or of those with these numbers."""
    ios, moved = dict.fromkeys(OPS, 0), dict.fromkeys(OPS, 0)
    for batch in trace.batches(["op", "length_bytes", "device"]):
        op, length_bytes = batch["op"].to_numpy(), batch["length_bytes"].to_numpy()
        if devices is not None:
            on_devices = np.isin(batch["device"].to_numpy(), list(devices))
            op, length_bytes = op[on_devices], length_bytes[on_devices]
        for name, code in OPS.items():
            ios[name] += int((op == code).sum())
            moved[name] += int(length_bytes[op == code].sum())
    return ios, moved


def has_workload_io(trace: Trace) -> bool:
    """Whether any I/O is marked as one of the workload. Reads up to the first."""
    return any((batch["flags"].to_numpy() & FLAGS["own"]).any() for batch in trace.batches(["flags"]))


def _check_schema(path: Location, schema: pa.Schema, metadata: Metadata) -> None:
    version = metadata.get("schema_version")
    if version is None and set(TRACE_SCHEMA.names) <= set(schema.names):
        raise TraceError(f"{path} has the columns of a trace, but not its metadata: the program that wrote it "
                         "dropped them",
                         "write it from Python: blkreel.write_trace(PATH, ROWS, like=ORIGINAL)")
    if version is None:
        raise TraceError(f"{path} is a Parquet file, but not a trace (no {KEY_PREFIX}schema_version)",
                         "name a trace made by `blkreel capture`")
    if type(version) is not int or version < 1:
        raise TraceError(f"{path} has the invalid trace version {version!r}", "copy the file again, or record it again")
    if version > SCHEMA_VERSION:
        raise TraceError(f"{path} has trace version {version}; this blkreel reads up to {SCHEMA_VERSION}",
                         "update blkreel")
    missing = [name for name in TRACE_SCHEMA.names if name not in schema.names]
    if missing:
        raise TraceError(f"{path} lacks the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}",
                         "the file was changed after it was written: record it again")
    twice = [name for name in COLUMN_TYPES if schema.names.count(name) > 1]
    if twice:
        raise TraceError(f"{path} has the column {twice[0]} several times",
                         "the file was changed after it was written: record it again")
    wrong = [f.name for f in schema if f.name in COLUMN_TYPES and f.type != COLUMN_TYPES[f.name]]
    if wrong:
        raise TraceError(f"{path} has column {wrong[0]} as {schema.field(wrong[0]).type}, "
                         f"not {COLUMN_TYPES[wrong[0]]}", "the file was changed after it was written: record it again")
