"""Two drives I/O by I/O: runs of one trace joined through `source_row`, without holding either of them.

Each row of a run names its row of the trace. The ratio of each I/O's times on two drives leaves out what sets
I/Os apart from each other, and shows where in the trace one drive loses. It says nothing of another run of the same
drives: the unit of repetition is a run, so what differs I/O by I/O in single runs is an observation.

Rows come in the order of submission, in which a replay may overtake itself. The trace is gone through in windows of
source rows; a file is through with a window when a whole batch of it lies behind. Rows that come later still are
counted as `late` and are in no figure.

A change of the results or of their form raises VERSION: stored pairs of another version are not used.
tests/unit/analysis/compare/test_second_pass.py pins what this one tells.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from blkreel.analysis.metrics.measure import Measured
from blkreel.common.verdict import enough
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import FLAGS, OP_NAMES
from blkreel.traces.format.trace import Trace

VERSION = 1
Columns = dict[str, np.ndarray]
Document = dict[str, Any]  # as in the JSON document

WINDOW_ROWS = 1 << 19  # in all runs together, so that memory is the same for two runs and for twelve
FEWEST_ROWS = 1 << 15
MOST_AHEAD_ROWS = 4 << 20  # of one file beyond its window: 150 MB
LOSSES = 20
COLUMNS = ["source_row", "submit_ns", "due_ns", "latency_ns", "offset_bytes", "length_bytes", "op", "status",
           "flags"]
MEASURES = ("latency", "response")
NOTE = ("I/O by I/O, a difference of these runs; whether the drives differ is told by intervals over runs, because the "
        "unit of repetition is a whole run")

_STEPS = 256  # classes of ratio a factor of e: a percentile is known to 0.2 %
_REACH = 20 * _STEPS  # up to a factor of e^20; beyond it counts as that
_PERCENTILES = {"p1": (1, 100), "p5": (5, 100), "p25": (25, 100), "p50": (50, 100), "p75": (75, 100),
                "p95": (95, 100), "p99": (99, 100)}


class Unpaired(Exception):
    """These runs can't be set against each other I/O by I/O; the text says why."""


def paired(base: Measured | list[Measured], other: Measured | list[Measured],
           window_rows: int | None = None) -> Document:
    """The document of a pair: ratios other / base of latency and response, and the I/Os that lose the most.

    base, other: Measured, or lists of them: of several runs of a drive, the geometric mean over runs of each I/O that
    all of them have. {"why": reason} of runs of which no I/Os can be paired. Raises TraceError for a damaged file.
    """
    base_runs, other_runs = (side if isinstance(side, list) else [side] for side in (base, other))
    if not of_one_trace(base_runs, other_runs):
        return {"why": "not runs of one trace"}
    window_rows = window_rows or window_of(base_runs, other_runs)
    try:
        sides = [[open_trace(run.path) for run in side] for side in (base_runs, other_runs)]
        return _Pairing(sides, window_rows).result()
    except Unpaired as reason:
        return {"why": str(reason)}


def of_one_trace(base: Sequence[Measured], other: Sequence[Measured]) -> bool:
    """Whether all are runs that replayed the same trace, as their metadata says. No row is read."""
    sources = {run.account.source.sha256 for run in [*base, *other]}
    return None not in sources and len(sources) == 1


def window_of(base: Sequence[Measured], other: Sequence[Measured]) -> int:
    """How many source rows are joined at a time."""
    return max(FEWEST_ROWS, WINDOW_ROWS // len([*base, *other]))


class _Rows:
    """One run by windows of its source rows. ahead: rows read that lie behind the window."""

    def __init__(self, trace: Trace) -> None:
        self._batches = iter(trace.batches(COLUMNS))
        self._ahead: list[Columns] = []
        self.late, self._ended = 0, False
        self._origin_ns: int | None = None
        self._latest = -1  # the lowest source row of the last batch

    @property
    def next_row(self) -> int | None:
        """The first source row behind the windows so far; None where there is none."""
        return min((int(rows["source_row"].min()) for rows in self._ahead), default=None)

    @property
    def over(self) -> bool:
        return self._ended and not self._ahead

    def window(self, begin: int, end: int) -> Columns:
        """Rows of source rows begin to end, ascending."""
        held, self._ahead = self._ahead, []
        inside: list[Columns] = []
        for rows in held:
            self._part(rows, begin, end, inside)
        through = self._latest >= end
        while not (through or self._ended):
            batch = next(self._batches, None)
            if batch is None:
                self._ended = True
                break
            rows = self._taken(batch)
            if len(rows["source_row"]):
                self._latest = int(rows["source_row"].min())
                through = self._latest >= end
            self._part(rows, begin, end, inside)
            if sum(len(batch["source_row"]) for batch in self._ahead) > MOST_AHEAD_ROWS:
                raise Unpaired("the runs issued the trace's I/Os in too different an order")
        if not inside:
            return {}
        rows = {name: np.concatenate([batch[name] for batch in inside]) for name in inside[0]}
        order = np.argsort(rows["source_row"], kind="stable")
        rows = {name: column[order] for name, column in rows.items()}
        if (np.diff(rows["source_row"]) == 0).any():
            raise Unpaired("a run holds I/Os of the trace several times, as with --map tile")
        return rows

    def _taken(self, batch: pa.RecordBatch) -> Columns:
        rows = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in COLUMNS}
        is_foreground = (rows["flags"] & FLAGS["role_background"]) == 0
        rows = {name: column[is_foreground] for name, column in rows.items()}
        if self._origin_ns is None and len(rows["submit_ns"]):
            self._origin_ns = int(rows["submit_ns"][0])
        rows["at_ns"] = rows["submit_ns"] - (self._origin_ns or 0)
        usable = (rows["source_row"] >= 0) & (rows["latency_ns"] >= 0) & (rows["status"] == 0)
        return {name: column[usable] for name, column in rows.items()}

    def _part(self, rows: Columns, begin: int, end: int, inside: list[Columns]) -> None:
        source = rows["source_row"]
        self.late += int((source < begin).sum())
        for chosen, to in (((source >= begin) & (source < end), inside), (source >= end, self._ahead)):
            if chosen.any():
                to.append({name: column[chosen] for name, column in rows.items()})


class _Ratios:
    """Distribution of ln(other / base) over I/Os."""

    def __init__(self) -> None:
        self.counts = np.zeros(2 * _REACH + 1, np.int64)
        self.n = self.faster = self.slower = 0
        self.sum = self.base_ns = self.other_ns = 0.0

    def add(self, logs: np.ndarray, base_ns: np.ndarray, other_ns: np.ndarray) -> None:
        self.n += len(logs)
        self.faster, self.slower = self.faster + int((logs < 0).sum()), self.slower + int((logs > 0).sum())
        self.sum += float(logs.sum())
        self.base_ns, self.other_ns = self.base_ns + float(base_ns.sum()), self.other_ns + float(other_ns.sum())
        places = np.clip(np.rint(logs * _STEPS), -_REACH, _REACH).astype(np.int64) + _REACH
        self.counts += np.bincount(places, minlength=len(self.counts))

    def document(self) -> Document:
        cumulative = np.cumsum(self.counts)
        document: Document = {"n": self.n, "geometric_mean": float(np.exp(self.sum / self.n)),
                 "sum_ratio": self.other_ns / self.base_ns, "faster_share": self.faster / self.n,
                 "slower_share": self.slower / self.n}
        for name, (numerator, denominator) in _PERCENTILES.items():
            fewer = min(numerator, denominator - numerator)
            document[name] = None
            if enough(self.n, (denominator - fewer, denominator)):
                rank = max(1, -(-self.n * numerator // denominator))
                document[name] = float(np.exp((np.searchsorted(cumulative, rank) - _REACH) / _STEPS))
        return document

    def classes(self, most: int = 200) -> list[Document]:
        """[ratio from, to, I/Os]: what a chart draws, at most so many of even width in the logarithm."""
        used = np.flatnonzero(self.counts)
        step = max(1, -(-int(used[-1] - used[0] + 1) // most))
        edges = np.arange(used[0], used[-1] + 1, step)
        sums = np.add.reduceat(self.counts[:used[-1] + 1], edges)
        return [{"from": float(np.exp((edge - _REACH - .5) / _STEPS)),
                 "to": float(np.exp((edge + step - _REACH - .5) / _STEPS)), "n": int(count)}
                for edge, count in zip(edges, sums, strict=True) if count]


class _Pairing:
    def __init__(self, sides: list[list[Trace]], window_rows: int) -> None:
        self._sides = [[_Rows(trace) for trace in side] for side in sides]
        self._groups: dict[str, dict[tuple[str, Any], _Ratios]] = {measure: {} for measure in MEASURES}
        self._losses: list[Document] = []
        self.unpaired = 0
        begin = 0
        while not all(run.over for side in self._sides for run in side):
            self._join([[run.window(begin, begin + window_rows) for run in side] for side in self._sides])
            # A part of a trace may begin anywhere in it.
            following = [run.next_row for side in self._sides for run in side if run.next_row is not None]
            begin = max(begin + window_rows, min(following, default=0))

    def _join(self, windows: list[list[Columns]]) -> None:
        runs = [rows for side in windows for rows in side]
        source_rows = [rows.get("source_row", np.empty(0, np.int64)) for rows in runs]
        common = source_rows[0]
        for source in source_rows[1:]:
            common = np.intersect1d(common, source, assume_unique=True)
        self.unpaired += max(map(len, source_rows)) - len(common)
        if not len(common):
            return
        places = [np.searchsorted(source, common) for source in source_rows]
        first = {name: column[places[0]] for name, column in runs[0].items()}
        split = len(windows[0])
        for measure in MEASURES:
            logs, mask = [], np.ones(len(common), bool)
            for rows, place in zip(runs, places, strict=True):
                values = rows["latency_ns"][place]
                if measure == "response":
                    due_ns = rows["due_ns"][place]
                    values, mask = rows["submit_ns"][place] + values - due_ns, mask & (due_ns >= 0)
                mask = mask & (values > 0)
                logs.append(np.log(np.maximum(values, 1)))
            base, other = (np.asarray(sum(part) / len(part)) for part in (logs[:split], logs[split:]))
            self._add(measure, {name: column[mask] for name, column in first.items()}, base[mask], other[mask])

    def _add(self, measure: str, first: Columns, base: np.ndarray, other: np.ndarray) -> None:
        base_ns, other_ns, groups = np.exp(base), np.exp(other), self._groups[measure]
        sizes = np.frexp(np.maximum(first["length_bytes"], 1).astype(float))[1] - 1  # 4096 up to 8191 is one class
        keys: list[tuple[tuple[str, Any], np.ndarray]] = [(("all", 0), np.ones(len(base), bool))]
        keys += [(("op", int(op)), first["op"] == op) for op in np.unique(first["op"])]
        keys += [(("size", (int(op), int(size))), (first["op"] == op) & (sizes == size))
                 for op in np.unique(first["op"]) for size in np.unique(sizes[first["op"] == op])]
        for key, mask in keys:
            if mask.any():
                groups.setdefault(key, _Ratios()).add((other - base)[mask], base_ns[mask], other_ns[mask])
        if measure == "latency" and len(base):
            self._keep_losses(first, base_ns, other_ns)

    def _keep_losses(self, first: Columns, base_ns: np.ndarray, other_ns: np.ndarray) -> None:
        lost_ns = other_ns - base_ns
        for place in np.argsort(-lost_ns, kind="stable")[:LOSSES].tolist():
            if lost_ns[place] > 0:
                self._losses.append({
                    "source_row": int(first["source_row"][place]), "op": OP_NAMES[int(first["op"][place])],
                    "offset_bytes": int(first["offset_bytes"][place]),
                    "length_bytes": int(first["length_bytes"][place]), "at_ns": int(first["at_ns"][place]),
                    "base_ns": float(base_ns[place]), "other_ns": float(other_ns[place])})
        self._losses = sorted(self._losses, key=lambda loss: (loss["base_ns"] - loss["other_ns"], loss["source_row"]))
        del self._losses[LOSSES:]

    def result(self) -> Document:
        if not self._groups["latency"]:
            raise Unpaired("no I/O of the trace is in all of these runs")
        base, other = map(len, self._sides)
        document: Document = {"base_runs": base, "other_runs": other, "unpaired": self.unpaired,
                 "late": sum(run.late for side in self._sides for run in side), "note": NOTE, "losses": self._losses}
        for measure, groups in self._groups.items():
            if not groups:
                document[measure] = None  # no I/O had a deadline
                continue
            documents = {key: ratios.document() for key, ratios in groups.items()}
            document[measure] = {
                **documents["all", 0], "classes": groups["all", 0].classes(),
                "by_op": [{"op": OP_NAMES[which], **ratios}
                          for (kind, which), ratios in sorted(documents.items(), key=str) if kind == "op"],
                "by_size": [{"op": OP_NAMES[op], "from_bytes": 1 << size, "to_bytes": 2 << size,
                             **documents["size", (op, size)]}
                            for op, size in sorted(which for kind, which in documents if kind == "size")]}
        return document
