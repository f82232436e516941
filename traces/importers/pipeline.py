"""From the records of files of one format to a trace: validation, devices, threads, order, account."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from blkreel import __version__
from blkreel.common.errors import TraceError, UsageError, did_you_mean
from blkreel.common.files.output_lock import spool_of
from blkreel.common.files.safe_files import caller_of_sudo
from blkreel.common.units import counted, format_ns, format_share
from blkreel.traces.format.metadata_types import COARSE_CLOCK_NS
from blkreel.traces.format.schema import (
    LENGTH_LIMIT_BYTES,
    MOST_END_BYTES,
    OPS,
    TIME_LIMIT_NS,
    TRACE_SCHEMA,
    WITHOUT_DATA_CODES,
    ZONE_MANAGEMENT_CODES,
    Metadata,
)
from blkreel.traces.format.writer import TraceWriter
from blkreel.traces.spool.spool import PRIVATE_MODE, Spool

from .account import Account, account_for
from .nearly_sorted import TooFarBack, nearly_sorted
from .source_file import SourceFile
from .source_format import UNKNOWN_OP, Batch, ImportOptions, SourceFormat, as_bytes, dictionary_of

MOST_DEVICES = 1 << 15  # the column `device` is int16
_FIRST_PROCESS = 1 << 24  # above all thread ids of a kernel
_LATEST_NS = 1 << 62
_NAMES_LISTED = 12
_RESOLUTION_ROWS = 100  # fewer times say little about a clock
_SAME_TIME_SHARE = 0.5  # of rows: I/Os at regular times have times of their own, those within a step share one
_RESOLUTIONS_NS = [10 ** power for power in range(9, -1, -1)]


def import_records(format_: SourceFormat, files: list[Path], output: Path, options: ImportOptions, *,
                   force: bool, public: bool) -> tuple[Metadata, list[int], list[int], list[str]]:
    """Write the trace. Returns its metadata, I/Os and bytes by operation code, and descriptions of what is missing."""
    records = None
    # Rows of several files are as far out of order as the blocks in which they are read. A spool refuses another one.
    if len(files) == 1 and not os.path.lexists(spool_of(output)):
        records = _written_directly(format_, files, output, options, force=force, public=public)
    records = records or _written_sorted(format_, files, output, options, force=force, public=public)
    return records.metadata(), records.ios.tolist(), records.moved_bytes, records.missing()


def _written_directly(format_: SourceFormat, files: list[Path], output: Path, options: ImportOptions, *,
                      force: bool, public: bool) -> "Records | None":
    """Writes the trace as the records arrive; None if some are too far out of order, and then no trace."""
    records = Records(format_, files, options)
    with TraceWriter(output, TRACE_SCHEMA, force=force, owner=caller_of_sudo(),
                     mode=None if public else PRIVATE_MODE) as writer:
        origin_ns = None
        try:
            for columns in nearly_sorted(records.columns()):
                origin_ns = int(columns["submit_ns"][0]) if origin_ns is None else origin_ns
                writer.write({**columns, "submit_ns": columns["submit_ns"] - origin_ns})
        except TooFarBack:
            return None
        records.check(files)
        writer.close(records.metadata())
    return records


def _written_sorted(format_: SourceFormat, files: list[Path], output: Path, options: ImportOptions, *,
                    force: bool, public: bool) -> "Records":
    """Writes the trace of records in any order, by way of a spool."""
    spool = Spool(output, TRACE_SCHEMA, {"source_format": format_.name, "epoch_ns": 0}, force=force,
                  owner=caller_of_sudo(), public=public)
    try:
        records = Records(format_, files, options)
        for columns in records.columns():
            spool.append(columns)
        records.check(files)
        spool.finish({**records.metadata(), "spool_origin_ns": records.first_ns})
    except BaseException:
        spool.discard()
        raise
    return records


@dataclass
class Records:
    """The valid records of files of one format, as columns of a trace; counts while it is read.

    Times stay on the clock of the source; first_ns, last_ns: the first submit and the last submit or completion.
    devices: names, in order of appearance. threads: names by tid, as in the metadata.
    """

    format: SourceFormat
    files: list[Path]
    options: ImportOptions
    account: Account = field(default_factory=Account)
    devices: dict[bytes, int] = field(default_factory=dict)
    threads: dict[str, dict[str, Any]] = field(default_factory=dict)
    first_ns: int = _LATEST_NS
    last_ns: int = -_LATEST_NS
    ios: np.ndarray = field(default_factory=lambda: np.zeros(len(OPS), np.int64))
    moved_bytes: list[int] = field(default_factory=lambda: [0] * len(OPS))
    has: set[str] = field(default_factory=set)
    _others: dict[bytes, None] = field(default_factory=dict)
    _processes: dict[bytes, int] = field(default_factory=dict)
    _reference_ns: int | None = None
    _step_ns: int = 0  # greatest common divisor of the distances of times
    _at_same_time: int = 0

    def columns(self) -> Iterator[dict[str, np.ndarray]]:
        """Columns of a trace, several files interleaved by time, so that few rows wait for earlier ones."""
        with ExitStack() as stack:
            readers = [_Reader(path, stack.enter_context(SourceFile(path)), self) for path in self.files]
            waiting = list(readers)
            while waiting:
                reader = min(waiting, key=lambda reader: reader.reached_ns)
                self.account.file = str(reader.path)
                batch = reader.next()
                if batch is None:
                    waiting.remove(reader)
                    if reader.source.grew:
                        self.account.warn(f"{reader.path} grew while it was read: what was added is not in the trace")
                    continue
                columns = self._converted(batch, reader)
                if len(columns["submit_ns"]):
                    yield columns

    def check(self, files: list[Path]) -> None:
        """Raise TraceError or UsageError if there is no row, or more records were rejected than the options allow."""
        account = self.account
        if account.records != account.rows + account.rejected_records + account.ignored_records:
            raise TraceError(f"the import of {files[0]} lost count of its records: {account.records:,} read, "
                             f"{account.rows:,} rows, {account.rejected_records:,} rejected, "
                             f"{account.ignored_records:,} ignored", "report this as a bug with the file's first lines")
        reasons = "; ".join(account.lines(account.rejected, "rejected"))
        if account.rejected_records > self.options.max_rejected * account.records:
            share = account.rejected_records / account.records
            accept = f", or accept it: --max-rejected {_percent(share)}" if account.rows else ""
            raise TraceError(f"{format_share(share)} of {counted(account.records, 'record')} of {files[0].name} are "
                             f"rejected, limit {self.options.max_rejected * 100:.4g} %: {reasons}",
                             f"{self.format.remedy}{accept}")
        missing = [name for name in self.options.devices if name.encode() not in self.devices]
        if missing and account.records:
            names = [name.decode(errors="replace") for name in chain(self._others, self.devices)]
            raise UsageError(f"no I/O of device {missing[0]} in {files[0].name}",
                             did_you_mean(missing[0], names, f"it has: {', '.join(names[:_NAMES_LISTED])}"
                                          + (" and more" if len(names) > _NAMES_LISTED else "")))
        if not account.rows:
            ignored = "; ".join(account.lines(account.ignored, "ignored"))
            raise TraceError(f"{files[0]} holds no I/O" + (f": {ignored}" if ignored else ""),
                             "name a recording that has I/O")
        if self.last_ns - self.first_ns >= TIME_LIMIT_NS:
            raise TraceError(f"the times of {files[0].name} span 73 years or more",
                             f"a field is read in the wrong unit: {self.format.remedy}")

    def missing(self) -> list[str]:
        """Records that could not become rows, and lost events."""
        return self.account.missing()

    def metadata(self) -> Metadata:
        """The trace's metadata; call it after the last column."""
        format_, account = self.format, self.account
        # Of a format with a coarse clock, also fewer times are multiples of its step.
        step_ns = max(self._coarser_ns(), format_.resolution_ns if format_.resolution_ns >= COARSE_CLOCK_NS else 1)
        stated_ns = self.options.clock_resolution_ns or step_ns
        if stated_ns < step_ns:
            account.warn(f"the clock resolution is {format_ns(stated_ns)} as stated, but all times are multiples of "
                         f"{format_ns(step_ns)}: gaps between I/Os may be wrong by as much")
        is_overridden = stated_ns < step_ns and step_ns >= COARSE_CLOCK_NS
        real = format_.clock == "realtime"
        lacks = [name for name in ("latency", "thread", "process") if name not in self.has]
        return {
            "writer": f"blkreel {__version__}", "source_format": format_.name, "clock": format_.clock,
            "epoch_ns": self.first_ns, "clock_resolution_ns": self.resolution_ns(),
            "clock_pairs": [{"monotonic_ns": self.first_ns, "realtime_ns": self.first_ns}] if real else [],
            "devices": [{"name": text, "path": text, **_number_of(text)} for text in
                        (name.decode(errors="replace") for name in self.devices)],
            "duration_ns": self.last_ns - self.first_ns, "ledger": account.ledger(),
            "source_lacks": [*lacks, "dependencies", *(name for name in format_.lacks if name not in lacks)],
            "import_warnings": [*self.missing(), *account.warnings],
            **({"times_step_ns": step_ns} if is_overridden else {}),
            **({"threads": self.threads} if self.threads else {}),
            **({"lost": {"unit": "events", "total": account.lost_events, "per_cpu": {}, "intervals": []}}
               if account.lost_events else {}),
        }

    def resolution_ns(self) -> int:
        """The clock resolution: as the user or the format states it, or coarser if the times show it."""
        return self.options.clock_resolution_ns or max(self.format.resolution_ns, self._coarser_ns())

    def _coarser_ns(self) -> int:
        """The step of a clock so coarse that I/Os share their times; 1 without such evidence."""
        rows = self.account.rows
        if rows < _RESOLUTION_ROWS or self._at_same_time < _SAME_TIME_SHARE * rows or not self._step_ns:
            return 1
        return int(next(step for step in _RESOLUTIONS_NS if self._step_ns % step == 0))

    def _converted(self, batch: Batch, reader: "_Reader") -> dict[str, np.ndarray]:
        valid = self._valid(batch)
        device = self._device(batch, valid, reader)
        # A source may state the zone's.
        length = np.where(np.isin(batch.op, ZONE_MANAGEMENT_CODES), 0, batch.length_bytes)
        columns = {"submit_ns": batch.submit_ns, "offset_bytes": batch.offset_bytes, "length_bytes": length,
                   "op": batch.op, "device": device, "tid": self._tid(batch), "latency_ns": batch.latency_ns,
                   "queue_ns": batch.queue_ns, "flags": batch.flags, "cpu": batch.cpu, "status": batch.status}
        rows = {name: values if valid.all() else values[valid] for name, values in columns.items()
                if values is not None}
        self._count(rows)
        stamped_ns, latency_ns = rows["submit_ns"], rows.get("latency_ns")
        if self.format.stamped_at == "completion" and latency_ns is not None:
            stamped_ns = (stamped_ns + latency_ns)[latency_ns >= 0]
        reader.note_times(stamped_ns)
        return rows

    def _valid(self, batch: Batch) -> np.ndarray:
        """Which records are valid. Rejects the others, each for one reason."""
        offset, length, op = batch.offset_bytes, batch.length_bytes, batch.op
        latency = batch.latency_ns if batch.latency_ns is not None else np.full(len(op), -1)
        bad_time = (batch.submit_ns > _LATEST_NS) | (batch.submit_ns < -_LATEST_NS)
        tests = [
            ("the time is out of range", bad_time),
            ("the operation is unknown", op == UNKNOWN_OP),
            ("the offset is negative or out of range", offset < 0),
            ("the length is negative or out of range", (length < 0) | (length >= LENGTH_LIMIT_BYTES)),
            ("the length is 0", (length == 0) & ~np.isin(op, WITHOUT_DATA_CODES)),
            ("offset + length is above 2^62", offset > MOST_END_BYTES - length.clip(0)),
            ("the latency is negative or out of range",
             (latency < -1) | (latency > _LATEST_NS - np.where(bad_time, 0, batch.submit_ns).clip(0))),
        ]
        valid = np.ones(len(op), bool)
        for reason, bad in tests:
            account_for(bad & valid, batch.positions, self.account.reject, reason)
            valid &= ~bad
        return valid

    def _device(self, batch: Batch, valid: np.ndarray, reader: "_Reader") -> np.ndarray:
        """The device number of each record. Clears `valid` for devices that are not imported."""
        if batch.device is None:
            keys, codes = [reader.device], np.zeros(len(valid), np.int64)
        else:
            coded = dictionary_of(batch.device)
            codes = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            keys = [as_bytes(key) if not pa.types.is_integer(coded.dictionary.type) else str(key.as_py()).encode()
                    for key in coded.dictionary]
        # Only devices with a valid record count.
        used = np.flatnonzero(np.bincount(codes[valid], minlength=1))
        numbers = np.full(max(len(keys), 1), -1, np.int64)
        for code in used.tolist():
            numbers[code] = self._number(keys[code])
        device = numbers[codes]
        other_device = valid & (device < 0)
        account_for(other_device, batch.positions, self.account.ignore, "I/O of another device")
        valid &= ~other_device
        return device

    def _number(self, name: bytes) -> int:
        if name in self.devices:
            return self.devices[name]
        if self.options.devices and name.decode(errors="replace") not in self.options.devices:
            if len(self._others) < 1000:
                self._others[name] = None
            return -1
        if len(self.devices) == MOST_DEVICES:
            raise TraceError(f"{self.account.file} holds more than {MOST_DEVICES:,} devices, the limit of a trace",
                             "choose some with --device NAME, for example --device "
                             f"{next(iter(self.devices)).decode(errors='replace')}")
        number = self.devices[name] = len(self.devices)
        return number

    def _tid(self, batch: Batch) -> np.ndarray | None:
        """The thread of each record. Without thread numbers, the processes are numbered from 1; those of records
        without a thread beside others from _FIRST_PROCESS on."""
        tid = batch.tid
        if tid is not None:
            if (tid >= 0).any():
                self.has.add("thread")
            if batch.process is not None and (tid < 0).any():
                of_process = self._numbers_of(batch.process)
                tid = np.where((tid < 0) & (of_process > 0), of_process + _FIRST_PROCESS - 1, tid)
        elif batch.process is not None:
            tid = self._numbers_of(batch.process)
        if tid is not None:
            self._name_threads(batch, tid)
        return tid

    def _numbers_of(self, processes: Any) -> np.ndarray:
        """A number from 1 for each name; -1 without one."""
        coded = dictionary_of(processes)
        names = [as_bytes(name) for name in coded.dictionary]
        numbers = np.array([self._processes.setdefault(name, len(self._processes) + 1) if name else -1
                            for name in names] or [-1], np.int64)
        of_each: np.ndarray = numbers[coded.indices.to_numpy(zero_copy_only=False)] if names else \
            np.full(len(coded), -1)
        return of_each

    def _name_threads(self, batch: Batch, tid: np.ndarray) -> None:
        if batch.process is None:
            return
        self.has.add("process")
        coded = dictionary_of(batch.process)
        texts = [as_bytes(text).decode(errors="replace") for text in coded.dictionary]
        codes = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        # A thread may have several names, or none in some of its records.
        _, first = np.unique(tid.astype(np.int64) * len(texts) + codes, return_index=True)
        for at in first[np.argsort(first)].tolist():
            number, name = int(tid[at]), texts[codes[at]]
            if number < 0 or not name:
                continue
            entry = self.threads.setdefault(str(number), {"names": []})
            if batch.tid is None or batch.pid is not None or batch.tid[at] < 0:
                entry["process"] = name
            entry["comm"] = name
            if batch.pid is not None:
                entry["pid"] = int(batch.pid[at])
            if name not in entry["names"]:
                entry["names"].append(name)

    def _count(self, rows: dict[str, np.ndarray]) -> None:
        submit_ns, latency_ns = rows["submit_ns"], rows.get("latency_ns")
        if not len(submit_ns):
            return
        self.account.rows += len(submit_ns)
        ends_ns = submit_ns if latency_ns is None else submit_ns + latency_ns.clip(0)
        self.first_ns = min(self.first_ns, int(submit_ns.min()))
        self.last_ns = max(self.last_ns, int(ends_ns.max()))
        if latency_ns is not None and (latency_ns >= 0).any():
            self.has.add("latency")
        ios = np.bincount(rows["op"], minlength=len(OPS))
        self.ios += ios
        for code in np.flatnonzero(ios).tolist():
            lengths = rows["length_bytes"][rows["op"] == code]
            # Lengths of 2^62 bytes are valid, and their sum would wrap.
            fits = int(lengths.max()) * len(lengths) < 1 << 63
            self.moved_bytes[code] += int(lengths.sum()) if fits else sum(lengths.tolist())
        if self._step_ns != 1:
            self._reference_ns = int(submit_ns[0]) if self._reference_ns is None else self._reference_ns
            self._step_ns = int(np.gcd(self._step_ns, np.gcd.reduce(submit_ns - self._reference_ns)))
            self._at_same_time += int(np.count_nonzero(submit_ns[1:] == submit_ns[:-1]))


class _Reader:
    """The batches of one file. reached_ns: the latest time that was read. device: name, if records state none; files of
    one directory with the same name before the first dot are of one device, as those of btrecord."""

    def __init__(self, path: Path, source: SourceFile, records: Records):
        self.path = path
        self.source = source
        self.device = os.fsencode(_stem(path))
        if any(_stem(other) == _stem(path) and other.parent != path.parent for other in records.files):
            self.device = os.fsencode(path.parent / _stem(path))
        self.reached_ns = -_LATEST_NS
        self._last_ns: int | None = None
        self._account = records.account
        self._counts_back_steps = not records.format.counts_back_steps
        self._batches = records.format.batches(source, records.account, records.options)

    def next(self) -> Batch | None:
        return next(self._batches, None)

    def note_times(self, stamped_ns: np.ndarray) -> None:
        """Count the steps back of the source's clock. stamped_ns: times by which the source orders its records."""
        if not len(stamped_ns):
            return
        before = np.concatenate([[stamped_ns[0] if self._last_ns is None else self._last_ns], stamped_ns[:-1]])
        back = stamped_ns < before
        if back.any():
            reached = np.maximum(np.maximum.accumulate(before), self.reached_ns)
            if self._counts_back_steps:
                self._account.note_back_steps(int(back.sum()), int((reached - stamped_ns)[back].max()))
        self._last_ns = int(stamped_ns[-1])
        self.reached_ns = max(self.reached_ns, int(stamped_ns.max()))


def _stem(path: Path) -> str:
    return path.name.partition(".")[0] or path.name


def _number_of(name: str) -> dict[str, int]:
    """The keys major and minor of a device that has its number as a name, as in 259:0."""
    major, colon, minor = name.partition(":")
    is_number = colon and all(part.isascii() and part.isdigit() and len(part) < 8 for part in (major, minor))
    return {"major": int(major), "minor": int(minor)} if is_number else {}


def _percent(share: float) -> str:
    """The share rounded up, as --max-rejected takes it."""
    return f"{min(int(share * 100) + 1, 100)}%"
