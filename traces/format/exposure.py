"""Exposure: how much of the reads that a user waits for ran beside background writes.

A slowdown by writes can be measured only where reads and writes ran together. The writer of a trace or run computes
the exposure from its rows and stores it in the metadata (key `exposure`); exposure_of() reads it, or the rows.

Foreground reads are those of the workload, and background writes the writes of others. A trace that marks no workload
I/O has a foreground and a background if rows have the role `background`; else all reads and all writes count. Of
several drives, a read is beside the writes of its own drive.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np

from blkreel.common.binning import sum_of
from blkreel.common.units import digits, format_ns

from .schema import FLAGS, OPS, WRITE_CODES, Metadata
from .trace import Trace

KEY = "exposure"
VERSION = 1
COLUMNS = ["submit_ns", "latency_ns", "length_bytes", "op", "flags", "device"]
# Writes are going on around a read if at least this rate of them completes in the second around its submission.
GOING_ON_BYTES_S = 5_000_000
WINDOW_NS = 10**9
# Below this share of bytes read beside writes, a slowdown is not stated.
LEAST_BESIDE = 0.2
# Writes that end earlier than this share of the reads' time before its end did not last for all of it.
_LATE_SHARE = 0.1
_ADVICE = "use --background"
_PIECE_ROWS = 1 << 16


@dataclass(frozen=True)
class Exposure:
    """Sums over the foreground reads.

    read_bytes: of all. met_bytes: submitted while a background write was outstanding. beside_bytes: submitted while
    background writes were going on: outstanding, or GOING_ON_BYTES_S completed within the second around. weighted:
    sum of read bytes x bytes written in that second, over the reads beside writes. At the begin and the end of the
    trace the second is what there is of it, and its bytes count accordingly more. reads_ns: from the first submission
    of a read to the last completion. written_until_ns: last completion of a write, from the same start; None without
    writes. longest_pause_ns: between two writes.
    """

    read_bytes: int = 0
    met_bytes: int = 0
    beside_bytes: int = 0
    weighted: int = 0
    reads_ns: int = 0
    written_until_ns: int | None = None
    longest_pause_ns: int = 0

    def __add__(self, other: Self) -> Self:
        """Of two runs or drives: sums add up; times are those of the longer reads."""
        longer = max(self, other, key=lambda exposure: exposure.reads_ns)
        return replace(longer, read_bytes=self.read_bytes + other.read_bytes,
                       met_bytes=self.met_bytes + other.met_bytes,
                       beside_bytes=self.beside_bytes + other.beside_bytes, weighted=self.weighted + other.weighted)

    @property
    def met_share(self) -> float | None:
        return self.met_bytes / self.read_bytes if self.read_bytes else None

    @property
    def beside_share(self) -> float | None:
        return self.beside_bytes / self.read_bytes if self.read_bytes else None

    @property
    def write_bytes_s(self) -> float | None:
        """Mean rate of the background writes during the reads beside them, weighted by bytes read."""
        return self.weighted * 10**9 / WINDOW_NS / self.beside_bytes if self.beside_bytes else None

    @property
    def ended_early(self) -> bool:
        """Whether the writes ended before the reads did."""
        if self.written_until_ns is None:
            return False
        return self.reads_ns - self.written_until_ns > max(_LATE_SHARE * self.reads_ns, self.longest_pause_ns)

    def why_withheld(self, is_looped: bool = False) -> str:
        """Why a slowdown by writes cannot be stated; empty if it can. is_looped: the writes lasted until the end."""
        share = self.beside_share
        if share is None:
            return "no reads: no slowdown by writes"
        if share < LEAST_BESIDE:
            advice = "use a background that writes more" if is_looped else _ADVICE
            return f"writes beside {percent(share)} of the reads: no slowdown can be measured; {advice}"
        if not is_looped and self.ended_early:
            return (f"the writes ended after {format_ns(max(0, self.written_until_ns or 0))} of "
                    f"{format_ns(self.reads_ns)} of reads: the slowdown would be too small; {_ADVICE}")
        return ""

    def words(self) -> str:
        """`94 % of the bytes read beside writes at 110 MB/s, 12 % with one outstanding`."""
        share, met, rate = self.beside_share, self.met_share, self.write_bytes_s
        if share is None or met is None:
            return "no reads"
        at = f" at {digits(rate / 1e6)} MB/s" if rate else ""
        return f"{percent(share)} of the bytes read beside writes{at}, {percent(met)} with one outstanding"

    def document(self) -> dict[str, Any]:
        """For JSON documents: shares of the bytes read, and the rate of the writes in bytes/s."""
        return {"read_bytes": self.read_bytes, "met_share": self.met_share, "beside_share": self.beside_share,
                "write_bytes_s": self.write_bytes_s, "reads_ns": self.reads_ns,
                "written_until_ns": self.written_until_ns}

    @classmethod
    def of_metadata(cls, metadata: Mapping[str, Any]) -> Self | None:
        """As the writer stored it; None if the file has none."""
        stored = metadata.get(KEY)
        try:
            if not stored or stored["version"] != VERSION:
                return None
            exposure = cls(**stored["sums"])
            numbers = [value for name, value in asdict(exposure).items()
                       if name != "written_until_ns" or value is not None]
        except (KeyError, TypeError):
            return None
        return exposure if all(type(number) is int for number in numbers) else None


def exposure_of(trace: Trace) -> Exposure:
    """Of an open trace or run, from its metadata, or from one pass over its rows. Raises TraceError."""
    stored = trace.metadata.get(KEY)
    if isinstance(stored, dict) and stored.get("row_groups_at") == trace.row_groups_at:
        exposure = Exposure.of_metadata(trace.metadata)
        if exposure is not None:
            return exposure
    scan = ExposureScan()
    for batch in trace.batches(COLUMNS):
        scan.add({name: batch[name].to_numpy() for name in COLUMNS})
    return scan.result()


def percent(share: float) -> str:
    """`0.2 %`, `34 %`: rounded down, so that a share below a limit does not read as the limit."""
    if 0 < share < 0.001:
        return "< 0.1 %"
    return f"{int(share * 1000) / 10:g} %" if share < 0.1 else f"{int(share * 100 + 1e-9)} %"


class ExposureScan:
    """Takes the rows of a trace in order of submit_ns. Holds the rows of about WINDOW_NS, and outstanding writes."""

    def __init__(self) -> None:
        # Of rows marked as workload, and of the others as long as there are none.
        self._marked, self._others = _Drives(), _Drives()
        self._has_workload = self._has_role = False

    def add(self, columns: Mapping[str, np.ndarray]) -> None:
        """The next rows, with COLUMNS."""
        flags, op = columns["flags"], columns["op"]
        if not len(op):
            return
        is_read, is_write = op == OPS["read"], np.isin(op, WRITE_CODES)
        is_workload, has_role = (flags & FLAGS["own"]) != 0, (flags & FLAGS["role_background"]) != 0
        self._has_workload |= bool(is_workload.any())
        self._marked.add(columns, is_read & is_workload, is_write & ~is_workload)
        if self._has_workload:
            self._others = _Drives()
            return
        if not self._has_role and has_role.any():
            # The rows so far have no role: their reads are of the foreground, and their writes of no background.
            self._has_role, self._others = True, self._others.without_writes()
        if self._has_role:
            is_read, is_write = is_read & ~has_role, is_write & has_role
        self._others.add(columns, is_read, is_write)

    def result(self) -> Exposure:
        """Of the rows so far. More may follow."""
        return (self._marked if self._has_workload else self._others).result()

    def metadata(self, row_groups_at: list[int]) -> Metadata:
        """The key `exposure` and its value. row_groups_at: file offsets of the row groups, as in `survey`."""
        return {KEY: {"version": VERSION, "row_groups_at": row_groups_at, "sums": asdict(self.result())}}


# The columns that a scan of one drive reads.
_OF_A_DRIVE = ("submit_ns", "latency_ns", "length_bytes")


class _Drives:
    """Exposure of some reads to some writes of the same drive."""

    def __init__(self) -> None:
        self._scans: dict[int, _Scan] = {}  # by device

    def add(self, columns: Mapping[str, np.ndarray], reads: np.ndarray, writes: np.ndarray) -> None:
        devices = np.unique(columns["device"]).tolist()
        if len(devices) == 1:
            self._scans.setdefault(devices[0], _Scan()).add(columns, reads, writes)
            return
        for device in devices:
            on_drive = columns["device"] == device
            self._scans.setdefault(device, _Scan()).add(
                {name: columns[name][on_drive] for name in _OF_A_DRIVE}, reads[on_drive], writes[on_drive])

    def without_writes(self) -> "_Drives":
        """The same reads to no writes."""
        drives = _Drives()
        drives._scans = {device: scan.without_writes() for device, scan in self._scans.items()}
        return drives

    def result(self) -> Exposure:
        of_drives = [scan.result() for scan in self._scans.values()]
        return sum_of(of_drives) if of_drives else Exposure()


class _Scan:
    """Exposure of some reads to some writes."""

    def __init__(self) -> None:
        self._sums = Exposure()
        self._begin_ns: int | None = None  # of the trace
        self._end_ns = 0
        self._first_ns: int | None = None
        self._read_until_ns = 0
        self._written_until_ns: int | None = None
        self._longest_pause_ns = 0
        # Reads that may have writes completing within the second around them in later rows, and the writes near them.
        self._read_ns = self._read_bytes = np.empty(0, np.int64)
        self._submit_ns = self._complete_ns = self._written_bytes = np.empty(0, np.int64)

    def add(self, columns: Mapping[str, np.ndarray], reads: np.ndarray, writes: np.ndarray) -> None:
        submit_ns, latency_ns = columns["submit_ns"], columns["latency_ns"]
        complete_ns = submit_ns + np.maximum(latency_ns, 0)
        writes = writes & (latency_ns >= 0)
        if self._begin_ns is None:
            self._begin_ns = int(submit_ns[0])
        self._end_ns = max(self._end_ns, int(complete_ns.max()))
        if reads.any():
            if self._first_ns is None:
                self._first_ns = int(submit_ns[reads][0])
            self._read_until_ns = max(self._read_until_ns, int(complete_ns[reads].max()))
            self._read_ns = np.concatenate([self._read_ns, submit_ns[reads]])
            self._read_bytes = np.concatenate([self._read_bytes, columns["length_bytes"][reads].astype(np.int64)])
        if writes.any():
            self._note_pauses(submit_ns[writes], complete_ns[writes])
            self._submit_ns = np.concatenate([self._submit_ns, submit_ns[writes]])
            self._complete_ns = np.concatenate([self._complete_ns, complete_ns[writes]])
            self._written_bytes = np.concatenate([self._written_bytes,
                                                  columns["length_bytes"][writes].astype(np.int64)])
        self._settle(int(submit_ns[-1]) - WINDOW_NS // 2)

    def result(self) -> Exposure:
        sums = self._counted(len(self._read_ns), self._end_ns)
        if self._first_ns is None:
            return sums
        return Exposure(sums.read_bytes, sums.met_bytes, sums.beside_bytes, sums.weighted,
                        self._read_until_ns - self._first_ns,
                        None if self._written_until_ns is None else self._written_until_ns - self._first_ns,
                        self._longest_pause_ns)

    def without_writes(self) -> "_Scan":
        scan = _Scan()
        scan._sums = Exposure(read_bytes=self._sums.read_bytes)
        scan._begin_ns, scan._end_ns = self._begin_ns, self._end_ns
        scan._first_ns, scan._read_until_ns = self._first_ns, self._read_until_ns
        scan._read_ns, scan._read_bytes = self._read_ns, self._read_bytes
        return scan

    def _note_pauses(self, submit_ns: np.ndarray, complete_ns: np.ndarray) -> None:
        before = int(submit_ns[0]) if self._written_until_ns is None else self._written_until_ns
        reach_ns = np.maximum.accumulate(np.concatenate([[before], complete_ns]))
        self._longest_pause_ns = max(self._longest_pause_ns, int((submit_ns - reach_ns[:-1]).max()))
        self._written_until_ns = int(reach_ns[-1])

    def _settle(self, before_ns: int) -> None:
        """Count the reads submitted before this time, and drop them and the writes that no later read meets."""
        count = int(np.searchsorted(self._read_ns, before_ns))
        if count:
            self._sums = self._counted(count, before_ns + WINDOW_NS)
            self._read_ns, self._read_bytes = self._read_ns[count:], self._read_bytes[count:]
        near = self._complete_ns > min([before_ns, *self._read_ns[:1].tolist()]) - WINDOW_NS // 2
        if not near.all():
            self._submit_ns, self._complete_ns = self._submit_ns[near], self._complete_ns[near]
            self._written_bytes = self._written_bytes[near]

    def _counted(self, count: int, end_ns: int) -> Exposure:
        """The sums with the first `count` waiting reads. end_ns: of the trace, or later than the second around them."""
        order = np.argsort(self._complete_ns, kind="stable")
        complete_ns = self._complete_ns[order]
        written = np.concatenate([[0], np.cumsum(self._written_bytes[order])])
        sums = self._sums
        # In pieces: a dozen arrays of all reads of a second take more memory than the reads.
        for start in range(0, count, _PIECE_ROWS):
            piece = slice(start, min(start + _PIECE_ROWS, count))
            sums = self._with_reads(sums, self._read_ns[piece], self._read_bytes[piece], complete_ns, written, end_ns)
        return sums

    def _with_reads(self, sums: Exposure, read_ns: np.ndarray, length: np.ndarray, complete_ns: np.ndarray,
                    written: np.ndarray, end_ns: int) -> Exposure:
        """complete_ns: of the writes, ascending. written: the bytes of those before each, and of all."""
        around = (written[np.searchsorted(complete_ns, read_ns + WINDOW_NS // 2, "right")]
                  - written[np.searchsorted(complete_ns, read_ns - WINDOW_NS // 2, "right")])
        covered_ns = np.maximum(np.minimum(read_ns + WINDOW_NS // 2, end_ns)
                                - np.maximum(read_ns - WINDOW_NS // 2, self._begin_ns or 0), WINDOW_NS // 10)
        around = np.rint(around * (WINDOW_NS / covered_ns)).astype(np.int64)
        # A write of latency 0 is never outstanding: it counts as submitted and as complete.
        met = (np.searchsorted(self._submit_ns, read_ns, "right") - np.searchsorted(complete_ns, read_ns, "right")) > 0
        beside = met | (around * 10**9 >= GOING_ON_BYTES_S * WINDOW_NS)
        weighted = _sum_of_products(around[beside], length[beside])
        return Exposure(sums.read_bytes + int(length.sum()), sums.met_bytes + int(length[met].sum()),
                        sums.beside_bytes + int(length[beside].sum()), sums.weighted + weighted)


def _sum_of_products(left: np.ndarray, right: np.ndarray) -> int:
    """Exact, also where a product or the sum exceeds int64."""
    if not len(left):
        return 0
    left_most, right_most = (max(abs(int(values.min())), abs(int(values.max()))) for values in (left, right))
    if left_most * right_most * len(left) < 1 << 63:
        return int(left @ right)
    return sum(a * b for a, b in zip(left.tolist(), right.tolist(), strict=True))
