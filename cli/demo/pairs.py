"""Loads in pairs, alone and beside the writes: how much longer they take, and whether that is more than noise."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

from blkreel.analysis.metrics.definitions.headline import LOAD_TIME
from blkreel.analysis.metrics.run_times import why_no_slowdown
from blkreel.analysis.stats.intervals import Interval, geometric_mean, interval, runs_to_exclude_one
from blkreel.common.emulated import EmulatedUse
from blkreel.common.units import format_change, format_ns, format_share
from blkreel.common.verdict import Level, Reason, Verdict, judged, merged, recorded
from blkreel.traces.format.metadata_types import Baseline, Run
from blkreel.traces.format.reader import open_trace

_FEWEST = 3


@dataclass(frozen=True)
class Pair:
    """alone_ns, beside_ns: of one load each. reached: the share of its rate that the writer reached beside it."""

    alone_ns: float
    beside_ns: float
    reached: float | None

    @property
    def ratio(self) -> float:
        return self.beside_ns / self.alone_ns


@dataclass(frozen=True)
class Pairs:
    """left_out: pairs that are not among `used`, because a run of them is invalid. Where all are invalid, they are
    among `used`, and the verdict says so. notes: facts that do not lower the verdict."""

    used: tuple[Pair, ...]
    verdict: Verdict
    left_out: int = 0
    notes: tuple[str, ...] = ()

    @property
    def is_valid(self) -> bool:
        return self.verdict["level"] != "invalid"

    @property
    def alone_ns(self) -> float:
        return geometric_mean([pair.alone_ns for pair in self.used]) or 0.0

    @property
    def beside_ns(self) -> float:
        return geometric_mean([pair.beside_ns for pair in self.used]) or 0.0

    @property
    def ratio(self) -> float:
        return geometric_mean(self._ratios) or 1.0

    @property
    def reached(self) -> float | None:
        """The least of all pairs."""
        values = [pair.reached for pair in self.used if pair.reached is not None]
        return min(values) if values else None

    @cached_property
    def interval(self) -> Interval | None:
        """None of fewer than _FEWEST pairs: that of two is too wide to say anything."""
        return interval(self._ratios) if len(self.used) >= _FEWEST else None

    @property
    def is_noise(self) -> bool:
        """Whether these pairs do not show that the writes change the time."""
        return self.interval is None or self.interval.low <= 1 <= self.interval.high

    @property
    def pairs_needed(self) -> int | None:
        """Pairs that would show a difference of this size, if they spread as these; None for more than can be run."""
        return runs_to_exclude_one(self._ratios)

    @property
    def _ratios(self) -> list[float]:
        return [pair.ratio for pair in self.used]


def of_runs(runs: Sequence[Path]) -> Pairs:
    """runs: directories of `blkreel replay --background ... --baseline`, each of which is a pair."""
    valid: list[tuple[Pair, Run]] = []
    invalid: list[tuple[Pair, Run]] = []
    for path in runs:
        trace = open_trace(path)
        run = trace.account
        if run.baseline is None:
            continue
        reached = [share for background in run.background if (share := background.reached_share) is not None]
        pair = Pair(run.baseline.load_time_ns or 0, run.load_time_ns or 0, min(reached, default=None))
        usable = run.verdict["level"] != "invalid" and not why_no_slowdown(trace.metadata)
        (valid if usable else invalid).append((pair, run))
    chosen = valid or invalid
    verdict = merged([recorded(run.verdict) for _, run in chosen])
    if not valid:
        verdict = merged([judged([], "invalid"), verdict,
                          *(_of_baseline(run.baseline) for _, run in invalid if run.baseline)])
    return Pairs(tuple(pair for pair, _ in chosen), verdict, len(runs) - len(chosen),
                 tuple(_notes([run for _, run in chosen])))


def _notes(runs: Sequence[Run]) -> Iterator[str]:
    """The effect of this host on the load time, and how exact an emulated drive was, each at its worst."""
    effects = [metrics[LOAD_TIME.key]["effect"] for run in runs
               if LOAD_TIME.key in (metrics := run.host_effect.metrics)]
    if effects:
        yield f"effect of this host on the load time at most {format_change(max(effects, key=abs))}"
    yield from late_words([use for run in runs for use in run.emulated])


def late_words(uses: Sequence[EmulatedUse]) -> Iterator[str]:
    """How many answers of an emulated drive were late."""
    if ios := sum(use["ios"] for use in uses):
        late = sum(use["late_ios"] for use in uses)
        yield (f"{format_share(late / ios)} of {ios:,} I/Os completed late, "
               f"{format_ns(sum(use['late_ns'] for use in uses))} in all")


def _of_baseline(baseline: Baseline) -> Verdict:
    reasons = [Reason(code="baseline", level=cast(Level, baseline.verdict), metric=None, value=None, limit=None,
                      text=f"alone: {baseline.reason}")] if baseline.reason else []
    return judged(reasons)
