"""What writes cost reads on a fitted drive: the keys that runs with many writes show, a background's or their own.

A drive shares its link between both directions, a read waits for programs on its die, a simple drive does one command
after the other, or reads just take longer beside writes. Each cause gives the latencies of reads another distribution:
waits for programs last up to a program, also without a write in flight, and are as long for short reads as for long
ones. So simulated loads are compared with the measured ones by distributions, for each size of reads (Wasserstein
distance), and the cause and its values are those with the least distance (Nelder and Mead, 1965).
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from blkreel.common.binning import grouped
from blkreel.common.progress import Progress
from blkreel.replay.fidelity.queue_metrics import READ, WRITE

from .measured_run import Ios, MeasuredRun, repeated_ios
from .model import MAX_SLOWDOWN, FittedModel

_SIMULATIONS = 40  # of each cause
_POLISHED = 2  # of the best starts, from each write bandwidth
# Misfit from which writes may have filled a cache, and simulations to find it.
_POOR, _CACHE_SIMULATIONS = 0.1, 150
# Starts of this search. Rates are multiples of that of the slowest quarter of the writes.
_CACHES = (1 / 16, 1 / 8, 1 / 4, 1 / 2)  # size, as a share of what was written
_DIRECT = (1, 1.3)  # write bandwidth past the cache
_FOLDS = (1 / 4, 1 / 2.5)  # of the cache while it takes data
_FEW_DIES = 8
_LONG_BYTES = 128 << 10
_FIRST_STEP, _LAST_STEP = 1.0, 0.03  # in powers of 2
_MIN_IOS = 50  # of a size
_SHARES = (np.arange(200) + 0.5) / 200
_FARTHEST = 10.0
_SHORT_WRITE_NS = 20e3
_DIES = (4, 32)
_PROGRAMS_NS = (2e5, 1e6, 5e6)
_SHORTEST_NS = 1e4
_FREE_LINK = 1e11  # from such a value on a link limits nothing
_LEAST = {"write_bandwidth": 1e4, "link": 1e5, "program_ns": 1e3, "read_slowdown": 1.0, "channels": 1,
          "cache": 1e5, "cache_bandwidth": 1e4, "cache_program": 1e3, "cache_fold": 0.0, "cache_drain": 0.0}
_MOST = {"write_bandwidth": 1e12, "link": 1e12, "program_ns": 1e9, "read_slowdown": MAX_SLOWDOWN, "channels": 256,
         "cache": 1e14, "cache_bandwidth": 1e12, "cache_program": 1e9, "cache_fold": 1e12, "cache_drain": 1e12}
# Sizes of the first steps of a search, in powers of 2.
_STEPS = {"write_bandwidth": -0.3, "link": 0.3, "program_ns": 0.4, "read_slowdown": 0.5, "channels": -1.5}

Values = Mapping[str, float]
FitOf = Callable[[str, FittedModel, Values], "Fit"]


class ContendedLoad:
    """A load beside backgrounds: its runs, and those of the same load alone, in groups of I/Os.

    Groups: reads by size (powers of 2), and writes between the first read and the last.
    """

    def __init__(self, runs: Sequence[MeasuredRun], alone: Sequence[MeasuredRun], progress: Progress):
        self._runs, self._alone, self._progress = runs, alone, progress
        ios = _joined([_groups(run) for run in runs])
        least = min(_MIN_IOS, max(map(len, ios.values())))
        self._measured = _distributions({group: latency_ns for group, latency_ns in ios.items()
                                         if len(latency_ns) >= least}, _joined([_groups(run) for run in alone]))
        self._simulated_alone: dict[tuple[int, int | None], dict[int, np.ndarray]] = {}

    def misfit(self, model: FittedModel) -> float:
        """Mean over the groups of the distance of simulated from measured latencies, as a share of their mean."""
        simulated = _distributions(_groups(repeated_ios(self._runs[0], model.drive(), self._progress)),
                                   self._alone_on(model))
        return float(np.mean([_distance(simulated.get(group), measured) for group, measured in self._measured.items()]))

    @property
    def longest_wait_ns(self) -> float | None:
        """What reads that were submitted without a write in flight took longer than alone, of 9 of 10; None if there
        are too few of them."""
        waits_ns = [run.latency_ns[met_none & (size == group)] - float(np.median(usual))
                    for run in self._runs for size, met_none in [(_size(run), (run.op == READ) & ~run.beside_write)]
                    for group, usual in _joined([_groups(run) for run in self._alone]).items()]
        joined = np.concatenate(waits_ns) if waits_ns else np.empty(0)
        return float(np.quantile(joined, 0.9)) if len(joined) >= _MIN_IOS else None

    def _alone_on(self, model: FittedModel) -> dict[int, np.ndarray]:
        """What writes cost changes nothing of the load alone, except what it shares with its own I/O."""
        if not self._alone:
            return {}
        key = model.channels, model.commands
        if key not in self._simulated_alone:
            self._simulated_alone[key] = _groups(repeated_ios(self._alone[0], model.drive(), self._progress))
        return self._simulated_alone[key]


def _groups(ios: Ios) -> dict[int, np.ndarray]:
    """Latencies by the binary logarithm of the size of reads, -1 for writes."""
    is_read = ios.op == READ
    end_ns = ios.submit_ns + ios.latency_ns
    during = (ios.submit_ns >= ios.submit_ns[is_read].min()) & (ios.submit_ns <= end_ns[is_read].max())
    group = np.where(is_read, _size(ios), -1)[during & (is_read | (ios.op == WRITE))]
    latency_ns = ios.latency_ns[during & (is_read | (ios.op == WRITE))]
    return {int(key): latency_ns[group == key] for key in np.unique(group)}


def _size(ios: Ios) -> np.ndarray:
    """Binary logarithm, rounded up."""
    size: np.ndarray = np.ceil(np.log2(np.maximum(ios.length_bytes, 1))).astype(int)
    return size


def _distributions(beside: Mapping[int, np.ndarray], alone: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    """Quantiles of each group: of reads as multiples of what such reads take alone, so that an error in what a load
    takes alone is no contention."""
    usual_ns = {group: float(np.median(latency_ns)) for group, latency_ns in alone.items()
                if group >= 0 and len(latency_ns) >= _MIN_IOS}
    return {group: np.quantile(latency_ns, _SHARES) / usual_ns.get(group, 1.0)
            for group, latency_ns in beside.items()}


def _joined(parts: Sequence[Mapping[int, np.ndarray]]) -> dict[int, np.ndarray]:
    groups = grouped(pair for part in parts for pair in part.items())
    return {group: np.concatenate(latencies) for group, latencies in groups.items()}


def _distance(simulated: np.ndarray | None, measured: np.ndarray) -> float:
    if simulated is None:
        return 1.0
    return min(float(np.abs(simulated - measured).mean() / max(measured.mean(), 1e-9)), _FARTHEST)


def loads_of(runs: Sequence[MeasuredRun], progress: Progress) -> list[ContendedLoad]:
    """The runs with many writes, those of one load beside the same background together."""
    beside = defaultdict(list)
    for run in runs:
        if run.has_contention:
            backgrounds = ((background.spec, background.phase, background.lead_ns)
                           for background in run.account.background)
            beside[run.workload, *backgrounds].append(run)
    return [ContendedLoad(same, [run for run in runs if not run.has_contention and run.workload == same[0].workload],
                          progress) for same in beside.values()]


def misfit_of_loads(model: FittedModel, loads: Sequence[ContendedLoad]) -> float:
    """Mean of ContendedLoad.misfit; 0 without loads."""
    return float(np.mean([load.misfit(model) for load in loads])) if loads else 0.0


@dataclass(frozen=True)
class Fit:
    """cause: of the contention. misfit: as ContendedLoad.misfit, the mean of all loads, and what worse_alone adds."""

    cause: str
    model: FittedModel
    values: Values
    misfit: float


def contention_fits(models: Sequence[FittedModel], runs: Sequence[MeasuredRun], progress: Progress,
                    worse_alone: Callable[[FittedModel], float]) -> list[Fit]:
    """The models with each cause of contention that was searched, best first. Latency and bandwidth of reads stay.

    models: that differ in what writes and flushes take.
    worse_alone: what a model adds to the misfit of the runs with few writes, which have no say in it otherwise.
    """
    loads = loads_of(runs, progress)
    beside = [run for run in runs if run.has_background]
    if beside:
        rates = np.concatenate([run.length_bytes[run.op == WRITE] / np.maximum(run.latency_ns[run.op == WRITE], 1)
                                for run in beside])
        fastest_write = 1e9 * float(np.quantile(rates, 0.75)) if len(rates) else 1e9
    if all(run.has_background for run in runs if run.has_contention):  # whose writes are long
        models = [replace(model, latency_ns=[*model.latency_ns[:WRITE], _SHORT_WRITE_NS, *model.latency_ns[WRITE + 1:]])
                  for model in models]

    def fit_of(cause: str, base: FittedModel, values: Values) -> Fit:
        at = with_values(base, values)
        return Fit(cause, at, values, misfit_of_loads(at, loads) + worse_alone(at))

    programs_ns = _program_times(loads)

    def starts(write_bandwidth: Callable[[FittedModel], float]) -> list[Fit]:
        candidates = grouped(pair for model in models
                             for pair in _causes(model, write_bandwidth(model), programs_ns).items())
        of_causes = [min((fit_of(cause, start, values) for part in parts for start, values in part),
                         key=lambda fit: fit.misfit) for cause, parts in candidates.items()]
        return sorted(of_causes, key=lambda fit: fit.misfit)[:_POLISHED]

    # From the rate of a background, which waits for programs, short programs on a slow drive are found for long ones.
    begin = starts(lambda model: model.bandwidth[WRITE]) + (starts(lambda _model: fastest_write) if beside else [])
    fits = [_searched(start, fit_of) for start in begin]
    best = min(fits, key=lambda fit: fit.misfit)
    for model in models:  # starts are too far off to decide between these
        if model.latency_ns != best.model.latency_ns:
            other = replace(best.model, latency_ns=model.latency_ns)
            fits.append(_searched(fit_of(best.cause, other, best.values), fit_of))
    fits.sort(key=lambda fit: fit.misfit)
    of_programs = next((fit for fit in fits if "program_ns" in fit.values), None)
    contended = [run for run in runs if (run.op == WRITE).any() and run.has_contention]
    if of_programs and contended and fits[0].misfit > _POOR:
        fits.append(_with_cache(of_programs, contended, fit_of))
    return sorted(fits, key=lambda fit: fit.misfit)


def _with_cache(best: Fit, runs: Sequence[MeasuredRun], fit_of: FitOf) -> Fit:
    """With a write cache that fills up: first writes are fast, then as slow as the dies that program them."""
    length_bytes, latency_ns = (np.concatenate([getattr(run, name)[run.op == WRITE] for run in runs])
                                for name in ("length_bytes", "latency_ns"))
    is_long = length_bytes >= min(_LONG_BYTES, length_bytes.max())
    slow, fast = np.quantile(length_bytes[is_long] * 1e9 / np.maximum(latency_ns[is_long], 1), (0.25, 0.9)).tolist()
    written_bytes = max(int(run.length_bytes[run.op == WRITE].sum()) for run in runs)
    values = {**best.values, "cache_bandwidth": fast, "cache_program": best.values["program_ns"] / 10}
    starts = [fit_of("cache", best.model, {**values, "channels": dies, "write_bandwidth": direct * slow,
                                           "cache_fold": fold * slow, "cache_drain": slow / 2,
                                           "cache": share * written_bytes})
              for dies, direct, fold, share in product((best.values["channels"], _FEW_DIES), _DIRECT, _FOLDS, _CACHES)]
    starts.sort(key=lambda fit: fit.misfit)
    return min((_stepped(start, fit_of) for start in starts[:_POLISHED]), key=lambda fit: fit.misfit)


def _stepped(fit: Fit, fit_of: FitOf) -> Fit:
    """The best fit that steps of one value after the other find, and of all values as far again, shorter where neither
    direction is better (Hooke and Jeeves, 1961): with many values Nelder and Mead's simplex takes too long."""
    steps, simulations = dict.fromkeys(fit.values, _FIRST_STEP), 0
    while simulations < _CACHE_SIMULATIONS and max(map(abs, steps.values())) > _LAST_STEP:
        before = fit
        for key, step in list(steps.items()):
            for power in (step, -step):
                simulations += 1
                tried = fit_of(fit.cause, fit.model, {**fit.values, key: fit.values[key] * 2.0 ** power})
                if tried.misfit < fit.misfit:
                    fit, steps[key] = tried, power
                    break
            else:
                steps[key] /= 2.5
        while fit is not before:
            simulations += 1
            tried = fit_of(fit.cause, fit.model, {key: value ** 2 / before.values[key]
                                                  for key, value in fit.values.items()})
            before, fit = fit, min(fit, tried, key=lambda candidate: candidate.misfit)
    return fit


def _program_times(loads: Sequence[ContendedLoad]) -> tuple[float, ...]:
    """Starts of the search: where several reads wait in turn, the longest wait is that for several programs."""
    waits_ns = [wait_ns for load in loads if (wait_ns := load.longest_wait_ns) is not None]
    return tuple(max(min(waits_ns) / part, _SHORTEST_NS) for part in (1, 2.5)) if waits_ns else _PROGRAMS_NS


def _causes(base: FittedModel, fastest_write: float,
            programs_ns: Sequence[float]) -> dict[str, list[tuple[FittedModel, Values]]]:
    """Starts of the search for each cause."""
    slowdown = max(base.read_slowdown, 1.1)
    base = replace(base, read_slowdown=1.0)
    writes = {"write_bandwidth": fastest_write}
    shared = {**writes, "link": base.bandwidth[READ]}
    programs = [{"program_ns": ns, "channels": dies} for ns in programs_ns for dies in _DIES]
    causes: dict[str, list[tuple[FittedModel, Values]]] = {
        "link": [(base, shared)],
        "programs": [(base, {**writes, "link": link, **values}) for values in programs
                     for link in (base.bandwidth[READ], _FREE_LINK)],
        "slowdown": [(base, {**writes, "read_slowdown": slowdown})],
    }
    if base.commands is None:
        causes["one command"] = [(replace(base, commands=1), {**writes, **values}) for values in programs]
    return causes


def with_values(base: FittedModel, values: Values) -> FittedModel:
    limited = {key: float(np.clip(value, _LEAST[key], _MOST[key])) for key, value in values.items()}
    write_bandwidth = limited.pop("write_bandwidth")
    if "channels" in limited:
        limited["channels"] = round(limited["channels"])
    if limited.get("link", 0) >= _FREE_LINK:
        del limited["link"]
    elif "link" in limited:
        limited["link"] = max(limited["link"], base.bandwidth[READ])
    cache = {key: limited.pop(key) for key in [*limited] if key.startswith("cache")}
    return replace(base, bandwidth=[base.bandwidth[READ], write_bandwidth], cache=cache,
                   **limited)  # type: ignore[arg-type]


def _searched(start: Fit, fit_of: FitOf) -> Fit:
    from scipy.optimize import minimize  # takes half a second to load

    best, keys = start, list(start.values)

    def misfit(place: np.ndarray) -> float:
        nonlocal best
        fit = fit_of(start.cause, start.model, dict(zip(keys, (2.0 ** np.clip(place, -60, 60)).tolist(), strict=True)))
        best = min(best, fit, key=lambda candidate: candidate.misfit)
        return fit.misfit

    at = np.log2(list(start.values.values()))
    simplex = at + np.vstack([np.zeros(len(at)), np.diag([_STEPS[key] for key in keys])])
    minimize(misfit, at, method="Nelder-Mead", options={
        "maxfev": _SIMULATIONS, "xatol": 0.01, "fatol": 1e-3, "initial_simplex": simplex})
    return best
