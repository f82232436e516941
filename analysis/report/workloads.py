"""One page over several workloads: each drive relative to one of them, per workload and over all."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from blkreel.analysis.charts.model import Answer, KeyFigure
from blkreel.analysis.metrics.definitions.metric import Metric
from blkreel.analysis.metrics.definitions.registry import value_at
from blkreel.analysis.stats.intervals import geometric_mean
from blkreel.analysis.stats.ranking import ENOUGH_RUNS, best_first
from blkreel.analysis.stats.relative import RelativePerformance, relative_to
from blkreel.common import units
from blkreel.common.errors import UsageError
from blkreel.common.printable import within_sentence

from .answer import in_order, metrics_of, names, noun, reasons, usable, workload_title
from .verdict import Document

FEWEST_WORKLOADS = 2


@dataclass(frozen=True)
class Score:
    """A workload by one metric. what: the metric in a sentence. text: formats a value. runs: by label of a drive, one
    value a run."""

    title: str
    what: str
    higher_is_better: bool
    text: Callable[[float], str]
    runs: Mapping[str, Sequence[float | None]]


@dataclass(frozen=True)
class Relative:
    """A drive on one workload. share: its performance, the reference drive's is 1. text: its value. differ: None with
    too few runs."""

    share: float
    text: str
    differ: bool | None


@dataclass(frozen=True)
class ComparedWorkload:
    """A workload with the reference drive and others. drives: by label."""

    score: Score
    drives: dict[str, Relative]

    @property
    def title(self) -> str:
        return self.score.title

    @property
    def what(self) -> str:
        return self.score.what


@dataclass(frozen=True)
class Overview:
    """reference: label of the drive that is 100 %. overall: by label, of drives with a value on every workload."""

    reference: str
    workloads: list[ComparedWorkload]
    overall: dict[str, RelativePerformance]


def overview(sections: Sequence[Document], reference: str, scores: Sequence[Score] = ()) -> Overview | None:
    """sections: of a document. scores: of other workloads. None with fewer than FEWEST_WORKLOADS that have the
    reference and another drive."""
    compared = []
    for section, title in zip(sections, _titles(sections), strict=True):
        metrics = metrics_of(section)
        drives = _relative(section, metrics[0], reference) if metrics else {}
        if len(drives) > 1:
            compared.append(ComparedWorkload(_score(section, metrics[0], title, drives), drives))
    for score in scores:
        drives = _relative_scores(score, reference)
        if len(drives) > 1:
            compared.append(ComparedWorkload(score, drives))
    if len(compared) < FEWEST_WORKLOADS:
        return None
    return Overview(reference, compared, relative_to([workload.score for workload in compared], reference))


def overview_of(sections: Sequence[Document], under_test: str | None,
                scores: Sequence[Score] = ()) -> Overview | None:
    """Relative to the drive under test, or else to the best drive."""
    reference = _reference(sections, under_test)
    return overview(sections, reference, scores) if reference else None


def overview_of_scores(scores: Sequence[Score], under_test: str | None, notes: Sequence[str] = ()) -> Overview:
    """Of workloads without runs, relative to the drive under test, or else to the best drive of the first one that
    shares a drive with another. Raises UsageError, with the drives of each and the notes, if no two share two drives.
    """
    shared = [label for score in scores for label in best_first(
                  {label: geometric_mean(runs) for label, runs in score.runs.items()}, score.higher_is_better)
              if sum(label in other_score.runs for other_score in scores) >= FEWEST_WORKLOADS]
    for reference in [under_test] if under_test else shared:
        if overview_ := overview((), reference, scores):
            return overview_
    drives = "; ".join([*(f"{score.title}: {', '.join(score.runs) or 'no result'}" for score in scores), *notes])
    raise UsageError(f"no two drives have results of {FEWEST_WORKLOADS} benchmarks ({drives})",
                     "name results of the same drives, with equal --label, or of one benchmark")


def _reference(sections: Sequence[Document], under_test: str | None) -> str | None:
    """The drive under test, or else the best drive of the first section that has an order."""
    if under_test:
        return under_test
    for section in sections:
        metrics = metrics_of(section)
        if metrics and len(section["entries"]) > 1:
            label: str = in_order(section["entries"], metrics[0])[0]["label"]
            return label
    return None


def relative_document(overview: Overview) -> Document:
    """`relative_performance` of the JSON document: 1 is the reference drive."""
    return {"reference": overview.reference,
            "workloads": [{"title": workload.title, "metric": workload.what,
                           "drives": {label: own.share for label, own in workload.drives.items()}}
                          for workload in overview.workloads],
            "drives": {label: {"value": performance.value, "low": performance.low, "high": performance.high}
                       for label, performance in overview.overall.items()}}


def answer(overview: Overview, entries: Sequence[Document] = ()) -> Answer:
    """The first screen of a page of several workloads. entries: of a document, for the reasons of their verdicts."""
    ordered = sorted(overview.overall, key=lambda label: -overview.overall[label].value)
    counts = sorted({len(runs) for workload in overview.workloads for runs in workload.score.runs.values()})
    runs = f"{counts[0]} to {counts[-1]} runs each" if len(counts) > 1 else f"{units.counted(counts[0], 'run')} each"
    figures = [KeyFigure(own.text, workload.what, f"{workload.title} on {overview.reference}")
               for workload in overview.workloads if (own := workload.drives.get(overview.reference))]
    drives = len({label for workload in overview.workloads for label in workload.drives})
    return Answer(_sentence(overview, ordered), " · ".join((
        f"{len(overview.workloads)} workloads: {'; '.join(workload.title for workload in overview.workloads)}",
        f"{drives} drives",
        runs)), tuple(figures[:3]), _differences(overview), tuple(dict.fromkeys(reasons(entries))))


def percent(share: float) -> str:
    """A share of the reference drive's performance."""
    return f"{share * 100:.0f} %" if share >= 0.095 else units.format_share(share)


def interval_words(performance: RelativePerformance) -> str:
    """`95 to 99 %`; empty without an interval."""
    if performance.low is None or performance.high is None:
        return ""
    return f"{percent(performance.low).removesuffix(' %')} to {percent(performance.high)}"


def _sentence(overview: Overview, ordered: Sequence[str]) -> str:
    count = f"{len(overview.workloads)} workloads"
    labels = [label for label in ordered if label != overview.reference]
    if not labels:
        return f"{overview.reference}: no other drive has a result on all of {count}"
    single = [label for label in labels if not interval_words(overview.overall[label])]
    faster = [label for label in labels if overview.overall[label].differs and overview.overall[label].value > 1]
    best, drives = faster[0] if faster and not single else labels[0], f"{len(ordered)} drives"
    performance = overview.overall[best]
    sure = interval_words(performance)
    against = f"{percent(performance.value)} of the performance of {overview.reference}"
    if single:
        drive = "a drive" if len(single) == len(labels) else names(single)
        return f"Over {count}, {best} measured {against}; not supported by one run of {drive}"
    if faster:
        to_best = relative_to([workload.score for workload in overview.workloads], best)
        tied = [label for label in labels if label != best and not to_best[label].differs]
        if best == ordered[0] and not tied:
            return f"Over {count}, {best} is the fastest of {drives} with {against} ({sure})"
        alike = f"; no difference shown to {names(tied)}" if tied else ""
        return f"Over {count}, {best} has {against} ({sure}){alike}"
    tied = [label for label in labels if not overview.overall[label].differs]
    if tied:
        return f"{overview.reference} ties with {names(tied)} for the best performance of {drives} over {count}"
    return f"{overview.reference} is the fastest of {drives} over {count}; second is {best} with {against} ({sure})"


def _differences(overview: Overview) -> str:
    drives = [performance for label, performance in overview.overall.items() if label != overview.reference]
    if len(drives) < 2 or not all(map(interval_words, drives)):
        return ""
    differing = sum(drive.differs for drive in drives)
    return f"Geometric mean over workloads: {overview.reference} differs from {differing} of {len(drives)} drives."


def _titles(sections: Sequence[Document]) -> list[str]:
    """A title of each section that no other has, since charts name workloads by it: of the trace; where alike with the
    pace; then with all that the section's own title has, such as the path; then with the checksum of the trace."""
    titles = [workload_title(section) for section in sections]
    words_of: list[Callable[[Document], str]] = [
        lambda section: f"{workload_title(section)}, {within_sentence(section['title'].partition(' (')[0])}",
        lambda section: f"{workload_title(section)}, {within_sentence(section['title'])}",
        lambda section: f"{workload_title(section)}, {within_sentence(section['title'])}, "
                        f"{(section['source'].get('sha256') or '')[:8]}"]
    for words in words_of:
        titles = [words(section) if titles.count(title) > 1 else title
                  for section, title in zip(sections, titles, strict=True)]
    return titles


def _relative(section: Document, metric: Metric, reference: str) -> dict[str, Relative]:
    values = {entry["label"]: value for entry in section["entries"]
              if (value := usable(entry, metric)) is not None and value > 0}
    base = values.get(reference)
    if base is None:
        return {}
    differ = {frozenset((pair["base"], pair["other"])): pair["differ"] for pair in section["ratios"]
              if pair["figure"] == metric.key}
    return {label: Relative(value / base if metric.better == "higher" else base / value, metric.unit.text(value),
                            False if label == reference else differ.get(frozenset((label, reference))))
            for label, value in values.items()}


def _score(section: Document, metric: Metric, title: str, drives: dict[str, Relative]) -> Score:
    runs = {entry["label"]: [value_at(run["figures"], metric.path) for run in entry["runs"]]
            for entry in section["entries"] if entry["label"] in drives}
    return Score(title, noun(metric), metric.better == "higher", metric.unit.text, runs)


def _relative_scores(score: Score, reference: str) -> dict[str, Relative]:
    """Empty without a value of the reference drive."""
    if reference not in score.runs:
        return {}
    drives = {}
    for label, relative in relative_to([score], reference).items():
        runs = min(len(score.runs[label]), len(score.runs[reference]))
        value = geometric_mean(score.runs[label])
        assert value is not None  # it is relative to the reference drive
        drives[label] = Relative(relative.value, score.text(value),
                                 relative.differs if runs >= ENOUGH_RUNS or label == reference else None)
    return drives
