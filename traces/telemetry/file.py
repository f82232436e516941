"""`telemetry.parquet`, version 1: samples taken beside a run. docs/telemetry.md specifies it."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from blkreel.common.errors import TraceError
from blkreel.common.files.safe_files import NewFile
from blkreel.common.files.typed_document import mismatch, parse_json
from blkreel.common.units import format_bytes
from blkreel.traces.format.footer import Footer, local_file, read_footer
from blkreel.traces.format.pages import PageCheck, PageLimitError, RowGroup, row_groups_of
from blkreel.traces.format.schema import KEY_PREFIX
from blkreel.traces.format.writer import output_errors, refuse_existing

VERSION = 1
FILE = "telemetry.parquet"
SCHEMA = pa.schema([
    pa.field("time_ns", pa.int64(), nullable=False),
    pa.field("sensor", pa.dictionary(pa.int32(), pa.string()), nullable=False),
    pa.field("value", pa.float64(), nullable=False),
])
_KEY = f"{KEY_PREFIX}telemetry"
_ROWS_PER_GROUP = 1_000_000
_MOST_ROWS = 2_000_000  # and one per byte of the file: a sample takes 20 bytes of memory

Series = tuple[np.ndarray, np.ndarray]
Sensor = dict[str, Any]  # an entry of the metadata's `sensors`, as sensor() makes it


def sensor(unit: str, source: str, rate_hz: float | None = None, *, missing: str | None = None,
           gaps: Iterable[tuple[int, int]] = (), notes: Iterable[str] = ()) -> Sensor:
    """An entry of the metadata's `sensors`.

    rate_hz: None without a fixed rate. missing: why there are no samples. gaps: (from_ns, to_ns) in which samples are
    missing.
    """
    return {"unit": unit, "source": source, "rate_hz": rate_hz, "samples": 0, "missing": missing,
            "gaps": [[int(begin), int(end)] for begin, end in gaps], "notes": list(notes)}


@dataclass(frozen=True)
class Telemetry:
    """The content of a telemetry file, or of the spool that a killed run left.

    smart: {"before": {field: value}, "after": {...}}, each may be absent. epoch_ns: CLOCK_MONOTONIC at time 0, the
    run's start; None if the run died before its start, and time 0 is then the first sample.
    """

    sensors: dict[str, Sensor]
    smart: dict[str, dict[str, Any]] = field(default_factory=dict)
    epoch_ns: int | None = None
    samples: Mapping[str, Series] = field(default_factory=dict)

    def series(self, name: str) -> Series:
        """time_ns (int64) and values (float64) of a sensor, in order of time; both are empty without samples."""
        return self.samples.get(name) or (np.empty(0, np.int64), np.empty(0))


def write_telemetry(path: str | Path, telemetry: Telemetry, *, force: bool = False) -> Path:
    """Write the file; it gets its name when it is complete. Raises OutputExists, or BlkreelError for a full disk."""
    path = Path(path)
    refuse_existing(path, force)
    sensors, parts = {}, []
    for number, (name, entry) in enumerate(telemetry.sensors.items()):
        time_ns, value = telemetry.series(name)
        time_ns, value = time_ns[np.isfinite(value)], value[np.isfinite(value)]
        sensors[name] = {**entry, "samples": len(time_ns)}
        parts.append((time_ns, np.full(len(time_ns), number, np.int32), value))
    columns = [np.concatenate([part[at] for part in parts] or [np.empty(0)]) for at in range(3)]
    order = np.argsort(columns[0], kind="stable")
    time_ns, code, value = (column[order] for column in columns)
    table = pa.Table.from_arrays([
        pa.array(time_ns, pa.int64()),
        pa.DictionaryArray.from_arrays(pa.array(code, pa.int32()), pa.array(list(sensors), pa.string())),
        pa.array(value, pa.float64())], schema=SCHEMA)
    metadata = {"version": VERSION, "sensors": sensors, "smart": telemetry.smart, "epoch_ns": telemetry.epoch_ns}
    with output_errors(path), NewFile(path, force=force) as new:
        with pq.ParquetWriter(new.file, SCHEMA, compression="zstd", use_dictionary=["sensor"],
                              write_page_checksum=True) as writer:
            writer.write_table(table, row_group_size=_ROWS_PER_GROUP)
            writer.add_key_value_metadata({_KEY: json.dumps(metadata, separators=(",", ":"))})
        new.publish()
    return path


class _Sensor(TypedDict):
    """As sensor() makes it."""

    unit: str
    source: str
    rate_hz: float | None
    samples: int
    missing: str | None
    gaps: list[list[int]]
    notes: list[str]


class _Document(TypedDict):
    sensors: dict[str, _Sensor]
    smart: dict[str, dict[str, Any]]
    epoch_ns: int | None


def read_file(path: str | Path) -> Telemetry:
    """Read one file. Raises TraceError if it is damaged, of another kind, or of a later version."""
    path = Path(path)
    try:
        footer = read_footer(path)
        row_groups = row_groups_of(footer)
        with pq.ParquetFile(local_file(path), page_checksum_verification=True) as file:
            raw = (file.metadata.metadata or {}).get(_KEY.encode())
            _check_size(path, footer, row_groups, file.metadata.num_rows)
            table = file.read() if raw is not None else None
        document = parse_json(raw) if raw is not None else None
    except FileNotFoundError:
        raise TraceError(f"{path} does not exist", "name a run that `blkreel replay -o` made") from None
    except PageLimitError as error:
        raise TraceError(f"{path} {error}", "copy it again from where it was whole") from error
    except (OSError, pa.ArrowException, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise TraceError(f"{path} is damaged ({reason})", "copy it again from where it was whole") from error
    if not isinstance(document, dict) or table is None or not set(SCHEMA.names) <= set(table.column_names):
        raise TraceError(f"{path} is a Parquet file, but not telemetry (no {_KEY})",
                         "name a run that `blkreel replay -o` made")
    if not isinstance(document.get("version"), int) or document["version"] > VERSION:
        raise TraceError(f"{path} has telemetry version {document.get('version')}; this blkreel reads up to {VERSION}",
                         "update blkreel")
    if wrong := mismatch(document, _Document):
        raise TraceError(f"{path} is damaged ({wrong})", "copy it again from where it was whole")
    for name, entry in document["sensors"].items():
        if any(len(gap) != 2 for gap in entry["gaps"]):
            raise TraceError(f"{path} is damaged (sensors.{name}.gaps are not pairs)",
                             "copy it again from where it was whole")
    return Telemetry(document["sensors"], document["smart"], document["epoch_ns"], _by_sensor(table))


def _check_size(path: Path, footer: Footer, row_groups: list[RowGroup], rows: int) -> None:
    """Refuse a file whose samples take far more memory than the file. Raises PageError."""
    if rows > _MOST_ROWS + footer.size_bytes:
        raise PageLimitError(f"has {rows:,} samples in {format_bytes(footer.size_bytes)} "
                             f"(limit {_MOST_ROWS + footer.size_bytes:,})")
    PageCheck(footer, row_groups).check_file(path)


def _by_sensor(table: pa.Table) -> dict[str, Series]:
    column = table["sensor"].combine_chunks()
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    if isinstance(column, pa.ChunkedArray):  # a table without rows has no chunk to combine
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([]).dictionary_encode()
    code = column.indices.to_numpy(zero_copy_only=False)
    time_ns, value = table["time_ns"].to_numpy(), table["value"].to_numpy()
    return {name: (time_ns[code == number], value[code == number])
            for number, name in enumerate(column.dictionary.to_pylist()) if (code == number).any()}
