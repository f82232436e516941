"""The tables of a catalog, tables/results.parquet and tables/metrics.parquet: a copy of its results for queries.

A row of `results` has the size, the time and the SHA-256 of the file it was read from. A file of another time, as in a
copied catalog, is parsed again only if its content differs; so a table that is missing, old or of another catalog costs
time and no digit.
"""

import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from blkreel.common.errors import BlkreelError, SafetyError, os_errors
from blkreel.common.files.safe_files import NewFile, read_plain
from blkreel.common.printable import storable
from blkreel.common.progress import Progress
from blkreel.common.verdict import LEVELS
from blkreel.traces.format.condition import Condition, said_inputs, workload_checksum, workload_words
from blkreel.traces.format.footer import local_file, read_footer
from blkreel.traces.format.pages import PageCheck, PageError

from .result import CatalogError, Kind, Result, parse

RESULTS, METRICS = "results.parquet", "metrics.parquet"
# Columns in which matching() searches.
_OF_DRIVE = ("label", "model", "firmware", "unit")
_OF_WORKLOAD = ("workload_title", "workload_name")
_FORMAT, _VERSION, _GENERATION = b"blkreel.catalog", b"5", b"blkreel.generation"
_NAMES = pa.dictionary(pa.int32(), pa.string())
RESULT_SCHEMA = pa.schema([
    ("id", pa.string()), ("kind", _NAMES), ("label", _NAMES), ("model", _NAMES), ("firmware", _NAMES), ("unit", _NAMES),
    ("capacity_bytes", pa.int64()), ("drive_kind", _NAMES), ("interface", _NAMES), ("simulated", pa.bool_()),
    ("workload", _NAMES), ("workload_title", _NAMES), ("workload_name", _NAMES), ("pace", _NAMES), ("state", _NAMES),
    ("condition", _NAMES), ("headline", _NAMES), ("headline_value", pa.float64()), ("headline_unit", _NAMES),
    ("verdict", _NAMES), ("reasons", _NAMES),
    ("started_at", pa.string()), ("host", _NAMES), ("kernel", _NAMES),
    ("blkreel", _NAMES), ("rows", pa.int64()), ("path", pa.string()), ("partial", pa.string()),
    ("file_bytes", pa.int64()), ("file_mtime_ns", pa.int64()), ("file_sha256", pa.string())])
METRIC_SCHEMA = pa.schema([
    ("id", _NAMES), ("key", _NAMES), ("value", pa.float64()), ("unit", _NAMES), ("low", pa.float64()),
    ("high", pa.float64()), ("n", pa.int32()), ("better", _NAMES)])
_MAY_BE_MISSING = ("capacity_bytes", "headline_value", "started_at", "partial", "low", "high")
_CHOICES = {"kind": get_args(Kind), "verdict": LEVELS}
_FEWEST_SHOWN = 500  # that take a second; fewer need no progress
_Read = tuple[Result, str]  # a result, SHA-256 of its file


@dataclass(frozen=True)
class Tables:
    """results: RESULT_SCHEMA, by id. metrics: METRIC_SCHEMA. damaged: file -> the error of each that was not read."""

    results: pa.Table
    metrics: pa.Table
    damaged: Mapping[Path, CatalogError]


def refreshed(results: Path, tables: Path, progress: Progress, *, with_metrics: bool = False) -> Tables:
    """The tables of the results in a directory, written again if they were not of it.

    with_metrics: whether Tables.metrics is needed; else it may be empty. Raises FileNotFoundError without results.
    """
    with os.scandir(results) as entries:
        files = {entry.name: (status.st_size, status.st_mtime_ns) for entry in entries
                 if is_result(entry.name) for status in (entry.stat(),)}
    read_before = stored = _stored(tables / RESULTS, RESULT_SCHEMA)
    stored = _with_times(stored, results, files)
    metrics = METRIC_SCHEMA.empty_table()
    is_current = _is_current(stored, files)
    if with_metrics or stored is not read_before or not all(is_current) or len(is_current) != len(files):
        metrics = _stored(tables / METRICS, METRIC_SCHEMA)
        # A writer was killed between the two, or another wrote both while this one read: metrics would be missing.
        if _generation(metrics) != _generation(read_before):
            stored, metrics, is_current = RESULT_SCHEMA.empty_table(), METRIC_SCHEMA.empty_table(), []
    current = stored.filter(pa.array(is_current, pa.bool_()))
    missing = sorted(files.keys() - {f"{id_}.json" for id_ in current["id"].to_pylist()})
    read, damaged = _read(results, missing, progress)
    if not read and current.num_rows == stored.num_rows and stored is read_before:
        return Tables(stored, metrics, damaged)
    metrics = metrics.filter(pc.is_in(metrics["id"].cast(pa.string()), value_set=current["id"].combine_chunks()))
    current = pa.concat_tables([current, _rows(read, files)]).unify_dictionaries().combine_chunks().sort_by("id")
    metrics = pa.concat_tables([metrics, _metric_rows(read)]).unify_dictionaries().combine_chunks()
    _write(tables, {METRICS: metrics, RESULTS: current})
    return Tables(current, metrics, damaged)


def is_result(name: str) -> bool:
    """Whether a file of results/ is a result, and not the temporary file of an add that was killed."""
    return name.endswith(".json") and not name.startswith(".")


def _is_current(stored: pa.Table, files: Mapping[str, tuple[int, int]]) -> list[bool]:
    """Of each row, whether its file is the one that was read."""
    rows = zip(*(stored[name].to_pylist() for name in ("id", "file_bytes", "file_mtime_ns")), strict=True)
    return [files.get(f"{name}.json") == (size, mtime_ns) for name, size, mtime_ns in rows]


def _with_times(stored: pa.Table, results: Path, files: Mapping[str, tuple[int, int]]) -> pa.Table:
    """The rows with the times of their files now, where a file of another time has the content that was read."""
    columns = [stored[name].to_pylist() for name in ("id", "file_bytes", "file_mtime_ns", "file_sha256")]
    times_ns = [files[name][1] if name in files and files[name][0] == size and files[name][1] != mtime_ns
                and checksum_of(results / name) == sha256 else mtime_ns
                for id_, size, mtime_ns, sha256 in zip(*columns, strict=True) for name in (f"{id_}.json",)]
    if times_ns == columns[2]:
        return stored
    at = stored.schema.get_field_index("file_mtime_ns")
    return stored.set_column(at, stored.schema.field(at), pa.array(times_ns, pa.int64()))


def checksum_of(path: Path) -> str:
    """Empty for a file that is gone."""
    try:
        return hashlib.sha256(read_plain(path)).hexdigest()
    except OSError:
        return ""


def _generation(table: pa.Table) -> bytes | None:
    """Equal for the two tables that were written together."""
    return (table.schema.metadata or {}).get(_GENERATION)


def _stored(path: Path, schema: pa.Schema) -> pa.Table:
    """The table of a file, empty if it is missing, damaged or of another version: the results replace it."""
    try:
        PageCheck(read_footer(path)).check_file(path)
        with pq.ParquetFile(local_file(path)) as file:  # read_table() loads pyarrow.dataset first
            table = file.read()
        table.validate(full=True)  # also that texts are UTF-8
    except (OSError, pa.ArrowException, PageError, BlkreelError):
        return schema.empty_table()
    is_known = (table.schema.metadata or {}).get(_FORMAT) == _VERSION and table.schema.equals(schema)
    return table if is_known and all(map(_has_values, schema.names, table.columns)) else schema.empty_table()


def _has_values(name: str, column: pa.ChunkedArray) -> bool:
    """Whether each value of a column is one that _table() writes."""
    if column.null_count and name not in _MAY_BE_MISSING:
        return False
    if pa.types.is_floating(column.type):
        return bool(pc.all(pc.is_finite(column), min_count=0).as_py())
    return set(column.unique().to_pylist()) <= set(_CHOICES[name]) if name in _CHOICES else True


def _read(results: Path, names: Sequence[str],
          progress: Progress) -> tuple[list[_Read], dict[Path, CatalogError]]:
    read: list[_Read] = []
    damaged: dict[Path, CatalogError] = {}
    for name in _counted(names, progress):
        path = results / name
        try:
            content = _content(path)
            read.append((_parsed(content, path), hashlib.sha256(content).hexdigest()))
        except CatalogError as error:
            damaged[path] = error
    return read, damaged


def _counted(names: Sequence[str], progress: Progress) -> Iterator[str]:
    if len(names) < _FEWEST_SHOWN:
        yield from names
        return
    with progress("reading new results", len(names)) as task:
        for number, name in enumerate(names):
            yield name
            task.update(number + 1)


def read_result(path: Path) -> Result:
    """Raises CatalogError for a file that is missing, damaged, or not of its name."""
    return _parsed(_content(path), path)


def read_hashed_result(path: Path) -> tuple[Result, str]:
    """(as read_result(), SHA-256 of the file)."""
    content = _content(path)
    return _parsed(content, path), hashlib.sha256(content).hexdigest()


def _content(path: Path) -> bytes:
    with os_errors(CatalogError, f"{path} cannot be read", f"ls -l {path}"):
        return read_plain(path)


def _parsed(content: bytes, path: Path) -> Result:
    result = parse(content, path)
    if path.name != f"{result['id']}.json":
        raise CatalogError(f"{path} was renamed: it holds the result {result['id']}",
                           f"mv {path} {path.with_name(result['id'] + '.json')}")
    return result


def _rows(read: list[_Read], files: Mapping[str, tuple[int, int]]) -> pa.Table:
    return _table(RESULT_SCHEMA, [{
        **{key: result[key] for key in ("id", "kind", "label", "simulated", "pace", "state",
                                      "started_at", "host", "kernel", "blkreel", "rows", "path")},
        **{key: result["drive"][key]
           for key in ("model", "firmware", "unit", "capacity_bytes", "interface")},
        "drive_kind": result["drive"]["kind"], "workload_name": result["workload"]["name"],
        **_inputs(result), "headline": result["headline"], **_headline(result),
        "verdict": result["verdict"]["level"],
        "reasons": ",".join(dict.fromkeys(reason.get("code", "") for reason in result["verdict"]["reasons"])),
        "partial": result["partial"]["sha256"] if result["partial"] else None,
        "file_bytes": files[f"{result['id']}.json"][0], "file_mtime_ns": files[f"{result['id']}.json"][1],
        "file_sha256": sha256,
    } for result, sha256 in read])


def _inputs(result: Result) -> dict[str, str]:
    """The workload, which may be a step of a benchmark, and the inputs beside workload and pace as text.

    The checksum of a test covers its parameters and the inputs that keep tests apart.
    """
    workload, results = result["workload"], result["results"]
    names = {"workload": workload["checksum"], "workload_title": workload["title"]}
    if result["metadata"]:
        source = result["metadata"].get("run", {}).get("source", {})
        generated = {"workload": workload_checksum(source), "workload_title": workload_words(source)}
        names = names if workload["checksum"] else generated
        return {**names, "condition": Condition.of(result["metadata"]).words()}
    return {**names, "condition": "; ".join(f"{name} {text}" for name, text in said_inputs(results or {}).items())}


def _headline(result: Result) -> dict[str, Any]:
    metric = result["metrics"].get(result["headline"])
    return {"headline_value": metric["value"] if metric else None, "headline_unit": metric["unit"] if metric else ""}


def _metric_rows(read: list[_Read]) -> pa.Table:
    rows = [{"id": result["id"], "key": key, **metric}
            for result, _ in read for key, metric in result["metrics"].items()]
    return _table(METRIC_SCHEMA, rows)


def _table(schema: pa.Schema, rows: list[dict[str, Any]]) -> pa.Table:
    arrays, storable_text = [], cache(storable)  # millions of texts, of which few differ
    for field in schema:
        values = [storable_text(value) if isinstance(value, str) else value
                  for value in (row[field.name] for row in rows)]
        if pa.types.is_dictionary(field.type):
            arrays.append(pa.array(values, pa.string()).dictionary_encode())
        elif pa.types.is_floating(field.type):
            arrays.append(pa.array([value if value is None else float(value) for value in values], field.type))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _write(directory: Path, tables: Mapping[str, pa.Table]) -> None:
    """Atomically. A catalog that cannot be written is read without them."""
    metadata = {_FORMAT: _VERSION, _GENERATION: secrets.token_bytes(16).hex().encode()}
    with suppress(OSError, SafetyError, pa.ArrowException):
        for name, table in tables.items():
            with NewFile(directory / name, force=True, sync=False) as new:
                pq.write_table(table.replace_schema_metadata(metadata), new.file, compression="zstd")
                new.publish()


def matching(results: pa.Table, drives: Sequence[str] = (), workloads: Sequence[str] = ()) -> pa.Table:
    """The rows of RESULT_SCHEMA with one of the texts of each kind; all of a kind without texts."""
    for texts, columns, checksum in ((drives, _OF_DRIVE, False), (workloads, _OF_WORKLOAD, True)):
        if not texts:
            continue
        keep = pa.array([False] * results.num_rows, pa.bool_())
        for text in texts:
            for name in columns:
                keep = pc.or_(keep, pc.match_substring(results[name].cast(pa.string()), text, ignore_case=True))
            if checksum:
                keep = pc.or_(keep, pc.starts_with(results["workload"].cast(pa.string()), text.lower()))
        results = results.filter(keep)
    return results
