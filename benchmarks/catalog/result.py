"""One result of a catalog as a JSON document: its types, its id and its checksum."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypedDict, cast

from blkreel.common.device import drive_units
from blkreel.common.emulated import EmulatedUse
from blkreel.common.errors import BlkreelError
from blkreel.common.files.json_file import finite
from blkreel.common.files.safe_files import file_name
from blkreel.common.files.typed_document import mismatch, parse_json
from blkreel.common.verdict import Verdict
from blkreel.traces.format.metadata_types import wrong_metadata

FORMAT = "blkreel result"
VERSION = 1
_ID_DIGITS = 32
_ID = re.compile(rf"[0-9a-f]{{{_ID_DIGITS}}}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
Kind = Literal["run", "test"]
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


class CatalogError(BlkreelError):
    """A catalog, or a file of one, that cannot be read."""

    code = "invalid_catalog"


class NewerVersion(CatalogError):
    """A file that a later version of blkreel wrote."""


class MetricValue(TypedDict):
    """value: in `unit`, unrounded; times in ns, shares as fractions. low, high: the 95 % interval over repeats; None of
    fewer than 6. n: number of runs or repeats. better: lower, higher or ""."""

    value: float
    unit: str
    low: float | None
    high: float | None
    n: int
    better: str


class DriveFacts(TypedDict):
    """unit: hash of the serial, keyed to the installation that ran it, or of the description of a simulated or an
    emulated drive; "" for others without a serial."""

    model: str
    firmware: str
    unit: str
    capacity_bytes: int | None
    kind: str
    name: str
    interface: str


class Workload(TypedDict):
    """checksum: SHA-256 of the trace; of a test, of its name, parameters and scale. name: of the file or the test."""

    checksum: str
    title: str
    name: str


class PartialFile(TypedDict):
    """sha256: of the file partials/SHA256.bin. version: of the form (analysis/metrics/partials/partial_file.py)."""

    sha256: str
    bytes: int
    version: int


class Result(TypedDict):
    """measured: what identifies the result, the same wherever the run lies and whichever version adds it; `id` is its
    hash. headline: key of its leading metric; empty if it has none. metadata, partial: of a run, what a comparison
    needs. results: of a test, its published document. path, host, added_at: of the run and the machine when it was
    added. checksum: of the document without this key."""

    format: str
    version: int
    id: str
    kind: Kind
    measured: dict[str, Any]
    label: str
    drive: DriveFacts
    workload: Workload
    pace: str
    state: str
    simulated: bool
    rows: int
    verdict: Verdict
    metrics: dict[str, MetricValue]
    headline: str
    started_at: str | None
    kernel: str
    blkreel: str
    partial: PartialFile | None
    metadata: dict[str, Any] | None
    results: dict[str, Any] | None
    path: str
    host: str
    added_at: str
    added_by: str
    checksum: str


def id_of(measured: dict[str, Any]) -> str:
    return hashlib.sha256(canonical(measured)).hexdigest()[:_ID_DIGITS]


def canonical(document: Any) -> bytes:
    """The same bytes for equal documents."""
    try:
        return _CANONICAL.encode(document).encode()
    except ValueError:
        return _CANONICAL.encode(finite(document)).encode()


def checksum_of(result: dict[str, Any] | Result) -> str:
    return hashlib.sha256(canonical({key: value for key, value in result.items() if key != "checksum"})).hexdigest()


def dump(result: Result) -> bytes:
    """One key a line, so that git shows what differs."""
    lines = [f"{json.dumps(key)}: {canonical(value).decode()}" for key, value in result.items()]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def parse(content: bytes, path: object) -> Result:
    """Raises CatalogError for a file that is damaged, changed by hand, or of a later version."""
    try:
        document = parse_json(content)
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise ValueError("not a result of a catalog")
        version = document.get("version")
        if isinstance(version, int) and version > VERSION:
            raise NewerVersion(f"{path} has version {version}, this blkreel reads up to {VERSION}", "update blkreel")
        if wrong := mismatch(document, Result):
            raise ValueError(wrong)
        if document["metadata"] is not None and (wrong := wrong_metadata(document["metadata"])):
            raise ValueError(f"metadata.{wrong}")
        file_name(document["id"], _ID)
        if document["partial"]:
            file_name(document["partial"]["sha256"], _SHA256)
        if not document["path"].startswith("/") or "\0" in document["path"]:
            raise ValueError("path is not an absolute path")
    except ValueError as error:
        raise damaged(path, str(error)) from None
    result = cast(Result, document)
    if checksum_of(result) != result["checksum"]:
        raise damaged(path, "its checksum differs: it was edited, or damaged by a copy")
    if id_of(result["measured"]) != result["id"]:
        raise damaged(path, "its id is not that of its content")
    if not result["drive"]["unit"]:  # earlier versions gave simulated and emulated drives none
        source = (result["metadata"] or {}).get("run") or result["results"] or {}
        result["drive"]["unit"] = description_hash(source.get("drive") or {}, source.get("emulated") or [])
    # Earlier versions added what was written since, which keeps no repetitions apart.
    result["state"] = result["state"].partition(", ")[0]
    return result


def description_hash(drive: Mapping[str, Any], emulated: Iterable[EmulatedUse]) -> str:
    """The unit of a simulated or emulated drive; "" for others."""
    described = drive_units([drive] if drive.get("kind") == "nil" else [], emulated)
    return hashlib.sha256(canonical(described)).hexdigest() if described else ""


def damaged(path: object, why: str) -> CatalogError:
    return CatalogError(f"{path} is damaged: {why}",
                        "restore it from a copy, or remove it and add the run again: blkreel results add RUN")
