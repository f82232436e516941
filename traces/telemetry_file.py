"""What was measured beside a run: `telemetry.parquet`, version 1. docs/telemetry.md is its contract."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .errors import TraceError
from .schema import KEY_PREFIX
from .writer import output_error, publish, refuse_existing

VERSION = 1
FILE = "telemetry.parquet"
SCHEMA = pa.schema([
    pa.field("time_ns", pa.int64(), nullable=False),
    pa.field("sensor", pa.dictionary(pa.int32(), pa.string()), nullable=False),
    pa.field("value", pa.float64(), nullable=False),
])
_KEY = f"{KEY_PREFIX}telemetry"
_ROWS_PER_GROUP = 1_000_000

Series = tuple[np.ndarray, np.ndarray]


def sensor(unit: str, source: str, rate_hz: float | None = None, *, missing: str | None = None, gaps=(),
           notes=()) -> dict:
    """An entry of the metadata's `sensors`.

    rate_hz: None where nothing sets a pace. missing: why there is no sample at all. gaps: [from_ns, to_ns], stretches
    in which a sample should have been. notes: what else is to be known of it, in words.
    """
    return {"unit": unit, "source": source, "rate_hz": rate_hz, "samples": 0, "missing": missing,
            "gaps": [[int(begin), int(end)] for begin, end in gaps], "notes": list(notes)}


@dataclass(frozen=True)
class Telemetry:
    """What stands in a file, or in what a killed run left of one.

    sensors: name -> as sensor() makes it. smart: {"before": {field: value}, "after": {...}}, each may be absent.
    epoch_ns: CLOCK_MONOTONIC at time 0, the run's start; None where the run died before that, and time 0 is then
    the first sample.
    """

    sensors: dict[str, dict]
    smart: dict[str, dict] = field(default_factory=dict)
    epoch_ns: int | None = None
    samples: Mapping[str, Series] = field(default_factory=dict)

    def series(self, name: str) -> Series:
        """time_ns (int64) and values (float64) of a sensor, in order of time; both empty where it has none."""
        return self.samples.get(name) or (np.empty(0, np.int64), np.empty(0))


def write_telemetry(path, telemetry: Telemetry, *, force: bool = False) -> Path:
    """Write the file; it gets its name when it is whole. Raises OutputExists, or BlkreelError for a full disk."""
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
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            with pq.ParquetWriter(file, SCHEMA, compression="zstd", use_dictionary=["sensor"],
                                  write_page_checksum=True) as writer:
                writer.write_table(table, row_group_size=_ROWS_PER_GROUP)
                writer.add_key_value_metadata({_KEY: json.dumps(metadata, separators=(",", ":"))})
            file.flush()
            os.fsync(file.fileno())
        publish(temporary, path, force)
    except OSError as error:
        raise output_error(path, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink()
    return path


def read_file(path) -> Telemetry:
    """Read one file. Raises TraceError, with the remedy, where it is none, damaged, or of a later version."""
    path = Path(path)
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            raw = (file.metadata.metadata or {}).get(_KEY.encode())
            table = file.read() if raw is not None else None
        told = json.loads(raw) if raw is not None else None
    except FileNotFoundError:
        raise TraceError(f"{path} does not exist", "name a run that `blkreel replay -o` made") from None
    except (OSError, pa.ArrowException, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise TraceError(f"{path} is damaged ({reason})", "copy it again from where it was whole") from error
    if not isinstance(told, dict) or not set(SCHEMA.names) <= set(table.column_names):
        raise TraceError(f"{path} is a Parquet file, but not telemetry (no {_KEY})",
                         "name a run that `blkreel replay -o` made")
    if not isinstance(told.get("version"), int) or told["version"] > VERSION:
        raise TraceError(f"{path} has telemetry version {told.get('version')}; this blkreel reads up to {VERSION}",
                         "update blkreel")
    return Telemetry(told["sensors"], told["smart"], told["epoch_ns"], _by_sensor(table))


def _by_sensor(table: pa.Table) -> dict[str, Series]:
    column = table["sensor"].combine_chunks()
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    if isinstance(column, pa.ChunkedArray):  # a table of no rows has no chunk to combine
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([]).dictionary_encode()
    code = column.indices.to_numpy(zero_copy_only=False)
    time_ns, value = table["time_ns"].to_numpy(), table["value"].to_numpy()
    return {name: (time_ns[code == number], value[code == number])
            for number, name in enumerate(column.dictionary.to_pylist()) if (code == number).any()}
