"""A simulated drive fitted to runs of a real one: by its queue first, then by what the queue leaves unexplained.

The queue of docs/method.md, "Effect of the host", gives channels, bandwidths and a latency for each operation. Then the
I/Os of the runs are simulated at their measured times, without spread. What each I/O took longer or shorter than in the
simulation corrects bandwidths, latencies and the cost of a write in flight for reads, in several rounds. Where that
explains too little, as for a trace full of flushes, which the queue does not know, all parameters are searched at once
(Nelder and Mead, 1965). What is left then is the spread.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from blkreel.common.errors import TraceError, UsageError
from blkreel.common.progress import Progress
from blkreel.replay.drive.target import find_target
from blkreel.replay.engine.engine import Batch
from blkreel.replay.fidelity.queue_metrics import READ, WRITE, QueueModel, first_guess, fit
from blkreel.replay.plan.idle import ORIGINAL as ORIGINAL_IDLE
from blkreel.replay.plan.pace import ORIGINAL
from blkreel.replay.plan.plan import TracePlan
from blkreel.replay.plan.planner import plan_trace
from blkreel.replay.run.simulate import simulate
from blkreel.replay.simulated.spec import MAX_FACTOR, SPREAD_SHARES, SimulatedDrive
from blkreel.traces.format.metadata_types import Run
from blkreel.traces.format.reader import open_trace
from blkreel.traces.format.schema import OPS
from blkreel.traces.format.trace import Trace

from .contention import measured_misfit, with_contention
from .model import MAX_SLOWDOWN, MIN_LATENCY_NS, FittedModel

# Fewer reads have no p99.
MIN_READS = 100
# I/Os of each run that the queue is fitted to; chunks from all over it.
_CHUNK_ROWS, _CHUNKS = 4096, 4
_ROUNDS = 8
# Misfit from which the parameters are searched: I/Os are off by a factor of 1.4 on average.
_SEARCHED_FROM = 0.5
_SIMULATIONS = 200
_MIN_COMPARED = 50
_MAX_CORRECTION = 2.0  # of a bandwidth or slowdown in one round
_FLUSH = OPS["flush"]
# Of the values that are searched: three latencies in ns, two bandwidths in bytes/s, the slowdown.
_LEAST = np.array([MIN_LATENCY_NS] * 3 + [1e4] * 2 + [1.0])
_MOST = np.array([60e9] * 3 + [1e12] * 2 + [MAX_SLOWDOWN])
_USUAL_CHANNELS = 32
_LARGEST_DRIVE_BYTES = 1 << 53
_IDENTITY = ("model", "firmware", "serial_hash", "size_bytes")


@dataclass(frozen=True)
class MeasuredRun:
    """Completed I/Os of a run in the order of submission; times in ns.

    trace: the records. account: of the run. row: of the records. beside_write: whether a write was in flight when the
    I/O was submitted.
    """

    trace: Trace
    account: Run
    row: np.ndarray
    op: np.ndarray
    length_bytes: np.ndarray
    submit_ns: np.ndarray
    latency_ns: np.ndarray
    beside_write: np.ndarray

    @property
    def has_background(self) -> bool:
        return bool(self.account.background)

    @property
    def workload(self) -> str:
        """What the run replayed: the checksum of the trace, or its path."""
        return str(self.account.source.sha256 or self.account.source.path)


def read_run(path: str) -> MeasuredRun:
    """Raises UsageError for a trace that is not a run, and for a run that a drive cannot be fitted to."""
    trace = open_trace(path)
    if not trace.is_run:
        raise UsageError(f"{path} is a capture: it tells what a program did, not what a drive can do",
                         f"replay it on the drive, then fit the run: blkreel replay {path} --on DEVICE -o RUN")
    if (drives := len(trace.metadata.get("devices") or [])) != 1:
        raise UsageError(f"{path} is a run on {drives} drives", "fit runs on one drive")
    if not 0 < trace.account.drive.get("size_bytes", 0) <= _LARGEST_DRIVE_BYTES:
        raise UsageError(f"{path} has no size of its drive: run.drive.size_bytes is not one of a drive",
                         "replay the trace again on the drive")
    if trace.account.verdict["level"] == "invalid":
        raise UsageError(f"{path} is invalid, so its times are not those of the drive",
                         f"see why: blkreel report {path} --why")
    table = trace.table(["submit_ns", "latency_ns", "length_bytes", "op", "status"])
    columns = {name: table[name].to_numpy() for name in table.column_names}
    row = np.flatnonzero((columns["latency_ns"] >= 0) & (columns["status"] == 0))
    columns = {name: column[row] for name, column in columns.items()}
    if (columns["op"] == READ).sum() < MIN_READS:
        raise UsageError(f"{path} has fewer than {MIN_READS} completed reads", "fit runs of a longer trace")
    return MeasuredRun(trace, trace.account, row, columns["op"], columns["length_bytes"], columns["submit_ns"],
                       columns["latency_ns"],
                       beside_write(columns["op"], columns["submit_ns"], columns["latency_ns"]))


def beside_write(op: np.ndarray, submit_ns: np.ndarray, latency_ns: np.ndarray) -> np.ndarray:
    """Whether a write that was submitted before was still in flight, for each I/O in the order of submission."""
    ends_ns = np.maximum.accumulate(np.where(op == WRITE, submit_ns + latency_ns, np.iinfo(np.int64).min))
    before_ns = np.concatenate([[np.iinfo(np.int64).min], ends_ns[:-1]])
    beside: np.ndarray = before_ns > submit_ns
    return beside


def same_drive(runs: Sequence[MeasuredRun]) -> Mapping[str, Any]:
    """The drive of the runs. Raises UsageError if they are of several."""
    drives: list[Mapping[str, Any]] = [run.account.drive for run in runs]
    for run, drive in zip(runs, drives, strict=True):
        for key in _IDENTITY:
            if drive.get(key) != drives[0].get(key):
                raise UsageError(f"{runs[0].trace.path} and {run.trace.path} are runs on different drives: {key} "
                                 f"{drives[0].get(key)!r} and {drive.get(key)!r}", "fit the runs of one drive")
    return drives[0]


def fit_drive(runs: Sequence[MeasuredRun], progress: Progress) -> FittedModel:
    """runs: of one drive. Raises TraceError if the I/Os of a run cannot be simulated.

    What reads take alone is fitted to the runs without a background, if there are any; then what they take beside
    writes to those with one.
    """
    contended = [run for run in runs if run.has_background]
    quiet = [run for run in runs if not run.has_background]
    if contended and quiet:
        rates = np.concatenate([run.length_bytes[run.op == WRITE] / np.maximum(run.latency_ns[run.op == WRITE], 1)
                                for run in contended])
        fastest_write = 1e9 * float(np.quantile(rates, 0.75)) if len(rates) else 1e9
        model = with_contention(_fitted(quiet, progress), fastest_write,
                                lambda model: _mean_misfit(runs, model, progress))
    else:
        model = _fitted(runs, progress)
    compared = _compared(quiet or runs, model, progress)
    for op in (READ, WRITE):
        model.spread[op] = _spread(model, compared, op)
    return model


def _mean_misfit(runs: Sequence[MeasuredRun], model: FittedModel, progress: Progress) -> float:
    drive = model.drive()
    return float(np.mean([measured_misfit(run.latency_ns, simulated_latencies(run, drive, progress), run.op)
                          for run in runs]))


def _fitted(runs: Sequence[MeasuredRun], progress: Progress) -> FittedModel:
    """Without a spread."""
    queue = _queue(runs)
    size_bytes = int(same_drive(runs).get("size_bytes") or 0)
    latency_ns = [max(value, MIN_LATENCY_NS) for value in queue.latency_ns]
    model, misfit = _corrected(FittedModel(size_bytes, queue.channels, latency_ns,
                                           [1e9 / max(of, 1e-6) for of in queue.ns_per_byte]), runs, progress)
    if misfit > _SEARCHED_FROM:
        model = _searched([model, _of_fast_ios(runs, size_bytes)], runs, progress)
    return model


def _corrected(model: FittedModel, runs: Sequence[MeasuredRun], progress: Progress) -> tuple[FittedModel, float]:
    """The best model of all rounds, and its misfit."""
    best, least = model, np.inf
    for _ in range(_ROUNDS):
        compared = _compared(runs, model, progress)
        if compared.misfit < least:
            best, least = copy.deepcopy(model), compared.misfit
        _correct(model, compared)
    return best, least


def _of_fast_ios(runs: Sequence[MeasuredRun], size_bytes: int) -> FittedModel:
    """Latencies of I/Os that waited for no other, and bandwidths of a usual drive: another start for the search."""
    latency_ns = [MIN_LATENCY_NS] * len(OPS)
    for op in OPS.values():
        measured_ns = np.concatenate([run.latency_ns[run.op == op] for run in runs])
        if len(measured_ns):
            latency_ns[op] = float(np.percentile(measured_ns, 5))
    return FittedModel(size_bytes, _USUAL_CHANNELS, latency_ns, [1e9, 1e9])


def _searched(starts: Sequence[FittedModel], runs: Sequence[MeasuredRun], progress: Progress) -> FittedModel:
    """The model with the least misfit that a search from the best of the starts finds."""
    from scipy.optimize import minimize  # takes half a second to load

    start = min(starts, key=lambda each: _compared(runs, each, progress).misfit)
    at = np.log2([*start.latency_ns[:3], *start.bandwidth, start.read_slowdown])

    def model_at(place: np.ndarray) -> FittedModel:
        values = np.clip(2.0 ** np.clip(place, -60, 60), _LEAST, _MOST).tolist()
        return FittedModel(start.size_bytes, start.channels, [*values[:3], *start.latency_ns[3:]], values[3:5],
                           values[5])

    simplex = at + np.vstack([np.zeros(len(at)), np.diag([-1.0] * (len(at) - 1) + [1.0])])
    found = minimize(lambda place: _compared(runs, model_at(place), progress).misfit, at, method="Nelder-Mead",
                     options={"maxfev": _SIMULATIONS, "xatol": 0.02, "fatol": 1e-3, "initial_simplex": simplex})
    return model_at(found.x)


@dataclass(frozen=True)
class _Compared:
    """I/Os of all runs, measured and simulated."""

    op: np.ndarray
    length_bytes: np.ndarray
    beside_write: np.ndarray
    measured_ns: np.ndarray
    simulated_ns: np.ndarray

    def of(self, mask: np.ndarray) -> "_Compared":
        return _Compared(*(getattr(self, column.name)[mask] for column in fields(self)))

    @property
    def misfit(self) -> float:
        """Mean of |log2(simulated / measured)|, of each kind of I/O alike."""
        off = np.abs(np.log2(np.maximum(self.simulated_ns, 1) / np.maximum(self.measured_ns, 1)))
        reads = self.op == READ
        kinds = [reads & self.beside_write, reads & ~self.beside_write, self.op == WRITE, self.op == _FLUSH]
        means = [float(off[kind].mean()) for kind in kinds if kind.sum() >= _MIN_COMPARED]
        return sum(means) / len(means) if means else 0.0

    @property
    def excess_ns(self) -> np.ndarray:
        excess: np.ndarray = self.measured_ns - self.simulated_ns
        return excess


def _compared(runs: Sequence[MeasuredRun], model: FittedModel, progress: Progress) -> _Compared:
    drive = model.drive()
    parts = [(run.op, run.length_bytes, run.beside_write, run.latency_ns, simulated_latencies(run, drive, progress))
             for run in runs]
    return _Compared(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _correct(model: FittedModel, compared: _Compared) -> None:
    """One round: the median of what I/Os took longer than simulated, by length and beside writes."""
    for op in (READ, WRITE):
        ios = compared.of((compared.op == op) & ~(compared.beside_write & (op == READ)))
        if len(ios.op) < _MIN_COMPARED:
            ios = compared.of(compared.op == op)
        if not len(ios.op):
            continue
        model.bandwidth[op] = _corrected_bandwidth(model.bandwidth[op], ios)
        typical = ios.length_bytes <= np.median(ios.length_bytes)
        model.latency_ns[op] = max(model.latency_ns[op] + float(np.median(ios.excess_ns[typical])), MIN_LATENCY_NS)
    flushes = compared.of(compared.op == _FLUSH)
    if len(flushes.op):
        model.latency_ns[_FLUSH] = max(model.latency_ns[_FLUSH] + float(np.median(flushes.excess_ns)), MIN_LATENCY_NS)
    reads = compared.of(compared.op == READ)
    beside = reads.of(reads.beside_write)
    if min(len(beside.op), len(reads.op) - len(beside.op)) >= _MIN_COMPARED:
        factor = _limited(float(np.median(beside.measured_ns / np.maximum(beside.simulated_ns, 1))))
        model.read_slowdown = float(np.clip(model.read_slowdown * factor, 1, MAX_SLOWDOWN))


def _corrected_bandwidth(bandwidth: float, ios: _Compared) -> float:
    """By the difference of the median excess between long and short I/Os; the same for I/Os of one length."""
    middle = np.median(ios.length_bytes)
    is_long = ios.length_bytes > middle if (ios.length_bytes > middle).any() else ios.length_bytes >= middle
    if min(is_long.sum(), (~is_long).sum()) < _MIN_COMPARED:
        return bandwidth
    longer_bytes = np.mean(ios.length_bytes[is_long]) - np.mean(ios.length_bytes[~is_long])
    more_ns = np.median(ios.excess_ns[is_long]) - np.median(ios.excess_ns[~is_long])
    ns_per_byte = 1e9 / bandwidth + more_ns / longer_bytes
    return bandwidth * _limited(float(1e9 / bandwidth / max(ns_per_byte, 1e-9)))


def _limited(factor: float) -> float:
    return min(max(factor, 1 / _MAX_CORRECTION), _MAX_CORRECTION)


def _spread(model: FittedModel, compared: _Compared, op: int) -> np.ndarray:
    """Quantiles of the factors of the latency that explain what single I/Os took longer or shorter."""
    ios = compared.of(compared.op == op)
    if not len(ios.op):
        return np.ones(len(SPREAD_SHARES))
    latency_ns = model.latency_ns[op] * np.where(ios.beside_write & (op == READ), model.read_slowdown, 1.0)
    factors = np.quantile(np.clip(1 + ios.excess_ns / latency_ns, 0, MAX_FACTOR), SPREAD_SHARES)
    rising: np.ndarray = np.maximum.accumulate(factors)
    return rising


def simulated_latencies(run: MeasuredRun, drive: SimulatedDrive, progress: Progress) -> np.ndarray:
    """Latencies in ns of the run's completed I/Os on the drive, submitted when they were."""
    latency_ns = np.full(run.trace.rows, -1, np.int64)

    def take(rows: Batch) -> None:
        latency_ns[rows["source_row"]] = rows["complete_ns"] - rows["submit_ns"]

    if not simulate(_plan_of(run, drive), drive, take, progress, "simulating the run"):
        raise TraceError(f"{run.trace.path}: its I/Os cannot be simulated", "check it: blkreel check RUN")
    simulated: np.ndarray = latency_ns[run.row]
    return simulated


def _plan_of(run: MeasuredRun, drive: SimulatedDrive) -> TracePlan:
    return plan_trace(run.trace, find_target(drive.spec), pace=ORIGINAL, idle=ORIGINAL_IDLE, prefill=False)


def _queue(runs: Sequence[MeasuredRun]) -> QueueModel:
    """Fitted to chunks of each run; the queue is empty at the start of each, as on another day."""
    ops, lengths, arrivals, latencies = [], [], [], []
    offset_ns = 0
    for run in runs:
        count = min(_CHUNKS, -(-len(run.op) // _CHUNK_ROWS))
        for start in np.linspace(0, max(0, len(run.op) - _CHUNK_ROWS), count).astype(np.int64):
            rows = slice(start, start + _CHUNK_ROWS)
            submit_ns, latency_ns = run.submit_ns[rows], run.latency_ns[rows]
            arrivals.append(submit_ns - submit_ns[0] + offset_ns)
            offset_ns = int((arrivals[-1] + latency_ns).max()) + 1
            ops.append(run.op[rows])
            lengths.append(run.length_bytes[rows])
            latencies.append(latency_ns)
    op, length_bytes, arrive_ns, latency_ns = (np.concatenate(pieces) for pieces in (ops, lengths, arrivals, latencies))
    return fit(first_guess(op, length_bytes, latency_ns), arrive_ns, op, length_bytes, latency_ns, _CHUNK_ROWS)
