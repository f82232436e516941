"""A simulated drive fitted to runs of a real one: by its queue first, then by what the queue leaves unexplained.

The queue of docs/method.md, "Effect of the host", gives channels, bandwidths and a latency for each operation. Then the
I/Os of the runs are simulated at their measured times, without spread. What each I/O took longer or shorter than in the
simulation corrects bandwidths, latencies and the cost of a write in flight for reads, in several rounds: first of the
reads that are not near writes, then of all else. Where that explains too little, as for a trace full of flushes, which
the queue does not know, these parameters are searched at once (Nelder and Mead, 1965). What is left then is the spread.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache

import numpy as np

from blkreel.common.progress import Progress
from blkreel.replay.fidelity.queue_metrics import READ, WRITE, QueueModel, first_guess, fit
from blkreel.replay.simulated.spec import MAX_FACTOR, SPREAD_SHARES
from blkreel.traces.format.schema import OPS

from .contention import contention_fits, loads_of, misfit_of_loads
from .measured_run import Ios, MeasuredRun, beside_any, same_drive, simulated_latencies
from .model import MAX_SLOWDOWN, MIN_LATENCY_NS, FittedModel

# I/Os of each run that the queue is fitted to; chunks from all over it.
_CHUNK_ROWS, _CHUNKS = 4096, 4
_ROUNDS = 8
# Misfit from which the parameters are searched: I/Os are off by a factor of 1.4 on average.
_SEARCHED_FROM = 0.5
_SIMULATIONS = 200
_MIN_COMPARED = 50
_AT_ONCE = 1.1  # times what an I/O takes alone, up to which it waited for no other
_MAX_CORRECTION = 2.0  # of a bandwidth or slowdown in one round
_FLUSH = OPS["flush"]
# Of the values that are searched: three latencies in ns, two bandwidths in bytes/s, the slowdown.
_LEAST = np.array([MIN_LATENCY_NS] * 3 + [1e4] * 2 + [1.0])
_MOST = np.array([60e9] * 3 + [1e12] * 2 + [MAX_SLOWDOWN])
_OF_ALL = np.ones(len(_LEAST), bool)
# Of writes, flushes and reads beside them.
_OF_WRITES = np.array([False, True, True, False, True, True])
_OF_WRITES_ALONE = np.array([False, True, True, False, True, False])
_USUAL_CHANNELS = 32
_LONG_BYTES = 256 << 10
_BUS_ROUNDS = 10
# Difference and ratio of the misfits of models that explain runs equally well.
_AS_GOOD, _AS_GOOD_FACTOR = 0.02, 1.25
# Misfit of runs full of writes from which they have another cause of contention than a factor for reads. A spread of
# latencies alone gives up to 0.15.
_UNEXPLAINED = 0.2


def fit_drives(runs: Sequence[MeasuredRun], progress: Progress) -> list[FittedModel]:
    """The model that explains the runs best, and others that explain them as well: what the runs leave open.

    runs: of one drive. What reads take alone is fitted to the runs with few writes, else to those without a background,
    if there are any; then what they take beside writes to the others, or to the same if their I/Os are not explained.
    Raises TraceError if the I/Os of a run cannot be simulated.
    """
    quiet = [run for run in runs if not run.has_contention] or [run for run in runs if not run.has_background]
    models = _fitted(quiet or runs, progress)
    if quiet and (len(quiet) < len(runs) or misfit_of_loads(models[0], loads_of(runs, progress)) > _UNEXPLAINED):
        own = [run for run in runs if run.has_contention and not run.has_background]
        fits = [fit for model in models
                for fit in contention_fits(_with_own_writes(model, quiet, own, progress), runs, progress,
                                           _worse_alone(model, quiet, progress))]
        least = min(fit.misfit for fit in fits)
        fits = [fit for fit in fits if fit.misfit <= least * _AS_GOOD_FACTOR + _AS_GOOD]
        models = [fit.model for fit in fits]
    for model in models:
        compared = _compared(quiet or runs, model, progress)
        model.spread = {op: _spread(model, compared, op) for op in (READ, WRITE)}
    return models


def _worse_alone(model: FittedModel, quiet: Sequence[MeasuredRun], progress: Progress
                 ) -> Callable[[FittedModel], float]:
    """How much worse the channels and commands of another model explain the runs with few writes."""
    usual = _compared(quiet, model, progress).misfit

    @cache
    def worse(channels: int, commands: int | None) -> float:
        other = replace(model, channels=channels, commands=commands)
        return max(_compared(quiet, other, progress).misfit - usual, 0.0)

    return lambda other: worse(other.channels, other.commands)


def _fitted(runs: Sequence[MeasuredRun], progress: Progress) -> list[FittedModel]:
    """The best model, and those that differ in what a byte costs and are as good; without a spread."""
    queue = _queue(runs)
    size_bytes = int(same_drive(runs).get("size_bytes") or 0)
    latency_ns = [max(value, MIN_LATENCY_NS) for value in queue.latency_ns]
    bandwidth = [1e9 / max(of, 1e-6) for of in queue.ns_per_byte]
    start = FittedModel(size_bytes, queue.channels, latency_ns, bandwidth)
    model, misfit = _corrected(start, runs, progress)
    # Reads of one size that always overlap are as well explained by few channels as by the bus, which drives have.
    buses = [_corrected(bus, runs, progress) for bus in _buses(start, runs)]
    if buses and (bus := min(buses, key=lambda fit: fit[1]))[1] < misfit + _AS_GOOD:
        model, misfit = bus
    if misfit > _SEARCHED_FROM:
        return [_searched([model, _of_fast_ios(runs, size_bytes)], runs, progress)]
    model = _with_writes(model, runs, progress)
    return [model, *(alternative for alternative in _of_other_bandwidth(model, runs)
                     if _compared(runs, alternative, progress).misfit < misfit + _AS_GOOD)]


def _buses(start: FittedModel, runs: Sequence[MeasuredRun]) -> list[FittedModel]:
    """Starts with a bus, for drives of many commands and of one."""
    return [replace(start, channels=_USUAL_CHANNELS, commands=commands,
                    latency_ns=[bus[0], *start.latency_ns[1:]], bandwidth=[bus[1], start.bandwidth[WRITE]])
            for commands in (None, 1) if (bus := _bus(runs, commands == 1)) is not None]


def _of_other_bandwidth(model: FittedModel, runs: Sequence[MeasuredRun]) -> list[FittedModel]:
    """Models whose reads of the usual size take as long on an idle drive, nearly all of it latency, or transfer."""
    usual_bytes = float(np.median(np.concatenate([run.length_bytes[run.op == READ] for run in runs])))
    service_ns = model.latency_ns[READ] + usual_bytes * 1e9 / model.bandwidth[READ]
    alternatives = []
    for share in (0.1, 0.9):
        transfer_ns = max(service_ns * (1 - share), 1)
        if not 0.5 < transfer_ns * model.bandwidth[READ] / 1e9 / usual_bytes < 2:
            alternatives += [replace(model, channels=_USUAL_CHANNELS, commands=commands,
                                     latency_ns=[service_ns * share, *model.latency_ns[1:]],
                                     bandwidth=[usual_bytes * 1e9 / transfer_ns, model.bandwidth[WRITE]])
                             for commands in (None, 1)]
    return alternatives


def _bus(runs: Sequence[MeasuredRun], one_command: bool = False) -> tuple[float, float] | None:
    """Latency in ns and bandwidth in bytes/s of reads, from those that overlapped and those that did not.

    Overlapping long reads complete at the rate of the bus, on a drive of one command each after the latency of its own;
    without any, sizes of single reads have a slope.
    """
    gaps, long_bytes, lengths, latencies = [], [], [], []
    for run in runs:
        reads = Ios(*(getattr(run, column.name)[run.op == READ] for column in fields(Ios)))
        end_ns = reads.submit_ns + reads.latency_ns
        alone = ~(beside_any(run) | run.near_write)[run.op == READ]
        lengths.append(reads.length_bytes[alone])
        latencies.append(reads.latency_ns[alone])
        order = np.argsort(end_ns, kind="stable")
        gap_ns = np.diff(end_ns[order])
        follows = (reads.submit_ns[order][1:] < end_ns[order][:-1]) & (gap_ns > 0)
        follows &= reads.length_bytes[order][1:] >= max(np.median(reads.length_bytes), _LONG_BYTES)
        gaps.append(gap_ns[follows])
        long_bytes.append(reads.length_bytes[order][1:][follows])
    length_bytes, latency_ns, gap_ns, of_bytes = map(np.concatenate, (lengths, latencies, gaps, long_bytes))
    if not len(latency_ns):
        return None
    per_byte = _slope(length_bytes, latency_ns)
    if per_byte is None and len(gap_ns) >= _MIN_COMPARED:
        own_ns = 0.0
        for _ in range(_BUS_ROUNDS if one_command else 1):
            per_byte = float(np.median(np.maximum(gap_ns - own_ns, 1) / of_bytes))
            own_ns = float(np.median(latency_ns - per_byte * length_bytes))
    if per_byte is None:
        return None
    return max(float(np.median(latency_ns - per_byte * length_bytes)), MIN_LATENCY_NS), 1e9 / per_byte


def _slope(length_bytes: np.ndarray, latency_ns: np.ndarray) -> float | None:
    """ns per byte between short and long I/Os; None if they are too few, or of one size."""
    short = length_bytes <= np.quantile(length_bytes, 0.25)
    # Where most are of one size, the long ones are fewer than a quarter.
    long = ~short & (length_bytes >= np.quantile(length_bytes, 0.75))
    if min(short.sum(), long.sum()) < _MIN_COMPARED / 2:
        return None
    more_bytes = float(np.median(length_bytes[long]) - np.median(length_bytes[short]))
    more_ns = float(np.median(latency_ns[long]) - np.median(latency_ns[short]))
    return more_ns / more_bytes if more_ns > 0 else None


def _corrected(model: FittedModel, runs: Sequence[MeasuredRun], progress: Progress) -> tuple[FittedModel, float]:
    """The best model of all rounds, and its misfit."""
    model, compared = _in_rounds(model, runs, progress, _OF_ALL, lambda compared: compared.misfit)
    return model, compared.misfit


def _with_writes(model: FittedModel, runs: Sequence[MeasuredRun], progress: Progress) -> FittedModel:
    """The model with other writes, flushes and reads beside them."""
    model, compared = _in_rounds(model, runs, progress, _OF_WRITES, lambda compared: compared.write_misfit)
    return model if compared.write_misfit <= _SEARCHED_FROM else _searched([model], runs, progress, _OF_WRITES)


def _with_own_writes(model: FittedModel, quiet: Sequence[MeasuredRun], own: Sequence[MeasuredRun],
                     progress: Progress) -> list[FittedModel]:
    """The model with writes and flushes as in the quiet runs, and as in those that have many of their own, where they
    wait for other I/O. Reads beside these are fitted later."""
    models = [model] if not own or any((run.op == WRITE).any() for run in quiet) else []
    if own:
        models.append(_in_rounds(model, own, progress, _OF_WRITES_ALONE, lambda compared: compared.write_misfit)[0])
    return models


def _in_rounds(model: FittedModel, runs: Sequence[MeasuredRun], progress: Progress, mask: np.ndarray,
               misfit_of: Callable[["_Compared"], float]) -> tuple[FittedModel, "_Compared"]:
    """The model with the values of the mask corrected. After a round that explains the runs worse, steps are shorter:
    a drive that is a little too slow falls behind, which delays all that follows."""
    compared, step = _compared(runs, model, progress), 1.0
    for _ in range(_ROUNDS):
        if not misfit_of(compared):  # as of runs without writes
            break
        aim = copy.deepcopy(model)
        _correct(aim, compared)
        tried = _with_values(model, _values(model) + step * (_values(aim) - _values(model)), mask)
        found = _compared(runs, tried, progress)
        if misfit_of(found) < misfit_of(compared):
            model, compared, step = tried, found, min(2 * step, 1.0)
        else:
            step /= 4
    return model, compared


def _values(model: FittedModel) -> np.ndarray:
    """Binary logarithms of what is searched."""
    return np.log2([*model.latency_ns[:3], *model.bandwidth, model.read_slowdown])


def _with_values(model: FittedModel, values: np.ndarray, mask: np.ndarray) -> FittedModel:
    """The model with those values, as from _values(), that the mask has, within their limits."""
    chosen = np.where(mask, np.clip(2.0 ** np.clip(values, -60, 60), _LEAST, _MOST), 2.0 ** _values(model)).tolist()
    return replace(model, latency_ns=[*chosen[:3], *model.latency_ns[3:]], bandwidth=chosen[3:5],
                   read_slowdown=chosen[5])


def _of_fast_ios(runs: Sequence[MeasuredRun], size_bytes: int) -> FittedModel:
    """Latencies of I/Os that waited for no other, and bandwidths of a usual drive: another start for the search."""
    latency_ns = [MIN_LATENCY_NS] * len(OPS)
    for op in OPS.values():
        measured_ns = np.concatenate([run.latency_ns[run.op == op] for run in runs])
        if len(measured_ns):
            latency_ns[op] = float(np.percentile(measured_ns, 5))
    return FittedModel(size_bytes, _USUAL_CHANNELS, latency_ns, [1e9, 1e9])


def _searched(starts: Sequence[FittedModel], runs: Sequence[MeasuredRun], progress: Progress,
              mask: np.ndarray = _OF_ALL) -> FittedModel:
    """The model with the least misfit that a search of the values of the mask from the best of the starts finds."""
    from scipy.optimize import minimize  # takes half a second to load

    def misfit_of(model: FittedModel) -> float:
        compared = _compared(runs, model, progress)
        return compared.misfit + compared.write_misfit

    start = min(starts, key=misfit_of)
    at = _values(start)

    def model_at(place: np.ndarray) -> FittedModel:
        values = at.copy()
        values[mask] = place
        return _with_values(start, values, mask)

    count = int(mask.sum())
    simplex = at[mask] + np.vstack([np.zeros(count), np.diag([-1.0] * (count - 1) + [1.0])])
    result = minimize(lambda place: misfit_of(model_at(place)), at[mask], method="Nelder-Mead",
                      options={"maxfev": _SIMULATIONS, "xatol": 0.02, "fatol": 1e-3, "initial_simplex": simplex})
    return model_at(result.x)


@dataclass(frozen=True)
class _Compared:
    """I/Os of all runs, measured and simulated."""

    op: np.ndarray
    length_bytes: np.ndarray
    beside_write: np.ndarray
    near_write: np.ndarray
    measured_ns: np.ndarray
    simulated_ns: np.ndarray

    def of(self, mask: np.ndarray) -> "_Compared":
        return _Compared(*(getattr(self, column.name)[mask] for column in fields(self)))

    @property
    def misfit(self) -> float:
        """Mean of |log2(simulated / measured)| of the reads that are not near writes, or of all kinds of I/Os alike if
        there are too few of these."""
        clear = (self.op == READ) & ~self.near_write
        if clear.sum() >= _MIN_COMPARED:
            return self._off([clear])
        return self._off([(self.op == READ) & ~self.beside_write, *self._written])

    @property
    def write_misfit(self) -> float:
        """The same of reads beside writes, writes and flushes, each alike."""
        return self._off(self._written)

    @property
    def _written(self) -> list[np.ndarray]:
        return [(self.op == READ) & self.beside_write, self.op == WRITE, self.op == _FLUSH]

    def _off(self, kinds: Sequence[np.ndarray]) -> float:
        off = np.abs(np.log2(np.maximum(self.simulated_ns, 1) / np.maximum(self.measured_ns, 1)))
        means = [float(off[kind].mean()) for kind in kinds if kind.sum() >= _MIN_COMPARED]
        return sum(means) / len(means) if means else 0.0

    @property
    def excess_ns(self) -> np.ndarray:
        excess: np.ndarray = self.measured_ns - self.simulated_ns
        return excess


def _compared(runs: Sequence[MeasuredRun], model: FittedModel, progress: Progress) -> _Compared:
    drive = model.drive()
    parts = [(run.op, run.length_bytes, run.beside_write, run.near_write, run.latency_ns,
              simulated_latencies(run, drive, progress)) for run in runs]
    return _Compared(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _correct(model: FittedModel, compared: _Compared) -> None:
    """One round: the median of what I/Os took longer than simulated, by length and beside writes."""
    for op in (READ, WRITE):
        ios = compared.of(compared.op == op)
        if not len(ios.op):
            continue
        ios = _undisturbed(model, ios, op)
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


def _undisturbed(model: FittedModel, ios: _Compared, op: int) -> _Compared:
    """Those of the I/Os of one operation that wait for no other in the simulation, reads that are not near writes: a
    small error in what each I/O takes adds up for one at the end of a queue. If there are enough."""
    slowdown = np.where(ios.beside_write, model.read_slowdown, 1.0) if op == READ else 1.0
    served_ns = model.latency_ns[op] * slowdown + ios.length_bytes * 1e9 / model.bandwidth[op]
    at_once = ios.simulated_ns <= _AT_ONCE * served_ns
    clear = ~ios.near_write | (op != READ)
    masks = (at_once & clear, clear, at_once)
    return ios.of(next((mask for mask in masks if mask.sum() >= _MIN_COMPARED), np.ones(len(ios.op), bool)))


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
    ios = _undisturbed(model, ios, op)
    latency_ns = model.latency_ns[op] * np.where(ios.beside_write & (op == READ), model.read_slowdown, 1.0)
    return _nearest_spread(np.clip(1 + ios.excess_ns / latency_ns, 0, MAX_FACTOR))


def _nearest_spread(factors: np.ndarray) -> np.ndarray:
    """Of all spreads that with the least Wasserstein-2 distance to the factors: the rising, piecewise linear quantile
    function that is nearest to theirs. Their quantiles themselves would add to the mean where few are far out, because
    all between the last usual and the first of these would be between both."""
    from scipy.optimize import nnls  # takes half a second to load

    factors = np.sort(factors)
    shares = (np.arange(len(factors)) + 0.5) / len(factors)
    steps = np.array([np.interp(shares, SPREAD_SHARES, np.arange(len(SPREAD_SHARES)) >= number)
                      for number in range(len(SPREAD_SHARES))]).T
    spread: np.ndarray = np.minimum(np.cumsum(nnls(steps, factors)[0]), factors[-1])
    return spread


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
