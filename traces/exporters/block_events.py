"""The rows of a trace as events of blktrace, in order of time: queued (Q), issued (D), completed (C)."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from blkreel.traces.format.schema import CHECKS, FLAGS, OPS, WITHOUT_DATA, ZONE_MANAGEMENT
from blkreel.traces.format.trace import Trace

from .export_format import Account, Columns, batches, check_export_state, chosen, is_op

SECTOR_BYTES = 512
QUEUE, ISSUE, COMPLETE = 0, 1, 2
# Flags for which an event has a bit.
_EVENT_FLAGS = {"sync", "metadata", "read_ahead", "fua", "preflush"}
_EXPRESSED = {"latency_ns", "queue_ns", "cpu", "status", "tid"}
# Major numbers 240 to 254 are for local use: Documentation/admin-guide/devices.txt of Linux.
_LOCAL_MAJOR = 240
MINOR_BITS = 20
_EVENT_COPIES = 4  # of events that wait, while they are sorted with further ones
_COUNTER_BYTES = 160  # of a dictionary entry
_PLACE_BYTES = 400  # the same, with a tuple and a list
_IO_COLUMNS = ("offset_bytes", "length_bytes", "op", "flags", "device", "cpu", "tid", "status")


@dataclass
class BlockEvents:
    """Events with their numbers.

    start_ns: time of the first event, on the clock of `epoch_ns`. The queue event of a flush is left out: the kernel
    queues flushes with the writes that need them, and readers would pair them with another flush. So would they pair
    an I/O without a completion with that of a later one at its place, and those with the ones after them.
    whole_sectors: whether the format has lengths in sectors.
    """

    trace: Trace
    account: Account
    whole_sectors: bool = False
    start_ns: int = 0
    _origin_ns: int = 0
    _longest_queue_ns: int = 0
    _device_numbers: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    _sequences: dict[int, int] = field(default_factory=dict)
    _unpaired: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))

    def __post_init__(self) -> None:
        first_ns = None
        for batch in self.trace.batches(["submit_ns", "queue_ns"]):
            submit_ns, queue_ns = (batch[name].to_numpy() for name in ("submit_ns", "queue_ns"))
            if not len(submit_ns):
                continue
            self._longest_queue_ns = max(self._longest_queue_ns, int(queue_ns.max()))
            earliest_ns = int((submit_ns - queue_ns.clip(0)).min())
            first_ns = earliest_ns if first_ns is None else min(first_ns, earliest_ns)
        # An event cannot have a negative time.
        self._origin_ns = max(int(self.trace.metadata.get("epoch_ns") or 0), -(first_ns or 0))
        self.start_ns = self._origin_ns + (first_ns or 0)
        self._device_numbers = device_numbers(self.trace)
        self._unpaired = _unpaired_rows(self.trace)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        """Columns: time_ns (on the clock of epoch_ns), stage (QUEUE and so on), sequence (from 1, by device and CPU),
        sector, bytes, op, flags, device (as the kernel packs it: major << 20 | minor), cpu, tid, status."""
        waiting: dict[str, np.ndarray] | None = None
        row = 0
        for columns in batches(self.trace, self.account):
            events = self._of_rows(columns, row)
            row += len(columns["op"])
            if waiting is not None:
                events = {name: np.concatenate([waiting[name], values]) for name, values in events.items()}
            order = np.lexsort((events["stage"], events["row"], events["time_ns"]))
            # No later row is queued before this time.
            until_ns = int(columns["submit_ns"][-1]) + self._origin_ns - self._longest_queue_ns
            ready = int(np.searchsorted(events["time_ns"][order], until_ns))
            waiting = {name: values[order[ready:]] for name, values in events.items()}
            stored_bytes = (_EVENT_COPIES * sum(values.nbytes for values in waiting.values())
                            + _COUNTER_BYTES * len(self._sequences))
            check_export_state(self.trace, stored_bytes, "I/Os in flight or CPUs")
            if ready:
                yield self._numbered({name: values[order[:ready]] for name, values in events.items()})
        if waiting is not None and len(waiting["row"]):
            yield self._numbered(waiting)

    def _of_rows(self, columns: Columns, first_row: int) -> dict[str, np.ndarray]:
        flush = is_op(columns, "flush")
        outside = (columns["length_bytes"] >= 1 << 32) & ~flush
        unaligned = (columns["offset_bytes"] % SECTOR_BYTES != 0) & ~is_op(columns, *WITHOUT_DATA) & ~outside
        unsupported = self.account.omit_ops(columns, (*ZONE_MANAGEMENT, *CHECKS))
        empty = (columns["length_bytes"] == 0) & ~flush & ~unsupported
        short = (columns["length_bytes"] < SECTOR_BYTES) & ~(flush | unsupported | empty | unaligned)
        short &= self.whole_sectors
        unpaired = np.isin(np.arange(first_row, first_row + len(flush)), self._unpaired) & ~(
            outside | unaligned | unsupported | empty | short)
        self.account.omit("an unseen completion, which readers would mix up with a later I/O", unpaired)
        self.account.omit("length_bytes of 4 GiB and more", outside)
        self.account.omit("length_bytes is 0", empty)
        self.account.omit("offset_bytes between sectors", unaligned)
        self.account.omit(f"length_bytes below {SECTOR_BYTES}", short)
        mask = ~(outside | unaligned | empty | unsupported | unpaired | short)
        rows = chosen(columns, mask)
        if self.whole_sectors:
            self.account.lose(f"length_bytes below {SECTOR_BYTES}", rows["length_bytes"] % SECTOR_BYTES != 0)
        self.account.lose_columns(rows, _EXPRESSED, _EVENT_FLAGS)
        for name in ("write_zeroes", "zone_append"):
            self.account.lose(f"op {name}, as a write", is_op(rows, name))
        self.account.lose("queue_ns of a flush", (rows["queue_ns"] >= 0) & flush[mask])
        number = first_row + np.flatnonzero(mask)
        submit_ns, latency_ns, queue_ns = (rows[name] for name in ("submit_ns", "latency_ns", "queue_ns"))
        stages = ((QUEUE, submit_ns - queue_ns, (queue_ns >= 0) & ~flush[mask]),
                  (ISSUE, submit_ns, np.ones(len(number), bool)),
                  (COMPLETE, submit_ns + latency_ns, latency_ns >= 0))
        parts = [{"time_ns": time_ns[having] + self._origin_ns, "row": number[having],
                  "stage": np.full(int(having.sum()), stage), **{name: rows[name][having] for name in _IO_COLUMNS}}
                 for stage, time_ns, having in stages]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _numbered(self, events: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        flush = is_op(events, "flush")
        cpu = events["cpu"].clip(0).astype(np.int64)
        device = self._device_numbers[events["device"]]
        self.account.records += len(cpu)
        return {"time_ns": events["time_ns"], "stage": events["stage"],
                "sequence": self._sequence(device << 16 | cpu),
                "sector": np.where(flush, 0, events["offset_bytes"] // SECTOR_BYTES),
                "bytes": np.where(flush, 0, events["length_bytes"]), "op": events["op"], "flags": events["flags"],
                "device": device, "cpu": cpu, "tid": events["tid"].clip(0), "status": events["status"]}

    def _sequence(self, counters: np.ndarray) -> np.ndarray:
        """The number of each event among those of its counter; the kernel has one for each device and CPU."""
        distinct, at, counts = np.unique(counters, return_inverse=True, return_counts=True)
        before = np.array([self._sequences.get(counter, 0) for counter in distinct.tolist()], np.int64)
        self._sequences.update(zip(distinct.tolist(), (before + counts).tolist(), strict=True))
        numbers = np.empty(len(counters), np.int64)
        ordered = np.arange(len(counters)) - np.repeat(np.cumsum(counts) - counts, counts)
        numbers[np.argsort(at, kind="stable")] = ordered
        return numbers + before[at] + 1


def _unpaired_rows(trace: Trace) -> np.ndarray:
    """Rows without a completion before one at their place that has one, or that was not queued."""
    if trace.greatest("latency_ns") < 0:
        return np.empty(0, np.int64)
    waiting: dict[tuple[int, int, int], list[int]] = {}
    found: list[int] = []
    unqueued: set[int] = set()
    row = 0
    for columns in trace.batches(["latency_ns", "queue_ns", "op", "device", "offset_bytes"]):
        batch = {name: columns[name].to_numpy() for name in columns.schema.names}
        op = np.where(is_op(batch, "write_zeroes", "zone_append"), OPS["write"], batch["op"])
        offset_bytes = np.where(is_op(batch, "flush"), 0, batch["offset_bytes"])
        unseen = batch["latency_ns"] < 0
        at = np.flatnonzero(np.isin(offset_bytes, [*offset_bytes[unseen], *(place[2] for place in waiting)]))
        places = zip(batch["device"][at].tolist(), op[at].tolist(), offset_bytes[at].tolist(), strict=True)
        for index, place in zip(at.tolist(), places, strict=True):
            if unseen[index]:
                waiting.setdefault(place, []).append(row + index)
                if batch["queue_ns"][index] < 0 and place[1] != OPS["flush"]:
                    unqueued.add(row + index)
            else:
                found += waiting.pop(place, [])
        row += len(op)
        check_export_state(trace, _PLACE_BYTES * (len(waiting) + len(unqueued)), "I/Os in flight or CPUs")
    # Readers take an issue at a place with an I/O in flight for the same I/O, unless it was queued or is a flush.
    found += [before for rows in waiting.values() for before, after in pairwise(rows) if after in unqueued]
    return np.array(found, np.int64)


def device_numbers(trace: Trace) -> np.ndarray:
    """major << 20 | minor of each device of the trace. A device without a known number gets one for local use."""
    devices = trace.metadata.get("devices") or []
    count = max(len(devices), 1 + max(int(np.max(batch["device"])) for batch in trace.batches(["device"])
                                      if batch.num_rows))
    numbers: list[int] = []
    used: set[int] = set()
    for index in range(count):
        device = devices[index] if index < len(devices) else {}
        major, minor = device.get("major"), device.get("minor")
        number = _LOCAL_MAJOR << MINOR_BITS | index
        if isinstance(major, int) and isinstance(minor, int) and 0 <= major < 1 << 12 and 0 <= minor < 1 << MINOR_BITS:
            number = major << MINOR_BITS | minor
        numbers.append(number if number not in used else (_LOCAL_MAJOR + 1) << MINOR_BITS | index)
        used.add(numbers[-1])
    return np.array(numbers, np.int64)


def flag(events: Columns, name: str) -> np.ndarray:
    """Mask of the events with a flag of the trace."""
    mask: np.ndarray = events["flags"] & FLAGS[name] != 0
    return mask

