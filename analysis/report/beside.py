"""The answer of runs beside a background: how long the workload takes alone, beside it, and the ratio of both."""

from collections.abc import Sequence

from blkreel.analysis.metrics.definitions.headline import (
    ALONE,
    BACKGROUND_REACHED,
    LOAD_TIME,
    READ_BYTES,
    READ_THROUGHPUT,
    READ_WAIT,
    SLOWDOWN_BY_WRITES,
)
from blkreel.analysis.metrics.definitions.metric import Metric
from blkreel.analysis.metrics.definitions.registry import value_at
from blkreel.analysis.stats.intervals import geometric_mean
from blkreel.common import units
from blkreel.common.verdict import BACKGROUND_LIMIT
from blkreel.traces.format.metadata_types import Run

from .columns import is_withheld
from .verdict import Document

_TIMES_FROM = 3.0  # ratios below are given in percent


def beside_words(run: Run) -> str:
    """The backgrounds of a run: `writes of 110 MB/s`; empty without one."""
    return " and ".join(background.words for background in run.background)


def of_entry(entry: Document) -> str:
    """beside_words() of the runs of an entry."""
    return beside_words(Run.of(entry["runs"][0]))


def measure_of(entry: Document) -> Metric:
    """What a user waits for at the pace of an entry: load time, or read wait."""
    return LOAD_TIME if _mean(entry, LOAD_TIME) is not None else READ_WAIT


def over_phases(entry: Document, beside: float, alone: float | None) -> float:
    """A time beside the background as the mean over its phases that were simulated; else that of the run's phase."""
    mean = geometric_mean(phases_of(entry))
    return beside if alone is None or mean is None else alone * mean


def beside_sentence(entry: Document) -> str:
    """`Game load: load time 4.7 s alone, 8.5 s beside writes of 110 MB/s (+80 %)`.

    Empty without a background, or if the time beside it is withheld.
    """
    words = of_entry(entry)
    if not words or is_withheld(entry, measure_of(entry)):
        return ""
    source = Run.of(entry["runs"][0]).source
    title = source.title or (source.path or "").rpartition("/")[2] or "the workload"
    measure = measure_of(entry)
    beside, alone = _mean(entry, measure), _mean(entry, ALONE[measure.key])
    if beside is None:
        return ""
    beside = over_phases(entry, beside, alone)
    if measure is LOAD_TIME:
        first = "" if alone is None else f"{measure.unit.text(alone)} alone, "
        text = f"{title}: load time {first}{measure.unit.text(beside)} beside {words}"
    else:
        text = _of_open_pace(entry, title, words, beside, alone)
    if alone is not None:
        text += f" ({'' if measure is LOAD_TIME else 'read wait '}{slowdown_words(entry)})"
    baselines = sum(Run.of(run).baseline is not None for run in entry["runs"])
    if 0 < baselines < entry["n"]:
        text += f"; no slowdown: no baseline of {entry['n'] - baselines} of {entry['n']} runs"
    reached = value_at(entry["figures"], BACKGROUND_REACHED.path)
    if reached is not None and reached < BACKGROUND_LIMIT:
        text += f"; the background reached {units.format_share(reached)} of its rate"
    return text


def without_slowdown(entry: Document) -> str:
    """Why no slowdown is stated of runs with a baseline; empty if it is, and without a baseline."""
    if entry["headline"][SLOWDOWN_BY_WRITES.key]["value"] is not None:
        return ""
    why: str = (entry.get("exposure") or {}).get("why") or ""
    return why if any(Run.of(run).baseline for run in entry["runs"]) else ""


def slowdown_words(entry: Document) -> str:
    """`+21 %, +18 to +24 % over 6 pairs`."""
    figure = entry["headline"][SLOWDOWN_BY_WRITES.key]
    value, pairs = figure["value"], entry["n"]
    if value is None:
        return "no slowdown stated"
    low, high = figure.get("low") or figure.get("smallest"), figure.get("high") or figure.get("largest")
    if phases := phases_of(entry):
        low, high = min(phases), max(phases)
        return f"{_change(value)}, {_range(low, high)} over {len(phases)} phases of the background"
    return _change(value) + (f", {_range(low, high)} over {pairs} pairs" if low is not None and pairs > 1 else "")


def _of_open_pace(entry: Document, title: str, words: str, beside: float, alone: float | None) -> str:
    read_bytes = [value_at(run["figures"], READ_BYTES.path) for run in entry["runs"]]
    size = geometric_mean(read_bytes)
    rate = READ_THROUGHPUT.unit.text
    if not size:
        return f"{title}: read wait {READ_WAIT.unit.text(beside)} beside {words}"
    first = "" if alone is None else f"{rate(size * 1000 / alone)} alone, "
    return f"{title}: reads at {first}{rate(size * 1000 / beside)} beside {words}"


def _mean(entry: Document, metric: Metric) -> float | None:
    values: Sequence[float | None] = [value_at(run["figures"], metric.path) for run in entry["runs"]]
    numbers = [value for value in values if value]
    return geometric_mean(numbers) if numbers and len(numbers) == len(values) else None


def phases_of(entry: Document) -> list[float]:
    """Slowdowns at the phases of the background that were simulated."""
    ratios: list[float] = []
    for run in entry["runs"]:
        if baseline := Run.of(run).baseline:
            ratios += baseline.phases
    return ratios if len(ratios) > len(entry["runs"]) else []


def _change(ratio: float) -> str:
    return f"{units.digits(ratio)} times" if ratio >= _TIMES_FROM else f"{_percent(ratio)} %"


def _range(low: float, high: float) -> str:
    if high >= _TIMES_FROM:
        return f"{units.digits(low)} to {units.digits(high)} times"
    return f"{_percent(low)} to {_percent(high)} %"


def _percent(ratio: float) -> str:
    change = (ratio - 1) * 100
    if abs(change) < 0.05:
        return "0"
    return f"{change:+.0f}" if abs(change) >= 9.95 else f"{change:+.1f}"
