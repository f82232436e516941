"""Events of the Linux block layer as text: pairs issues with completions by the rules of the blktrace importer.

The events are translated to blktrace's binary form, version 8, and given to the decoder of the blktrace importer, so
that merges, splits, requeues, partial completions and flushes mean the same in all sources of such events.
"""

import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, BinaryIO, NoReturn, Self, cast

import numpy as np
import pyarrow as pa

from blkreel.common.errors import TraceError
from blkreel.common.units import counted
from blkreel.traces.format.schema import MOST_END_BYTES
from blkreel.traces.importers.account import Account
from blkreel.traces.importers.blktrace import DECODER, EVENT_V8, MAGIC_V8
from blkreel.traces.importers.nearly_sorted import WAITING_ROWS
from blkreel.traces.importers.operation_letters import INVALID_CATEGORY
from blkreel.traces.importers.source_format import Batch
from blkreel.traces.spool.blocks import BlockReader, End, Rows
from blkreel.traces.spool.rows_child import error_of

from .text_lines import Lines

# Actions of traces/importers/native/event.h. 0: an event that does not take part in pairing.
QUEUE, BACK_MERGE, FRONT_MERGE, GET_REQUEST, REQUEUE, ISSUE, COMPLETE, INSERT, SPLIT = 1, 2, 3, 4, 6, 7, 8, 12, 13
# Of an event that completes a bio, not a request: used for drives without requests.
BIO_COMPLETE = 100

_CATEGORY_SHIFT = 16
_SPLIT_PAYLOAD_BYTES = 8
# Instead of a magic number: events were lost here, which the decoder takes as ftrace says it.
_LOSS, _LOSS_TEXT = 0, b"CPU:0 [LOST EVENTS]\n"
# An event that waits for earlier ones: as the decoder reads it, and the payload of a split.
_WAITING = np.dtype([("event", EVENT_V8), ("split_sector", "u8")])
_MINOR_BITS = 20
_MAX_CPUS = 1 << 16
_MAX_SECTOR = MOST_END_BYTES >> 9
_TOLERATED_STEP_NS = 1_000_000_000  # as the decoder's
# The first event may be later than others by as much as a step back.
_SHIFT_NS = 1_000_000_000
_LAYOUT = [("submit_ns", "i8"), ("latency_ns", "i8"), ("queue_ns", "i8"), ("offset_bytes", "i8"),
           ("length_bytes", "i8"), ("flags", "i4"), ("tid", "i4"), ("device", "i2"), ("cpu", "i2"), ("status", "i2"),
           ("op", "i1")]
_OF_SAME_IO = {QUEUE: "queue", GET_REQUEST: "get request", INSERT: "insert", BACK_MERGE: "merge",
               FRONT_MERGE: "merge", SPLIT: "split", REQUEUE: "requeue", COMPLETE: "completion",
               BIO_COMPLETE: "bio completion"}


@dataclass
class Events:
    """Events of a block of text, one per line of `lines` at `at`.

    at: indexes of the lines. action: int64, codes above. category: as category_of() gives it. sector: uint64.
    length_bytes, pid, cpu, status: int64. device: int64, number as device_number() gives it, -1 if invalid.
    split_sector: uint64, of splits. name_starts, name_ends: the thread's name, empty where the line has none.
    valid: which have valid numbers. losses: indexes of the lines that report lost events.
    """

    lines: Lines
    at: np.ndarray
    action: np.ndarray
    category: np.ndarray
    time_ns: np.ndarray
    sector: np.ndarray
    length_bytes: np.ndarray
    pid: np.ndarray
    cpu: np.ndarray
    status: np.ndarray
    device: np.ndarray
    split_sector: np.ndarray
    name_starts: np.ndarray
    name_ends: np.ndarray
    valid: np.ndarray
    losses: list[int] = field(default_factory=list)


def device_number(text: bytes) -> int:
    """The number of MAJOR,MINOR as the kernel packs it, or -1."""
    major, comma, minor = text.partition(b",")
    if not (comma and major.isdigit() and minor.isdigit() and len(text) <= 12):
        return -1
    number = int(major) << _MINOR_BITS | int(minor)
    return number if int(major) < 1 << 12 and int(minor) < 1 << _MINOR_BITS else -1


class EventPairing:
    """The decoder as a child process. take() gives it events; batches() and finish() give the I/Os.

    Drives without requests are recognized by the first events: there, entries into the block layer are the issues.
    """

    def __init__(self, account: Account):
        self._account = account
        self._bio_based: bool | None = None
        self._origin_ns: int | None = None
        self._last_ns: int | None = None
        self._latest_ns = 0
        self._passed_ns = 0
        self._unsorted = 0
        self._waiting: list[np.ndarray] = []
        self._devices: dict[int, None] = {}
        self._names: dict[int, bytes] = {}
        self._issues = self._rows = 0
        self._arrived: queue.SimpleQueue[Rows] = queue.SimpleQueue()
        self._error: Exception | None = None
        self._end: End | None = None
        self._stderr = tempfile.TemporaryFile()

    def __enter__(self) -> Self:
        read_fd, write_fd = os.pipe()
        try:
            self._child = subprocess.Popen([DECODER, "--rows-fd", str(write_fd), "--", "/dev/stdin"],
                                           pass_fds=[write_fd], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                           stderr=self._stderr, start_new_session=True)
        except BaseException:
            os.close(read_fd)
            raise
        finally:
            os.close(write_fd)
        self._stdin = cast(BinaryIO, self._child.stdin)
        self._thread = threading.Thread(target=self._receive, args=(os.fdopen(read_fd, "rb"),), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait()
        self._thread.join()
        with suppress(BrokenPipeError):  # events for the decoder that was killed
            self._stdin.close()
        self._stderr.close()

    def take(self, events: Events) -> None:
        """Account for the events and pass those on that take part in pairing, in order of time.

        Raises TraceError if time steps back by more than a second.
        """
        lines, numbers = events.lines, events.lines.numbers[events.at]
        far = events.sector > np.uint64(_MAX_SECTOR) - (events.length_bytes.clip(0) >> 9).astype(np.uint64)
        tests = [("a field is not a number, or missing", ~events.valid),
                 ("the device is not MAJOR,MINOR", events.device < 0),
                 ("the operation is unknown", events.category == INVALID_CATEGORY),
                 ("the CPU is out of range", events.cpu >= _MAX_CPUS),
                 ("the time is out of range", events.time_ns > 1 << 61),
                 ("offset + length is above 2^62", far & (events.length_bytes > 0)),
                 ("the length is 4 GiB or more", events.length_bytes >= 1 << 32)]
        valid = np.ones(len(events.at), bool)
        for reason, bad in tests:
            if (bad := bad & valid).any():
                first = int(np.argmax(bad))
                self._account.reject(reason, int(numbers[first]), lines.line(events.at[first]), int(bad.sum()))
                valid &= ~bad
        self._check_order(events, valid, numbers)
        action = self._roles(events.action, valid)
        self._note_names(events, valid)
        for code in np.unique(action[valid]).tolist():
            of_kind = valid & (action == code)
            first = int(np.argmax(of_kind))
            if code == ISSUE:
                self._issues += int(of_kind.sum())
            else:
                self._account.ignore(f"{_OF_SAME_IO[code]} events", int(numbers[first]), lines.line(events.at[first]),
                                     int(of_kind.sum()))
        self._send(events, valid & (action != BIO_COMPLETE), action)

    def batches(self) -> Iterator[Batch]:
        """The I/Os that have arrived so far."""
        while not self._arrived.empty():
            yield self._batch(self._arrived.get())

    def finish(self) -> Iterator[Batch]:
        """The I/Os that are left. Accounts for issues that are no I/O."""
        self._pass_on(0)
        with suppress(BrokenPipeError):
            self._stdin.close()
        self._thread.join()
        yield from self.batches()
        if self._origin_ns is None:
            return
        if self._end is None:
            self._fail()
        again = self._end.fields["ledger"]["issued_again"]
        if again:
            self._account.ignore_unplaced("issues of I/Os in flight, issued again without a requeue event", again)
        extra = self._issues - again - self._rows
        if extra > 0:
            self._account.ignore_unplaced("issues that were repeated after a requeue, or are no I/O", extra)
        elif extra < 0:
            # The part that was completed before a requeue is a row too.
            self._account.read(-extra)
        self._warn(self._end.fields)

    def _warn(self, end: dict[str, Any]) -> None:
        ledger = end["ledger"]
        if ledger["unmatched"]:
            self._account.warn(f"{counted(ledger['unmatched'], 'I/O')} completed whose issue is not in the same file")
        if ledger["in_flight_at_start"]:
            self._account.warn("not in the trace, because in flight when the recording began: "
                               f"{counted(ledger['in_flight_at_start'], 'I/O')}")
        if without_end := end["in_flight_at_end"] + ledger["reused"]:
            self._account.warn(f"no latency for {counted(without_end, 'I/O')}: no completion in the same file")
        if self._unsorted:
            self._account.warn(f"{self._unsorted:,} events are out of order by more than {WAITING_ROWS:,} events: "
                               "their I/Os may lack latencies")
        names = list(self._devices)
        for drive, number in zip(end["drives"], names, strict=True):
            if drive["queued"] and drive["completed"] and not drive["issued"]:
                self._account.warn(f"device {_name(number)} has no issue events: its I/Os are not in the trace; import "
                                   "its events alone")

    def _check_order(self, events: Events, valid: np.ndarray, numbers: np.ndarray) -> None:
        times_ns = events.time_ns[valid]
        if not len(times_ns):
            return
        before_ns = np.concatenate([[times_ns[0] if self._last_ns is None else self._last_ns], times_ns[:-1]])
        back_ns = np.maximum(np.maximum.accumulate(before_ns), self._latest_ns) - times_ns
        back = times_ns < before_ns
        if back_ns.max() > _TOLERATED_STEP_NS:
            worst = int(np.argmax(back_ns > _TOLERATED_STEP_NS))
            raise TraceError(f"{self._account.place(int(numbers[valid][worst]))}: time steps back by "
                             f"{back_ns[worst] / 1e9:.3f} s, so the file is not one recording in order",
                             "export the recording again with its lines in order of time, one file for each recording")
        if back.any():
            self._account.note_back_steps(int(back.sum()), int(back_ns[back].max()))
        self._last_ns = int(times_ns[-1])
        self._latest_ns = max(self._latest_ns, int(times_ns.max()))

    def _roles(self, action: np.ndarray, valid: np.ndarray) -> np.ndarray:
        """The actions, where entries into the block layer are issues on drives without requests."""
        if self._bio_based is None and not (action[valid] == ISSUE).any():
            self._bio_based = bool(np.isin(action[valid], [COMPLETE, BIO_COMPLETE]).any()) or None
        elif self._bio_based is None:
            self._bio_based = False
        if not self._bio_based:
            return action
        action = np.where(action == QUEUE, ISSUE, action)
        return np.where(action == BIO_COMPLETE, COMPLETE, action)

    def _note_names(self, events: Events, valid: np.ndarray) -> None:
        named = valid & (events.name_ends > events.name_starts) & (events.pid > 0)
        at = np.flatnonzero(named)
        if not len(at):
            return
        starts, ends = events.name_starts[at], events.name_ends[at]
        codes, _ = events.lines.codes(starts, ends)
        _, first = np.unique(events.pid[at] << 32 | codes, return_index=True)
        for index in np.sort(first).tolist():
            self._names[int(events.pid[at[index]])] = events.lines.slice(starts[index], ends[index])

    def _send(self, events: Events, chosen: np.ndarray, action: np.ndarray) -> None:
        at = np.flatnonzero(chosen)
        if not len(at):
            return
        waiting = np.zeros(len(at), _WAITING)
        records = waiting["event"]
        records["magic"] = MAGIC_V8
        records["time_ns"] = events.time_ns[at]
        records["sector"] = events.sector[at]
        records["bytes"] = events.length_bytes[at]
        records["pid"] = events.pid[at]
        records["action"] = action[at] | events.category[at] << _CATEGORY_SHIFT
        records["device"] = events.device[at]
        records["cpu"] = events.cpu[at]
        records["status"] = events.status[at]
        is_split = action[at] == SPLIT
        records["payload_bytes"][is_split] = _SPLIT_PAYLOAD_BYTES
        waiting["split_sector"] = events.split_sector[at]
        if events.losses:
            # At the time of the event that follows.
            places = np.searchsorted(events.at[at], events.losses)
            losses = waiting[places.clip(max=len(at) - 1)]
            losses["event"]["magic"], losses["event"]["payload_bytes"] = _LOSS, 0
            waiting = np.insert(waiting, places, losses)
        self._waiting.append(waiting)
        if sum(map(len, self._waiting)) >= 2 * WAITING_ROWS:
            self._pass_on(WAITING_ROWS)

    def _pass_on(self, left: int) -> None:
        """Gives the decoder the earliest waiting events, in order of time, all but the latest `left`."""
        if not self._waiting:
            return
        waiting = np.concatenate(self._waiting)
        times_ns = waiting["event"]["time_ns"].astype(np.int64)
        if (times_ns[1:] < times_ns[:-1]).any():
            order = np.argsort(times_ns, kind="stable")
            waiting, times_ns = waiting[order], times_ns[order]
        end = len(waiting) - left
        self._waiting = [waiting[end:]]
        waiting, times_ns = waiting[:end], times_ns[:end]
        if not end:
            return
        if self._origin_ns is None:
            self._origin_ns = int(times_ns[0])
        # The decoder numbers devices in the order of its events.
        numbers, first = np.unique(waiting["event"]["device"], return_index=True)
        for number in numbers[np.argsort(first)].tolist():
            self._devices.setdefault(number)
        self._unsorted += int((times_ns < self._passed_ns).sum())
        self._passed_ns = max(self._passed_ns, int(times_ns[-1]))
        records = waiting["event"].copy()
        records["time_ns"] = times_ns - self._origin_ns + _SHIFT_NS
        begin = 0
        is_loss = records["magic"] == _LOSS
        for at in np.flatnonzero(is_loss | (records["payload_bytes"] > 0)).tolist():
            self._write(records[begin:at if is_loss[at] else at + 1].tobytes())
            self._write(_LOSS_TEXT if is_loss[at]
                        else int(waiting["split_sector"][at]).to_bytes(_SPLIT_PAYLOAD_BYTES, "big"))
            begin = at + 1
        self._write(records[begin:].tobytes())

    def _write(self, data: bytes) -> None:
        try:
            self._stdin.write(data)
        except BrokenPipeError:
            self._fail()

    def _receive(self, file: BinaryIO) -> None:
        """Takes the decoder's rows as they come, so that it never waits. Runs in a thread."""
        try:
            with file:
                for block in BlockReader(file, "capture", _LAYOUT):
                    if isinstance(block, End):
                        self._end = block
                    elif isinstance(block, Rows):
                        self._arrived.put(block)
        except Exception as error:  # noqa: BLE001 - raised again by _fail(), with the decoder's message
            self._error = error

    def _fail(self) -> NoReturn:
        code = self._child.wait()
        self._stderr.seek(0)
        message = self._stderr.read().decode(errors="replace")
        if not message and self._error:
            raise self._error
        error = error_of("the decoder", message, code)
        raise TraceError(error.message, error.remedy) if message else error

    def _batch(self, rows: Rows) -> Batch:
        columns = rows.columns
        self._rows += rows.count
        origin_ns = cast(int, self._origin_ns)
        tids, codes = np.unique(columns["tid"], return_inverse=True)
        names = pa.array([self._names.get(tid, b"") for tid in tids.tolist()], pa.binary())
        devices = pa.array([_name(number).encode() for number in self._devices], pa.binary())
        return Batch(columns["submit_ns"] + origin_ns, columns["offset_bytes"], columns["length_bytes"], columns["op"],
                     np.zeros(rows.count, np.int64), latency_ns=columns["latency_ns"], queue_ns=columns["queue_ns"],
                     device=pa.DictionaryArray.from_arrays(pa.array(columns["device"].astype(np.int32)), devices),
                     tid=columns["tid"],
                     process=pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), names),
                     flags=columns["flags"], cpu=columns["cpu"], status=columns["status"])


def _name(number: int) -> str:
    return f"{number >> _MINOR_BITS}:{number & (1 << _MINOR_BITS) - 1}"
