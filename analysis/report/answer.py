"""What a section of a comparison says first: one sentence, its key figures, which drives differ, and why verdicts fell.

A drive whose runs are invalid has no place in the order, and a withheld metric has no value. Ranks need ENOUGH_RUNS
runs of each drive; before that the sentence gives the order and says that it is not supported.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from blkreel.analysis.charts.model import Answer, KeyFigure
from blkreel.analysis.metrics.definitions.headline import READ_WAIT, headline_metrics
from blkreel.analysis.metrics.definitions.metric import NS, Metric, pace_names
from blkreel.analysis.metrics.definitions.registry import value_at
from blkreel.analysis.stats.intervals import EFFECT, smallest_difference
from blkreel.analysis.stats.ranking import ENOUGH_RUNS, best_first
from blkreel.common import units
from blkreel.common.binning import grouped
from blkreel.common.verdict import LEVELS
from blkreel.traces.format.metadata_types import Run

from .beside import beside_sentence, of_entry
from .columns import is_withheld, state_words
from .verdict import Document

MOST_FIGURES = 3
_MOST_NAMES = 4  # of drives in one sentence
_MOST_CHANGES = 2
_TIMES_FROM = 2.0  # ratios below are given in percent


@dataclass(frozen=True)
class Change:
    """A metric of one drive relative to another's. ratio: other / base. low, high, differ: None with too few runs."""

    metric: Metric
    base: float
    other: float
    ratio: float
    low: float | None = None
    high: float | None = None
    differ: bool | None = None
    why: str = ""

    @property
    def size(self) -> float:
        """How far apart the two are, whichever is larger."""
        return abs(math.log(self.ratio))

    @property
    def is_unchanged(self) -> bool:
        """Whether the interval lies within what counts as no difference."""
        return self.low is not None and self.high is not None and self.low >= 1 / EFFECT and self.high <= EFFECT


def answer(section: Document, under_test: str | None = None) -> Answer:
    """The first screen of a section. under_test: label of the drive under test."""
    return Answer(sentence(section, under_test), workload(section), key_figures(section, under_test),
                  differences(section, under_test), tuple(reasons(section["entries"])))


def answer_document(answer: Answer) -> Document:
    return {"sentence": answer.sentence, "workload": answer.workload, "differences": answer.differences,
            "figures": [asdict(figure) for figure in answer.figures],
            "reasons": [{"level": level, "text": text} for level, text in answer.reasons]}


def noun(metric: Metric) -> str:
    """A metric inside a sentence: its key in words."""
    return metric.key.replace("_", " ").replace("iops", "IOPS")


def usable(entry: Document, metric: Metric) -> float | None:
    """The value of a metric that may be compared: neither withheld nor of invalid runs."""
    figure = entry["headline"].get(metric.key)
    if not figure or is_withheld(entry, metric) or entry["verdict"]["level"] == "invalid":
        return None
    value: float | None = figure["value"]
    return value


def metrics_of(section: Document) -> list[Metric]:
    """The metrics that a section leads with at its pace, the first one first, that any of its drives has."""
    paces = pace_names(section["pace"])
    return [metric for metric in headline_metrics(paces) if metric.better
            and any(usable(entry, metric) is not None for entry in section["entries"])]


def sentence(section: Document, under_test: str | None = None) -> str:
    """The answer of a section in one sentence. under_test: label of the drive under test."""
    entries = section["entries"]
    metrics = metrics_of(section)
    if not metrics:
        return _without_result(entries)
    metric = metrics[0]
    if len(entries) == 1:
        return beside_sentence(entries[0]) or _of_one(entries[0], metrics)
    beside = of_entry(entries[0])
    prefix = f"Beside {beside}: " if beside else ""
    if len(entries) == 2:
        base, other = two_drives(section, under_test)
        if usable(base, metric) is not None and usable(other, metric) is not None:
            return prefix + _of_two(section, base, other, metric)
    return prefix + _of_many(entries, metric, under_test)


def two_drives(section: Document, under_test: str | None) -> tuple[Document, Document]:
    """(base, the drive that is judged against it): the drive under test, or else the one that was named second."""
    first, second = section["entries"]
    return (second, first) if first["label"] == under_test else (first, second)


def changes(section: Document, base: Document, other: Document,
            metrics: Sequence[Metric] | None = None) -> list[Change]:
    """Every metric that both drives have, the largest effect first. Metrics that answer one question stand once."""
    pairs = {row["figure"]: row for row in section.get("ratios") or ()
             if {row["base"], row["other"]} == {base["label"], other["label"]}}
    built = []
    for metric in metrics or metrics_of(section):
        values = usable(base, metric), usable(other, metric)
        if values[0] is None or values[1] is None or values[0] <= 0 or values[1] <= 0:
            continue
        pair = pairs.get(metric.key) or {}
        turned = pair.get("base") == other["label"]
        low, high, ratio = (pair.get(key) for key in ("low", "high", "value"))
        if turned:
            low, high, ratio = high and 1 / high, low and 1 / low, ratio and 1 / ratio
        if low is None or ratio is None:
            low = high = None
            ratio = values[1] / values[0]
        built.append(Change(metric, values[0], values[1], ratio, low, high, pair.get("differ"), pair.get("why") or ""))
    return sorted(built, key=lambda change: -change.size)


def words_of(change: Change) -> str:
    """`read p99 48 times higher (0.84 to 40.0 ms)`."""
    return f"{noun(change.metric)} {apart(change.ratio)} ({span(change.metric, change.base, change.other)})"


def apart(ratio: float) -> str:
    """A ratio in words: 48 times higher, 12 % lower, the same."""
    way = "higher" if ratio > 1 else "lower"
    factor = max(ratio, 1 / ratio)
    if factor >= _TIMES_FROM:
        return f"{f'{factor:.1f}' if factor < 9.95 else f'{factor:,.0f}'} times {way}"
    percent = abs(ratio - 1) * 100
    return f"{percent:.0f} % {way}" if percent >= 9.95 else f"{percent:.1f} % {way}" if percent >= 0.05 else "the same"


def span(metric: Metric, low: float, high: float) -> str:
    """Two values of a metric in one unit."""
    if metric.unit is NS:
        scale, unit = units.time_unit([max(low, high)])
        if min(low, high) / scale < 0.001:
            return f"{metric.unit.text(low)} to {metric.unit.text(high)}"
        return f"{units.digits(low / scale)} to {units.digits(high / scale)} {unit}"
    head, tail = metric.unit.text(low), metric.unit.text(high)
    number, _, unit = head.partition(" ")
    return f"{number} to {tail}" if unit and tail.endswith(f" {unit}") else f"{head} to {tail}"


def names(labels: Sequence[str]) -> str:
    """Labels in a sentence; of many the first ones and the number of the rest."""
    if len(labels) > _MOST_NAMES:
        return f"{', '.join(labels[:_MOST_NAMES - 1])} and {len(labels) - _MOST_NAMES + 1} others"
    return " and ".join((", ".join(labels[:-1]), labels[-1])) if len(labels) > 1 else "".join(labels)


def key_figures(section: Document, under_test: str | None = None) -> tuple[KeyFigure, ...]:
    """The first headline metrics of the drive under test, or else of the best drive."""
    metrics = metrics_of(section)
    if not metrics:
        return ()
    base = None
    if len(section["entries"]) == 2:
        base, entry = two_drives(section, under_test)
    else:
        ordered = in_order(section["entries"], metrics[0])
        entry = next((candidate for candidate in ordered if candidate["label"] == under_test), ordered[0])
    figures = []
    for metric in one_a_question(metrics):
        value = usable(entry, metric)
        if value is None:
            continue
        figure, note = entry["headline"][metric.key], ""
        before = usable(base, metric) if base else None
        if base and before is not None:
            note = f"{metric.unit.text(before)} on {base['label']}"
        elif figure.get("low") is not None:
            note = f"{span(metric, figure['low'], figure['high'])}"
        figures.append(KeyFigure(metric.unit.text(value), noun(metric), note))
    return tuple(figures[:MOST_FIGURES])


def in_order(entries: Sequence[Document], metric: Metric) -> list[Document]:
    """The drives that may be compared, the best first."""
    values = {number: usable(entry, metric) for number, entry in enumerate(entries)}
    return [entries[number] for number in best_first(values, metric.better == "higher")]


def differences(section: Document, under_test: str | None = None) -> str:
    """From which drives the drive under test, or else the best one, differs in the leading metric; with too few runs
    what more of them would give."""
    entries, metrics = section["entries"], metrics_of(section)
    if not metrics or len(entries) < 2:
        return ""
    metric = metrics[0]
    ordered = in_order(entries, metric)
    if min(entry["n"] for entry in ordered) < ENOUGH_RUNS:
        return more_runs(ordered, metric)
    subject = next((entry for entry in ordered if entry["label"] == under_test), ordered[0])["label"]
    labels = [entry["label"] for entry in ordered if entry["label"] != subject]
    pairs = {frozenset((row["base"], row["other"])): row for row in section.get("ratios") or ()
             if row["figure"] == metric.key}
    tied = [label for label in labels if (pairs.get(frozenset((label, subject))) or {}).get("differ") is False]
    differing = [label for label in labels if (pairs.get(frozenset((label, subject))) or {}).get("differ")]
    if len(labels) == 1:
        return ""
    text = f"{subject} differs from {len(differing)} of {len(labels)} drives in {noun(metric)}"
    return f"{text}; no difference shown to {names(tied)}." if tied else f"{text}."


def more_runs(entries: Sequence[Document], metric: Metric) -> str:
    """What ENOUGH_RUNS runs of each drive would give, from the spread of the runs there are."""
    fewest = min(entry["n"] for entry in entries)
    text = (f"The order is not supported: {units.counted(fewest, 'run')} of "
            f"{'a drive' if fewest < max(entry['n'] for entry in entries) else 'each drive'}. {ENOUGH_RUNS} runs of "
            "each give ranks and 95 % intervals")
    sets = [[value_at(run["figures"], metric.path) for run in entry["runs"]] for entry in entries]
    ratio = smallest_difference(sets, ENOUGH_RUNS)
    if ratio is None:
        return f"{text}."
    return f"{text}; at the spread of these runs they show differences from {_percent(ratio - 1)} %."


def _percent(share: float) -> str:
    """Runs on a simulated drive may differ by nothing."""
    return "under 0.1" if share < 0.001 else units.digits(share * 100)


def workload(section: Document) -> str:
    """Title of the workload, pace, drives, runs and verdicts: `Game load · 12 drives · 6 runs each · 12 valid`."""
    entries = section["entries"]
    counts = sorted({entry["n"] for entry in entries})
    runs = f"{counts[0]} to {counts[-1]} runs" if len(counts) > 1 else units.counted(counts[0], "run")
    parts = [workload_title(section), section["title"].partition(" (")[0]]
    if len(entries) > 1:
        parts += [f"{len(entries)} drives", f"{runs} each"]
    elif section["pace"] is not None:
        parts.append(runs)
    if any(entry.get("simulated") for entry in entries):
        parts.append("simulated")
    return " · ".join(part for part in parts if part)


def source_line(section: Document) -> str:
    """Where the data of a section's pictures comes from: workload, pace, drives, runs, state and date."""
    states = dict.fromkeys(state_words(entry["state"]) for entry in section["entries"] if entry["state"])
    days = sorted({started_at[:10] for entry in section["entries"] for run in entry["runs"]
                   if (started_at := Run.of(run).started_at)})
    dated = " to ".join(dict.fromkeys(days[:1] + days[-1:]))
    return " · ".join(filter(None, (workload(section), f"state {', '.join(states)}" if states else "", dated)))


def workload_title(section: Document) -> str:
    """The title in the trace's metadata, or else the name of the trace."""
    source = section["source"]
    title: str = source.get("title") or ""
    return title or (source.get("path") or "").rpartition("/")[2]


def reasons(entries: Sequence[Document]) -> list[tuple[str, str]]:
    """(level, text) of the reasons behind the verdicts, the worst first: one for each cause, with the drives it
    concerns where these are not all."""
    causes = grouped(((reason["level"], reason.get("code") or reason["text"], reason.get("metric") or ""),
                      (entry["label"], reason["text"])) for entry in entries for reason in entry["verdict"]["reasons"])
    rows = []
    for (level, *_), members in causes.items():
        labels = list(dict.fromkeys(label for label, _ in members))
        text = members[0][1]
        if len({text for _, text in members}) > 1:
            text += " (the first of several values)"
        rows.append((level, text if len(labels) == len(entries) else f"{text}: {names(labels)}"))
    return sorted(rows, key=lambda row: -LEVELS.index(row[0]))


def _of_one(entry: Document, metrics: Sequence[Metric]) -> str:
    parts = [metric.named(noun(metric), value) for metric in one_a_question(metrics)
             if (value := usable(entry, metric)) is not None]
    return f"{entry['label']}: {', '.join(parts[:MOST_FIGURES])}"


def _of_two(section: Document, base: Document, other: Document, metric: Metric) -> str:
    label, fewest = other["label"], min(base, other, key=lambda entry: entry["n"])
    compared = changes(section, base, other, list(one_a_question(metrics_of(section))))
    if fewest["n"] < ENOUGH_RUNS:
        parts = [words_of(change) for change in compared[:_MOST_CHANGES]]
        if metric not in [change.metric for change in compared[:_MOST_CHANGES]]:
            parts = parts[:1] + [words_of(change) for change in compared if change.metric is metric]
        runs = units.counted(fewest["n"], "run")
        runs += " each" if base["n"] == other["n"] else f" of {fewest['label']}"
        return f"{label}: {', '.join(parts)}; not supported by {runs}, {ENOUGH_RUNS} are needed"
    differing = [change for change in compared if change.differ]
    if not differing:
        return (f"No difference shown between {base['label']} and {label} in {noun(metric)} "
                f"({_range(metric, usable(base, metric), usable(other, metric))})")
    text = f"{label}: {', '.join(map(words_of, differing[:_MOST_CHANGES]))}"
    lead = next((change for change in compared if change.metric is metric), None)
    if lead is None or lead in differing[:_MOST_CHANGES]:
        return text
    if lead.differ:
        return f"{text}; {words_of(lead)}"
    what = noun(metric)
    return f"{text}; {what} unchanged" if lead.is_unchanged else f"{text}; no difference shown in {what}"


def _of_many(entries: Sequence[Document], metric: Metric, under_test: str | None) -> str:
    ordered = in_order(entries, metric)
    best, superlative = ordered[0], "highest" if metric.better == "higher" else "lowest"
    value = usable(best, metric)
    what, count = noun(metric), f"{len(ordered)} drives" if len(ordered) > 1 else "1 drive"
    if len(ordered) < len(entries):
        count += f" ({len(entries) - len(ordered)} without a result)"
    lead = f"{superlative} {what} of {count}"
    tested = next((entry for entry in entries if entry["label"] == under_test), None)
    if tested is not None and tested not in ordered:
        return (f"{tested['label']}: no result, {_why_none(tested, metric)}; {superlative} {what}: {best['label']}, "
                f"{metric.unit.text(value)}")
    if len(ordered) == 1:
        if len(entries) == 2:
            drive = entries[1] if best is entries[0] else entries[0]
            why = f"; {drive['label']}: no result, {_why_none(drive, metric)}"
        else:
            why = f"; no result of the other {len(entries) - 1} drives"
        return f"{best['label']}: {what} {metric.unit.text(value)}{why}"
    if min(entry["n"] for entry in ordered) < ENOUGH_RUNS:
        fewest = min(ordered, key=lambda entry: entry["n"])
        runs = units.counted(fewest["n"], "run")
        runs = f"{runs} each" if len({entry["n"] for entry in ordered}) == 1 else f"{fewest['label']} has {runs}"
        unsupported = f"; not ranked: {runs}, {ENOUGH_RUNS} are needed"
        if tested is None or tested is best:
            return f"{best['label']} measured the {lead} ({metric.unit.text(value)}){unsupported}"
        return f"{_against_best(tested, best, metric)}{unsupported}"
    tied = [entry for entry in ordered if _rank(entry, metric) == _rank(best, metric)]
    if len(tied) == len(ordered):
        return f"No difference shown in {what} among {count} ({_range(metric, value, usable(ordered[-1], metric))})"
    if tested is None or tested is best:
        if len(tied) == 1:
            return (f"{best['label']} has the {lead}: {metric.unit.text(value)}, "
                    f"{_lead_over(best, ordered[1], metric)}")
        if tested is None:
            return (f"{names([entry['label'] for entry in tied])} tie for the {lead} "
                    f"({_range(metric, value, usable(tied[-1], metric))})")
    if tested in tied:
        rivals = len(tied) - 1
        return (f"{tested['label']} ties with {names([entry['label'] for entry in tied if entry is not tested])} for "
                f"the {lead} ({metric.unit.text(usable(tested, metric))})" if rivals <= _MOST_NAMES else
                f"{tested['label']} ties with {rivals} others for the {lead} "
                f"({metric.unit.text(usable(tested, metric))})")
    assert tested is not None
    return f"{_against_best(tested, best, metric)}, rank {_rank(tested, metric)} of {count}"


def _against_best(tested: Document, best: Document, metric: Metric) -> str:
    low, high = usable(best, metric), usable(tested, metric)
    assert low is not None and high is not None
    if low <= 0:
        return f"{tested['label']}: {noun(metric)} {metric.unit.text(high)}, {best['label']} {metric.unit.text(low)}"
    return (f"{tested['label']}: {noun(metric)} {metric.unit.text(high)}, {apart(high / low)} than "
            f"{best['label']}").replace("the same than", "the same as")


def _lead_over(best: Document, second: Document, metric: Metric) -> str:
    first, then = usable(best, metric), usable(second, metric)
    if not first or not then or first <= 0:
        return f"then {second['label']}"
    return f"{apart(first / then)} than {second['label']}".replace("the same than", "the same as")


def _range(metric: Metric, low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return metric.unit.text(high if low is None else low)
    low, high = sorted((low, high))
    text = metric.unit.text(low)
    return text if text == metric.unit.text(high) else span(metric, low, high)


def _rank(entry: Document, metric: Metric) -> int | None:
    rank: int | None = entry["headline"][metric.key].get("rank")
    return rank


def one_a_question(metrics: Sequence[Metric]) -> list[Metric]:
    """Without the metrics of reads and writes whose ranking is that of another one. Metrics of the whole run stay: what
    the drive adds has another ratio than the load time, and MB/s and IOPS are both expected."""
    keys = {metric.key for metric in metrics}
    return [metric for metric in metrics if not (metric.op and metric.same_rank in keys)]


def _without_result(entries: Sequence[Document]) -> str:
    invalid = [entry for entry in entries if entry["verdict"]["level"] == "invalid"]
    if len(entries) == 1:
        return f"{entries[0]['label']}: no result, {_why_none(entries[0], READ_WAIT)}"
    if len(invalid) == len(entries):
        first, *further = ([reason["text"] for reason in entry["verdict"]["reasons"] if reason["level"] == "invalid"]
                           for entry in entries)
        shared = next((f" ({text})" for text in first if all(text in texts for texts in further)), "")
        drives = "both" if len(entries) == 2 else f"all {len(entries)}"
        return f"No result: the runs of {drives} drives are invalid{shared}"
    return f"No result: none of {len(entries)} drives has a metric to compare"


def _why_none(entry: Document, metric: Metric) -> str:
    if entry["verdict"]["level"] == "invalid":
        worst = next((reason["text"] for reason in entry["verdict"]["reasons"] if reason["level"] == "invalid"), "")
        runs = "the run is" if entry["n"] == 1 else "a run is"
        return f"{runs} invalid ({worst})" if worst else f"{runs} invalid"
    if is_withheld(entry, metric):
        return f"{noun(metric)} is withheld"
    return f"no {noun(metric)}"
