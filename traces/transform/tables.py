"""One table of devices, threads and files for rows of several traces."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import numpy as np

from blkreel.common.errors import UsageError
from blkreel.traces.format.check import refuse_layers
from blkreel.traces.format.metadata_types import storage_layer
from blkreel.traces.format.schema import Metadata
from blkreel.traces.format.trace import Trace

from .carry import carried, lost_per_cpu, shortfall, with_warnings, without_computing
from .rows import TRACE_FLAGS

# Two traces are of one boot if their clocks differ by less: NTP sets a clock by that much between two recordings.
_SAME_BOOT_NS = 1_000_000_000
# Ids of one boot, and the first that a trace has no number for.
_IDS = {"tid": ("thread ids", 1 << 31), "inode": ("inode numbers", 1 << 63), "cgroup": ("cgroup ids", 1 << 63)}
_MOST_DEVICES = 1 << 15
_COMPARED_ROWS = 1000
_FILES_OF_A_NUMBER = 1 << 48  # docs/trace-format.md, `inode`
_MORE_THREADS = ("used_by", "woken_by")
# Keys with a rule of their own; any other key stays if all traces have the same value.
_MERGED = {"devices", "threads", "files", "lost", "import_warnings", "epoch_ns", "clock_pairs", "part_of",
           "source_lacks", "ledger", "emulated", "unmatched"}
_JOINED = ("source_format", "capture_layer")
_COARSEST = ("clock_resolution_ns", "times_step_ns")


@dataclass
class Renumbering:
    """How the rows of one trace change. add: to ids of threads, files and cgroups. devices: new number of each."""

    add: dict[str, int]
    devices: np.ndarray

    def apply(self, columns: dict[str, np.ndarray], shift_ns: int) -> dict[str, np.ndarray]:
        """The columns, but for waited_on, as the new trace has them."""
        offsets = {**self.add, **dict.fromkeys(_MORE_THREADS, self.add["tid"])}
        changed = {name: np.where(values > 0, values + np.int64(offsets[name]), values).astype(values.dtype)
                   for name, values in columns.items() if offsets.get(name) and (values > 0).any()}
        device = columns["device"]
        return {**columns, **changed, "submit_ns": columns["submit_ns"] + shift_ns,
                "device": self.devices[device] if len(self.devices) else device,
                "flags": columns["flags"] & TRACE_FLAGS}


def boot_offset_ns(trace: Trace) -> int | None:
    """Realtime minus monotonic clock at the start of the recording; None if it was not recorded."""
    pairs = trace.metadata.get("clock_pairs")
    return pairs[0]["realtime_ns"] - pairs[0]["monotonic_ns"] if pairs else None


def same_boot(first: Trace, second: Trace) -> bool:
    """Whether both were recorded on one machine since one boot, so that clocks, threads and files are the same."""
    parts = [trace.metadata.get("part_of") for trace in (first, second)]
    if parts[0] and parts[1] and parts[0]["sha256"] == parts[1]["sha256"]:
        return True
    if (recording := _recording(first)) and recording == _recording(second):
        return True
    offsets = [boot_offset_ns(trace) for trace in (first, second)]
    host = first.metadata.get("host")
    return (bool(host) and host == second.metadata.get("host") and offsets[0] is not None and offsets[1] is not None
            and abs(offsets[0] - offsets[1]) < _SAME_BOOT_NS)


@dataclass
class Tables:
    """Add the traces in order; then metadata() has their tables."""

    onto_one: bool = False
    devices: list[Any] = field(default_factory=list)
    threads: dict[str, Any] = field(default_factory=dict)
    files: list[Any] = field(default_factory=list)
    _traces: list[Trace] = field(default_factory=list)
    _renumberings: list[Renumbering] = field(default_factory=list)

    def add(self, trace: Trace) -> Renumbering:
        """Ids of another boot are moved behind all ids so far. An equal device of the same boot is the same device.

        Raises TraceError for a trace of two layers if the new one would not tell them apart, and UsageError if there
        is no number for an id or a device.
        """
        if self.onto_one or not all(_know_one_mapping(trace, earlier) for earlier in self._traces):
            for layered in (*self._traces, trace):
                refuse_layers(layered)
        same = next((number for number, earlier in enumerate(self._traces) if same_boot(earlier, trace)), None)
        add = {name: self._first_free(name) if same is None else self._renumberings[same].add[name]
               for name in _IDS}
        if any(int(tid) > 0 and _names(thread).isdisjoint(_names(self.threads.get(str(int(tid) + add["tid"]), thread)))
               for tid, thread in trace.threads.items()):
            add["tid"] = self._first_free("tid")  # the kernel gave a number to another thread meanwhile
        paths = {(file["inode"], file.get("filesystem")): file["path"] for file in self.files}
        if any(paths.get((file["inode"] + add["inode"], file.get("filesystem")), file["path"]) != file["path"]
               for file in trace.metadata.get("files") or []):
            add["inode"] = (self._first_free("inode") | _FILES_OF_A_NUMBER - 1) + 1
        numbers: list[int] = []
        # Without a table, each number is a device of its own.
        unnamed: list[Any] = [{} for _ in range(trace.greatest("device") + 1)]
        for device in trace.metadata.get("devices") or unnamed:
            if self.onto_one:
                joined = [*self.devices, device]
                largest: Any = max(joined, key=lambda entry: entry.get("size_bytes") or 0)
                if not all(entry.get("size_bytes") for entry in joined):
                    # I/Os of a device without a size may be beyond that of the others.
                    largest = {key: value for key, value in largest.items() if key != "size_bytes"}
                self.devices = [largest]
                numbers.append(0)
            elif same is not None and (number := next((at for at, known in enumerate(self.devices) if known == device
                                                       and at not in numbers), None)) is not None:
                numbers.append(number)  # a drive of two boots is in one trace twice
            else:
                numbers.append(len(self.devices))
                self.devices.append(device)
        for tid, thread in trace.threads.items():
            pid = {"pid": thread["pid"] + add["tid"]} if thread.get("pid") else {}
            key = str(int(tid) + add["tid"] if int(tid) > 0 else int(tid))
            self.threads[key] = _later_names(self.threads.get(key), {**thread, **pid})
        file_keys = {(file["inode"], file["path"]) for file in self.files}
        for file in trace.metadata.get("files") or []:
            file = {**file, "inode": file["inode"] + add["inode"] if file["inode"] > 0 else file["inode"]}
            if (file["inode"], file["path"]) not in file_keys:
                self.files.append(file)
        above = [words for name, (words, end) in _IDS.items() if 0 < self._greatest(trace, name) >= end - add[name]]
        if above or len(self.devices) > _MOST_DEVICES:
            raise UsageError(f"{trace.name} and the traces before it have {(above or ['devices'])[0]} beyond those "
                             "that a trace has numbers for", "join fewer of them, or write them with smaller numbers: "
                             "blkreel.write_trace")
        renumbering = Renumbering(add, np.array(numbers, np.int16))
        self._traces.append(trace)
        self._renumberings.append(renumbering)
        return renumbering

    def notes(self) -> list[str]:
        """About traces with the same I/Os, which are then in the result twice."""
        return [f"traces {earlier} and {number} (from 0, as named) have the same I/Os, as saves of one flight recorder "
                "do: these are in the result twice; to leave them out of one: blkreel slice --from TIME"
                for number, trace in enumerate(self._traces) for earlier in range(number)
                if _share_ios(self._traces[earlier], trace)]

    def names(self) -> Metadata:
        """Threads and files of all traces, as in metadata()."""
        return {"threads": self.threads, "files": self.files}

    def metadata(self, shifts_ns: Sequence[int], backgrounds: Collection[int] = ()) -> Metadata:
        """The metadata of all traces. shifts_ns: of the times of each. backgrounds: numbers of those without workload.
        """
        first, *further = sources = [carried(trace.metadata) for trace in self._traces]
        result = {key: value for key, value in first.items()
                  if key not in _MERGED and all(source.get(key) == value for source in further)}
        for key in _JOINED:
            values = list(dict.fromkeys(str(source[key]) for source in sources if source.get(key)))
            if values:
                several = "mixed" if key == "capture_layer" else ", ".join(values)
                result[key] = values[0] if len(values) == 1 else several
        for key in _COARSEST:
            if steps_ns := [int(source[key]) for source in sources if source.get(key)]:
                result[key] = max(steps_ns)
        if lacks := _lacks(sources):
            result["source_lacks"] = lacks
        if all(_know_one_mapping(self._traces[0], trace) for trace in self._traces) and (volumes := {
                volume["name"]: volume for source in sources for volume in source.get("volumes") or []}):
            result["volumes"] = list(volumes.values())
            result["storage_layer"] = storage_layer(self.devices, volumes.values())
        for key in ("epoch_ns", "clock_pairs"):
            if key in first:
                result[key] = first[key]
        devices = self.devices if any(self.devices) else []
        result |= {key: value for key, value in (("devices", devices), ("threads", self.threads), ("files", self.files))
                   if value}
        # Slices of one recording have the same account.
        recordings = [_recording(trace) or number for number, trace in enumerate(self._traces)]
        accounts = {recording: without_computing(trace.metadata) if number in backgrounds else trace.metadata
                    for number, (recording, trace) in enumerate(zip(recordings, self._traces, strict=True))}
        result |= shortfall(accounts.values())
        if unmatched := sum(account.get("unmatched") or 0 for account in accounts.values()):
            result["unmatched"] = unmatched
        uses: list[Any] = [use for source in sources for use in source.get("emulated") or []]
        if uses:
            result["emulated"] = [use for number, use in enumerate(uses) if use not in uses[:number]]
        losses = [source.get("lost") for source in sources]
        if any(losses):
            result["lost"] = _lost(losses, shifts_ns, recordings)
        warnings = dict.fromkeys(text for source in sources for text in source.get("import_warnings") or [])
        return with_warnings(result, list(warnings))

    def _first_free(self, name: str) -> int:
        """The least number above those of the traces so far; 0 for the first trace."""
        return max((self._greatest(trace, name) + before.add[name]
                    for trace, before in zip(self._traces, self._renumberings, strict=True)), default=-1) + 1

    @staticmethod
    def _greatest(trace: Trace, name: str) -> int:
        return max(trace.greatest(column) for column in ((name, *_MORE_THREADS) if name == "tid" else (name,)))


def _share_ios(first: Trace, second: Trace) -> bool:
    """Whether they have the same I/O where the second of them begins."""
    drives = [{device.get("name") for device in trace.metadata.get("devices") or []} for trace in (first, second)]
    if first.path == second.path or not same_boot(first, second) or drives[0].isdisjoint(drives[1]):
        return False
    spans = [_span_ns(trace) for trace in (first, second)]
    begin_ns, end_ns = max(span[0] for span in spans), min(span[1] for span in spans)
    return begin_ns <= end_ns and not _ios(first, begin_ns).isdisjoint(_ios(second, begin_ns))


def _span_ns(trace: Trace) -> tuple[int, int]:
    """First and last submit on the clock of the machine. Without rows or statistics, the second is before the first."""
    bounds = [trace.bounds("submit_ns", group) for group in range(trace.layout.num_row_groups)]
    epoch_ns = trace.metadata.get("epoch_ns")
    if not bounds or bounds[0] is None or bounds[-1] is None or epoch_ns is None:
        return 0, -1
    return bounds[0][0] + epoch_ns, bounds[-1][1] + epoch_ns


def _ios(trace: Trace, begin_ns: int) -> set[tuple[int, ...]]:
    """Submit time on the clock of the machine, offset and operation of the first I/Os from a time on."""
    begin_ns -= trace.metadata["epoch_ns"]
    for group in range(trace.layout.num_row_groups):
        bounds = trace.bounds("submit_ns", group)
        if bounds and bounds[1] < begin_ns:
            continue
        for batch in trace.batches(["submit_ns", "offset_bytes", "op"], _COMPARED_ROWS, range(group, group + 1)):
            submit_ns, offset_bytes, op = (batch[name].to_numpy() for name in ("submit_ns", "offset_bytes", "op"))
            if (later := submit_ns >= begin_ns).any():
                times_ns = submit_ns[later] + trace.metadata["epoch_ns"]
                return set(zip(times_ns.tolist(), offset_bytes[later].tolist(), op[later].tolist(), strict=True))
    return set()


def _names(thread: Mapping[str, Any]) -> set[str]:
    """All names that a thread has had."""
    return {*(thread.get("names") or []), thread.get("comm", "")}


def _later_names(known: dict[str, Any] | None, thread: dict[str, Any]) -> dict[str, Any]:
    """The entry of a thread in two traces: that with names the other lacks is later."""
    if known is None:
        return thread
    names = known.get("names") or []
    new = [name for name in thread.get("names") or [] if name not in names]
    return {**thread, "names": [*names, *new]} if new else known


def _know_one_mapping(first: Trace, second: Trace) -> bool:
    """Whether the names of devices and volumes mean the same in both."""
    host, volumes = first.metadata.get("host"), first.metadata.get("volumes")
    return bool(host) and host == second.metadata.get("host") or volumes == second.metadata.get("volumes")


def _lacks(sources: Sequence[Metadata]) -> list[str]:
    """What any of the sources did not record, but latencies only if none has them: each row states its own."""
    of_each: list[list[str]] = [source.get("source_lacks") or [] for source in sources]
    return [what for what in dict.fromkeys(what for of_one in of_each for what in of_one)
            if what != "latency" or all(what in of_one for of_one in of_each)]


def _recording(trace: Trace) -> str | None:
    """The checksum of the trace of which this one is a slice, or a slice of a slice."""
    slices = list(takewhile(lambda step: step["command"] == "slice", reversed(trace.metadata.get("history") or [])))
    return next((source.get("sha256") for source in slices[-1].get("sources") or []), None) if slices else None


def _lost(losses: Sequence[Any], shifts_ns: Sequence[int], recordings: Sequence[str | int]) -> Metadata:
    """The sum of the losses. What two slices of one recording have counts once: an interval, or all without times."""
    intervals: list[Metadata] = []
    total: int | None = 0
    counted = set()
    for lost, shift_ns, recording in zip(losses, shifts_ns, recordings, strict=True):
        if lost is None or lost.get("total") is None:
            total = None
            continue
        moved = [{**interval, "first_ns": interval["first_ns"] + shift_ns, "last_ns": interval["last_ns"] + shift_ns}
                 for interval in lost.get("intervals") or []]
        new = [interval for interval in moved if interval not in intervals]
        intervals += new
        count = sum(interval["count"] for interval in new)
        if sum(interval["count"] for interval in moved) != lost["total"]:
            count = 0 if recording in counted else lost["total"]
            counted.add(recording)
        total = None if total is None else total + count
    units = {lost.get("unit") for lost in losses if lost and lost.get("total") != 0}
    unit = {"unit": units.pop()} if len(units) == 1 and None not in units else {}
    return {**unit, "total": total, "per_cpu": lost_per_cpu(intervals), "intervals": intervals}
