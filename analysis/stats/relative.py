"""Relative performance of a drive over several workloads: the geometric mean of its ratios to a reference drive."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from .intervals import is_effect, ratio_terms, t_quantile

Runs = Sequence[float | None]  # a metric, one value a run


class Workload(Protocol):
    """A workload by its headline metric. runs: by label of a drive."""

    @property
    def runs(self) -> Mapping[str, Runs]: ...

    @property
    def higher_is_better(self) -> bool: ...


@dataclass(frozen=True)
class RelativePerformance:
    """value: 1 is as fast as the reference drive, 2 is twice as fast. low, high: the interval over runs, None where a
    drive has fewer than two runs on a workload. workloads: how many."""

    value: float
    low: float | None
    high: float | None
    workloads: int

    @property
    def differs(self) -> bool:
        """Whether the interval excludes 1, and the effect is no trifle."""
        return (self.low is not None and self.high is not None and not self.low <= 1 <= self.high
                and is_effect(self.value))


def on_every_workload(workloads: Sequence[Workload]) -> list[str]:
    """Labels of the drives that have a result on each, in the order of the first."""
    return [label for label in (workloads[0].runs if workloads else ())
            if all(label in workload.runs for workload in workloads)]


def relative_to(workloads: Sequence[Workload], reference: str) -> dict[str, RelativePerformance]:
    """The relative performance of each drive that has positive values on every workload, as the reference drive."""
    return {label: relative for label in on_every_workload(workloads)
            if (relative := relative_performance(workloads, label, reference))}


def relative_performance(workloads: Sequence[Workload], drive: str, reference: str) -> RelativePerformance | None:
    """Geometric mean over workloads of reference / drive, or of drive / reference where higher is better.

    exp(d ± t(1 − α/2, df) √Σu / W), d the mean over the W workloads of the differences of the mean logarithms, u = s²/n
    of each set of runs, df = (Σu)² / Σ(u² / (n − 1)) (Satterthwaite 1946, Biometrics Bulletin 2). The interval is over
    runs: the workloads are those that were chosen, not a sample. None of no workload, and where a run has no positive
    value.
    """
    logs, variance, freedom = [], 0.0, 0.0
    has_interval = True
    for workload in workloads:
        base, own = ratio_terms(workload.runs[reference]), ratio_terms(workload.runs[drive])
        if base is None or own is None:
            return None
        sign = 1 if workload.higher_is_better else -1
        logs.append(sign * (own.mean - base.mean))
        for terms in (base, own):
            has_interval &= terms.n > 1
            variance += terms.share
            freedom += terms.share**2 / (terms.n - 1) if terms.n > 1 else 0.0
    if not logs:
        return None
    mean = math.fsum(logs) / len(logs)
    if not has_interval:
        return RelativePerformance(math.exp(mean), None, None, len(logs))
    exact = drive == reference or not freedom
    reach = 0.0 if exact else t_quantile(variance**2 / freedom) * math.sqrt(variance) / len(logs)
    return RelativePerformance(math.exp(mean), math.exp(mean - reach), math.exp(mean + reach), len(logs))
