"""`blkreel anonymize`: a trace to share, without names of people, programs, files and machines.

Metadata is copied key by key from a list of what names nothing, so a key that a later version adds is left out.
"""

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from blkreel.common.errors import UsageError
from blkreel.common.limits import check_state
from blkreel.traces.format.check import check_order
from blkreel.traces.format.metadata_types import of_recording
from blkreel.traces.format.names import KERNEL_NAME
from blkreel.traces.format.schema import OPS, Metadata
from blkreel.traces.format.trace import Trace

from .carry import WRITER, shortfall
from .output import Transformed, TransformOutput
from .rows import TRACE_FLAGS, trace_schema

_HASH_DIGITS = 12
_WRITER_BYTES = 80 << 20  # of the rows that a TransformOutput gathers and encodes
_KEYS = ("source_format", "capture_layer", "cold", "queue_time_source", "cpu_count", "clock_resolution_ns",
         "source_lacks", "times_step_ns", "unmatched", "in_flight_at_start", "in_flight_at_end", "clock_uncertainty_ns",
         "storage_layer")
_DEVICE_KEYS = ("kind", "size_bytes", "logical_block_bytes", "physical_block_bytes", "scheduler", "queue_depth",
                "read_ahead_bytes", "max_request_bytes",
                "rotational", "write_cache", "fua", "read_only", "layer", "zoned", "zone_bytes", "transport",
                "io_max")


@dataclass
class Pseudonyms:
    """Replaces names by hashes with a key: a name gets the same hash everywhere, and no one without the key can test
    a guess."""

    key: bytes

    def name(self, text: str) -> str:
        return hmac.new(self.key, text.encode(errors="surrogateescape"), "sha256").hexdigest()[:_HASH_DIGITS]

    def thread(self, comm: str) -> str:
        """A kernel thread keeps the beginning by which a dependent replay recognizes it, such as `kworker/`."""
        kernel = KERNEL_NAME.match(comm)
        prefix = kernel[0] if kernel else "p-"
        return f"{prefix}{'' if prefix[-1] in '/-_' else '-'}{self.name(comm)}"

    def path(self, path: str) -> str:
        """Each directory and the file name by itself, so that files of one directory stay together."""
        return "/".join(self.name(part) if part else "" for part in path.split("/"))


def anonymize(trace: Trace, output: Path, *, key: bytes, region_bytes: int | None = None, force: bool = False,
              public: bool = False, certificate: Mapping[str, Any] | None = None) -> Transformed:
    """Write the rows without names. Times, lengths, dependencies and thread ids stay, and offsets unless region_bytes.

    key: of the hashes. region_bytes: permute regions of the devices of this size by the key. Inode numbers and cgroup
    ids become consecutive numbers. certificate: stored under this key. Raises UsageError for a region that is not a
    multiple of 4096.
    """
    check_order(trace)
    if region_bytes is not None and (region_bytes <= 0 or region_bytes % 4096):
        raise UsageError(f"invalid region size: {region_bytes}", "give a multiple of 4K, such as: 1GiB")
    if region_bytes:
        # Whole zones stay whole. The kernel has zones of one size only, a power of two.
        zone_bytes = max((device.get("zone_bytes") or 0 for device in trace.metadata.get("devices") or []), default=0)
        region_bytes = -(-region_bytes // zone_bytes) * zone_bytes if zone_bytes else region_bytes
    permutation = RegionPermutation(trace, region_bytes, key) if region_bytes else None
    pseudonyms, schema = Pseudonyms(key), trace_schema(trace.schema)
    numbers = {name: _Numbering() for name in ("inode", "cgroup") if name in schema.names}
    with TransformOutput(output, schema, {"threads": trace.metadata.get("threads")}, force=force, public=public) as out:
        for batch in trace.batches(schema.names):
            columns = {name: batch[name].to_numpy() for name in schema.names}
            for name, numbering in numbers.items():
                columns[name] = numbering.renumbered(columns[name])
            stored_bytes = sum(numbering.peak_bytes for numbering in numbers.values())
            check_state(_WRITER_BYTES + stored_bytes, trace.footer.size_bytes, "files or cgroups")
            if permutation:
                columns["offset_bytes"] = permutation.apply(columns)
            out.write({**columns, "flags": columns["flags"] & TRACE_FLAGS})
        certified = {"certificate": dict(certificate)} if certificate else {}
        notes = ["no offset changed: the drives have too few regions of this size, or I/Os reach across all of them"
                 ] if permutation and not permutation.moves_any else []
        return out.finish({**_metadata(trace.metadata, pseudonyms, numbers.get("inode") or _Numbering(), region_bytes,
                                       notes), **certified}, notes)


class _Numbering:
    """Consecutive numbers of values above 0 in order of appearance; 0 and -1, which name nothing, stay."""

    def __init__(self) -> None:
        self._values = np.empty(0, np.int64)  # ascending
        self._numbers = np.empty(0, np.int64)

    @property
    def peak_bytes(self) -> int:
        """While values are inserted, both arrays are in memory twice."""
        return 32 * len(self._values)

    def renumbered(self, values: np.ndarray) -> np.ndarray:
        """The numbers of values of the next rows. Those that appear first are numbered in ascending order."""
        distinct, at = np.unique(values, return_inverse=True)
        named = distinct[distinct > 0]
        place = np.searchsorted(self._values, named)
        is_new = np.append(self._values, -1)[place] != named
        first = len(self._values) + 1
        self._numbers = np.insert(self._numbers, place[is_new], np.arange(first, first + np.count_nonzero(is_new)))
        self._values = np.insert(self._values, place[is_new], named[is_new])
        new = distinct.copy()
        new[distinct > 0] = self._numbers[np.searchsorted(self._values, named)]
        return new[at]

    def number_of(self, value: int) -> int | None:
        """The number of a value; None of one that did not appear."""
        place = int(np.searchsorted(self._values, value)) if abs(value) < 1 << 63 else len(self._values)
        return int(self._numbers[place]) if place < len(self._values) and self._values[place] == value else None


def _metadata(metadata: Metadata, pseudonyms: Pseudonyms, inodes: _Numbering,
              region_bytes: int | None, notes: list[str]) -> Metadata:
    metadata = of_recording(metadata)
    result: Metadata = {key: metadata[key] for key in _KEYS if key in metadata}
    # Times that begin at 0 are on no clock that another trace has.
    result |= {"writer": WRITER, "epoch_ns": 0, "clock": "relative"}
    if isinstance(metadata.get("kernel"), str) and (version := re.match(r"\d+\.\d+", metadata["kernel"])):
        result["kernel"] = version[0]
    result["devices"] = [_device(device, number, pseudonyms)
                         for number, device in enumerate(metadata.get("devices") or [])]
    if metadata.get("volumes"):
        result["volumes"] = _volumes(metadata, pseudonyms, permuted=region_bytes is not None)
    result["threads"] = {tid: _thread(thread, pseudonyms) for tid, thread in (metadata.get("threads") or {}).items()}
    if metadata.get("files"):
        result["files"] = [{"inode": number, "path": pseudonyms.path(file["path"])} for file in metadata["files"]
                           if (number := inodes.number_of(file["inode"])) is not None]
    lost: Any = metadata.get("lost")
    if lost:
        result["lost"] = {**({"unit": "events"} if lost.get("unit") == "events" else {}),
                          "total": lost.get("total"), "per_cpu": lost.get("per_cpu") or {}, "intervals": [
            {key: interval[key] for key in ("cpu", "first_ns", "last_ns", "count") if key in interval}
            for interval in lost.get("intervals") or []]}
    if metadata.get("emulated"):
        result["emulated"] = [{**use, "name": pseudonyms.name(use["name"]), "drive": ""}
                              for use in metadata["emulated"]]
    ledger = metadata.get("ledger") or {}
    missing = [f"{len(ledger['missing'])} reasons are left out: they may hold names"] if ledger.get("missing") else []
    result |= shortfall([{**metadata, "run": None, "ledger": {**ledger, "missing": missing}}])
    warnings = len(metadata.get("import_warnings") or [])
    if warnings:
        result["import_warnings"] = [f"{warnings} warnings about the recording are left out: they may hold names"]
    options = {"region_bytes": region_bytes} if region_bytes else {}
    result["history"] = [{"command": "anonymize", "writer": WRITER, "options": options, "sources": [],
                          "notes": notes}]
    return result


def _device(device: Mapping[str, Any], number: int, pseudonyms: Pseudonyms) -> Metadata:
    model = {"model": f"model-{pseudonyms.name(device['model'])}"} if device.get("model") else {}
    return {**{key: device[key] for key in _DEVICE_KEYS if key in device}, **model, "name": f"device{number}",
            "path": f"/dev/device{number}"}


def _volumes(metadata: Metadata, pseudonyms: Pseudonyms, *, permuted: bool) -> list[Metadata]:
    """Which devices are below which, so that no one counts an I/O in both. permuted: places on them hold no longer."""
    new = {str(device.get("name")): f"device{number}" for number, device in enumerate(metadata.get("devices") or [])}

    def renamed(name: str) -> str:
        return new.get(name) or f"device-{pseudonyms.name(name)}"

    return [{"name": renamed(volume["name"]), "path": f"/dev/{renamed(volume['name'])}", "label": "",
             "kind": volume["kind"], "parts": [
                 {**{key: part[key] for key in ("volume_offset_bytes", "length_bytes")}, "name": renamed(part["name"]),
                  "offset_bytes": None if permuted else part["offset_bytes"]} for part in volume["parts"]]}
            for volume in metadata["volumes"]]


def _thread(thread: Mapping[str, Any], pseudonyms: Pseudonyms) -> Metadata:
    result: Metadata = {"pid": thread["pid"]} if isinstance(thread.get("pid"), int) else {}
    for key in ("comm", "process"):
        if isinstance(thread.get(key), str):
            result[key] = pseudonyms.thread(thread[key])
    if isinstance(thread.get("names"), list):
        result["names"] = [pseudonyms.thread(str(name)) for name in thread["names"]]
    if isinstance(thread.get("cgroup"), str):
        result["cgroup"] = pseudonyms.path(thread["cgroup"])
    return result


_MOST_PIECES = 1 << 20  # of all devices together, beside those around I/Os


class RegionPermutation:
    """A permutation of the regions of each device, chosen by a key.

    Regions between which an I/O reaches stay together, so every I/O stays whole, and I/Os that overlap still do.
    The last region with its neighbors stays at the end, because it may be shorter. A drive with too many regions to
    list is permuted in pieces of several regions, cut also around each I/O. Reads the trace once.
    """

    def __init__(self, trace: Trace, region_bytes: int, key: bytes):
        touched: dict[int, np.ndarray] = {}  # (first, last) region of the I/Os of each device
        for batch in trace.batches(["device", "offset_bytes", "length_bytes"]):
            device, offset_bytes, length_bytes = (batch[name].to_numpy() for name in batch.schema.names)
            regions = np.stack([offset_bytes, offset_bytes + length_bytes.clip(1) - 1], axis=1) // region_bytes
            for number in np.unique(device).tolist():
                before = touched.get(number, np.empty((0, 2), np.int64))
                touched[number] = np.unique(np.concatenate([before, regions[device == number]]), axis=0)
        sizes = {number: device.get("size_bytes") for number, device in enumerate(trace.metadata.get("devices") or [])}
        self._region_bytes = region_bytes
        self._pieces: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # first region of each before and after
        for number, spans in touched.items():
            regions_of_device = max(int(spans[:, 1].max()) + 1, -(-(sizes.get(number) or 0) // region_bytes))
            begins = _pieces(regions_of_device, spans, max(1, _MOST_PIECES // len(touched)))
            self._pieces[number] = begins, _moved(begins, regions_of_device, key, number)

    @property
    def moves_any(self) -> bool:
        return any((before != after).any() for before, after in self._pieces.values())

    def apply(self, columns: dict[str, np.ndarray]) -> np.ndarray:
        """The new offsets of rows, but for operations on a whole drive, which would show where its first region went.
        """
        offset_bytes = columns["offset_bytes"].copy()
        has_place = ~np.isin(columns["op"], [OPS["flush"], OPS["zone_reset_all"]])
        for number in np.unique(columns["device"]).tolist():
            here = has_place & (columns["device"] == number)
            before, after = self._pieces[number]
            piece = np.searchsorted(before, offset_bytes[here] // self._region_bytes, side="right") - 1
            offset_bytes[here] += (after - before)[piece] * self._region_bytes
        return offset_bytes


def _pieces(regions: int, spans: np.ndarray, most: int) -> np.ndarray:
    """The first region of each piece, ascending. spans: (first, last) region of I/Os, which no piece cuts."""
    step = -(-regions // most)
    begins = np.arange(0, regions, step)
    if step > 1:
        begins = np.unique(np.concatenate([begins, spans[:, 0], spans[:, 1] + 1]))
        begins = begins[begins < regions]
    spans = spans[spans[:, 1] > spans[:, 0]]  # ascending by their first region
    reach = np.append(np.maximum.accumulate(spans[:, 1]), -1)
    whole: np.ndarray = begins[reach[np.searchsorted(spans[:, 0], begins) - 1] < begins]
    return whole


def _moved(begins: np.ndarray, regions: int, key: bytes, device: int) -> np.ndarray:
    """The new first region of each piece."""
    lengths = np.diff(np.append(begins, regions))
    seed = hmac.new(key, f"regions of device {device}".encode(), "sha256").digest()
    order = np.random.default_rng(list(seed)).permutation(len(begins) - 1)
    order = np.append(order, len(begins) - 1)
    moved = np.empty(len(begins), np.int64)
    moved[order] = np.cumsum(lengths[order]) - lengths[order]
    return moved
