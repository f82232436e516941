"""Plays a workload model into I/Os. The same model and seed give the same I/Os."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from blkreel.common.errors import UsageError
from blkreel.traces.format.schema import OPS, TIME_LIMIT_NS, TRACE_SCHEMA, Metadata
from blkreel.traces.transform.carry import WRITER
from blkreel.traces.transform.output import TransformOutput
from blkreel.traces.transform.rows import filled

from .measurement import LENGTH_CLASSES, PIECE_IOS, Columns, Measurement
from .placement import MOST_SAMPLED_IOS
from .places import Places, indexes
from .workload_model import LATENCY_LENGTHS_BYTES, WorkloadModel

SOURCE_FORMAT = "blkreel-model"
_MOST_WAITING = 1 << 22  # transitions of one walk


def generated(model: WorkloadModel, seed: int, ios: int | None = None) -> Iterator[Columns]:
    """The I/Os in order of submission, in batches. ios: how many; None: as many as the trace had.

    Raises UsageError for more than a trace has times for.
    """
    made, left = 0, model.ios if ios is None else ios
    random = np.random.Generator(np.random.PCG64(seed))
    states, places = _States(model, random), Places(model, random)
    gaps, latencies = _Gaps(model), _Latencies(model)
    codes = np.array([OPS[state.op] for state in model.states], np.int8)
    sequential = np.array([state.sequential for state in model.states])
    gap_class = np.array([state.gap_class for state in model.states])
    now_ns, first = 0, True
    while left > 0:
        path = states.walk(min(left, PIECE_IOS))
        left -= len(path)
        op = codes[path]
        gaps_ns = gaps.draw(gap_class[path], random)
        if first:
            gaps_ns[0], first = 0, False
        offset_bytes, length_bytes = places.draw(op, sequential[path])
        latency_ns = latencies.draw(op, length_bytes, random)
        beyond = np.cumsum(gaps_ns, dtype=float) + latency_ns >= TIME_LIMIT_NS - now_ns
        if beyond.any():
            raise UsageError("the I/Os of the model last longer than a trace can: 73 years",
                             f"make fewer: --ios {max(2, (made + int(np.argmax(beyond))) // 2)}")
        submit_ns = now_ns + np.cumsum(gaps_ns)
        now_ns, made = int(submit_ns[-1]), made + len(path)
        yield {"submit_ns": submit_ns, "op": op, "offset_bytes": offset_bytes, "length_bytes": length_bytes,
               "latency_ns": latency_ns}


def write_generated(model: WorkloadModel, output: Path, *, seed: int, ios: int | None = None, force: bool = False,
                    public: bool = False, most_sampled_ios: int = MOST_SAMPLED_IOS) -> Measurement:
    """Write the I/Os of a model as a trace, and measure them."""
    options = {"seed": seed, "ios": ios or model.ios}
    metadata: Metadata = {
        "writer": WRITER, "source_format": SOURCE_FORMAT, "title": "I/Os of a workload model",
        "devices": [{"name": "model", "size_bytes": -(-model.capacity_bytes // 4096) * 4096}],
        "lost": {"total": 0}, "source_lacks": ["thread", "dependencies", *([] if model.has_latency() else ["latency"])],
        **model.clock,
        "history": [{"command": "model", "writer": WRITER, "options": options, "sources": [], "notes": []}]}
    measurement = Measurement(model.capacity_bytes, ios or model.ios, most_sampled_ios)
    with TransformOutput(output, TRACE_SCHEMA, metadata, force=force, public=public) as out:
        for columns in generated(model, seed, ios):
            out.write(filled(columns, TRACE_SCHEMA))
            measurement.add(columns)
        out.finish(metadata)
    return measurement


class _States:
    """Walks the chain. Each walk uses every transition as often as the trace did, in random order.

    The last transition out of each state stays the last, so that the walk cannot end before (Altschul and Erickson,
    Mol. Biol. Evol. 1985). Very long traces are walked in shorter rounds, which may end early and begin again.
    """

    def __init__(self, model: WorkloadModel, random: np.random.Generator):
        self._random = random
        self._first = model.first
        total = sum(count for _, _, count in model.transitions)
        scale = max(1.0, total / _MOST_WAITING)
        self._all = [np.empty(0, np.int64)] * len(model.states)
        begins, ends, counts = np.array(model.transitions, np.int64).reshape(-1, 3).T
        counts = np.maximum(np.rint(counts / scale), 1).astype(np.int64)
        for begin in np.unique(begins).tolist():
            rows = begins == begin
            waiting = counts[rows] - (ends[rows] == model.last_exits[begin])
            self._all[begin] = np.repeat(ends[rows], waiting)
        self._exits = model.last_exits
        self._restart()

    def _restart(self) -> None:
        self._left = [[*([last] if last >= 0 else []), *self._random.permutation(ends).tolist()]
                      for ends, last in zip(self._all, self._exits, strict=True)]
        self._state = self._first
        self._begun = False

    def walk(self, count: int) -> np.ndarray:
        """The next states, by number."""
        path, left, state = [] if self._begun else [self._state], self._left, self._state
        while len(path) < count:
            ends = left[state]
            if ends:
                state = ends.pop()
            else:
                self._restart()
                left, state = self._left, self._state
            path.append(state)
        self._state, self._begun = state, True
        return np.array(path[:count], np.int64)


class _Gaps:
    def __init__(self, model: WorkloadModel):
        self._tables = [np.array(table or [0], np.int64) for table in model.gaps_ns]

    def draw(self, classes: np.ndarray, random: np.random.Generator) -> np.ndarray:
        gaps_ns = np.zeros(len(classes), np.int64)
        for number in np.unique(classes).tolist():
            rows = classes == number
            gaps_ns[rows] = _likely(self._tables[number], int(rows.sum()), random)
        return gaps_ns


class _Latencies:
    def __init__(self, model: WorkloadModel):
        self._tables = {OPS[name] * LENGTH_CLASSES + number: np.array(table, np.int64)
                        for name, op in model.ops.items() for number, table in enumerate(op.latencies_ns) if table}

    def draw(self, op: np.ndarray, length_bytes: np.ndarray, random: np.random.Generator) -> np.ndarray:
        latency_ns = np.full(len(op), -1, np.int64)
        groups = op.astype(np.int64) * LENGTH_CLASSES + np.searchsorted(LATENCY_LENGTHS_BYTES, length_bytes)
        for group in np.unique(groups).tolist():
            if group in self._tables:
                rows = groups == group
                latency_ns[rows] = _likely(self._tables[group], int(rows.sum()), random)
        return latency_ns


def _likely(values: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    """Of equally likely values."""
    chosen: np.ndarray = values[indexes(np.ones(len(values), np.int64), count, random)]
    return chosen
