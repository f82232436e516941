"""Columns of the headline table, for the page and the terminal: one unit per column, cells as text."""

from dataclasses import dataclass

from blkreel.analysis.metrics.definitions.headline import (
    LOAD_TIME,
    READ_P99,
    READ_THROUGHPUT,
    READ_WAIT,
    headline_metrics,
    why_missing,
)
from blkreel.analysis.metrics.definitions.metric import NS, SHARE, Metric, Value, pace_names
from blkreel.analysis.metrics.definitions.registry import value_at
from blkreel.analysis.stats.ranking import ENOUGH_RUNS
from blkreel.common import units
from blkreel.traces.format.metadata_types import Run

from .verdict import Document

WITHHELD = "withheld"


@dataclass(frozen=True)
class Cell:
    """note: why there is no value, or the range of the runs. interval: "low to high" where the runs suffice for one."""

    text: str
    value: float | None
    note: str = ""
    interval: str = ""


@dataclass(frozen=True)
class Column:
    """scale: what a value of the metric is divided by to be in `unit`."""

    metric: Metric
    unit: str
    scale: float

    @property
    def title(self) -> str:
        return self.metric.short

    def cell(self, entry: Document) -> Cell:
        figure = entry["headline"][self.metric.key]
        if figure["value"] is None:
            return Cell(units.MISSING, None, missing(entry, self.metric))
        notes, interval = [], ""
        if figure["low"] is not None:
            interval = f"{self._text(figure['low'])} to {self._text(figure['high'])}"
            notes.append(f"95 % interval {interval}")
        if figure["smallest"] is not None:
            runs = f"{self._text(figure['smallest'])} to {self._text(figure['largest'])}"
            notes.append(f"runs {runs}" if interval else runs)
        if remark := remark_of(entry, self.metric):
            notes.append(remark)
        return Cell(self._text(figure["value"]), figure["value"], "; ".join(notes), interval)

    def _text(self, value: float) -> str:
        return units.digits(value / self.scale)


def columns_of(entries: list[Document]) -> list[Column]:
    """The metrics of a comparison that are meaningful at the pace of an entry, each in one unit."""
    built = []
    for metric in headline_of(entries):
        scale, unit = 0.01 if metric.unit is SHARE else 1, metric.unit.symbol
        if metric.unit is NS:
            scale, unit = units.time_unit([entry["headline"][metric.key]["value"] for entry in entries])
        built.append(Column(metric, unit, scale))
    return built


def headline_of(entries: list[Document]) -> list[Metric]:
    """The headline metrics at the paces of the entries: of reads and writes if an entry has some, and an optional one
    only if an entry has a value."""
    paces = dict.fromkeys(pace for entry in entries for pace in pace_names(entry["pace"]))
    return [metric for metric in headline_metrics(paces)
            if (not metric.op or any(entry["figures"][metric.op]["ops"] for entry in entries))
            and (not metric.optional or any(entry["headline"][metric.key]["value"] is not None for entry in entries))]


def is_withheld(entry: Document, metric: Metric) -> bool:
    """Whether the verdict withholds a metric: only the JSON document has its value."""
    return metric.key in entry["verdict"].get("withheld", ())


def value_of(entry: Document, metric: Metric) -> Value:
    """The value of a metric in an entry of the document; None if it has none, or is withheld."""
    return None if is_withheld(entry, metric) else value_at(entry["figures"], metric.path)


def missing(entry: Document, metric: Metric) -> str:
    """Why a metric has no value in an entry of the document."""
    return WITHHELD if is_withheld(entry, metric) else why_missing(entry["figures"], metric, pace_names(entry["pace"]))


def without_interval(entry: Document, why: str = "") -> str:
    """Why a figure of an entry has no interval and no rank. why: why it has no value."""
    if why or entry["n"] >= ENOUGH_RUNS:
        return why or "a run is zero or lacks this figure"
    return f"n={entry['n']}: too few runs"


def remark_of(entry: Document, metric: Metric) -> str:
    """Why to read a value with care: reads are faster when the writer falls behind."""
    return "writer fell behind" if metric is READ_THROUGHPUT and entry["writer"] == "fell behind" else ""


def sentence(entry: Document) -> str:
    """The headline figures as a sentence that follows the label; empty without reads."""
    value = {key: figure["value"] for key, figure in entry["headline"].items()}
    if value[READ_THROUGHPUT.key] is None:
        return ""
    text = ""
    if value[LOAD_TIME.key] is not None:
        text = f"loaded in {units.duration(value[LOAD_TIME.key])}; "
    text += f"reads were outstanding for {units.duration(value[READ_WAIT.key])}"
    if entry["figures"]["write"]["ops"]:
        text += f" while {units.size(entry['figures']['write']['bytes'] / entry['n'])} were written in the background"
    if value[READ_P99.key] is not None:
        text += f", and 1 read in 100 took {units.duration(value[READ_P99.key])} or more"
    return text + (", but this run failed its checks." if entry["verdict"]["level"] == "invalid" else ".")


def drive_words(drive: Document) -> str:
    """Model, kind and size of a drive, in a few words."""
    kind = {"loop": "loop device", "disk": "drive", "file": "file"}.get(drive.get("kind") or "", drive.get("kind"))
    words = [drive.get("model"), drive.get("firmware"), kind if not drive.get("model") else None,
             units.size(drive["size_bytes"]) if drive.get("size_bytes") else None]
    return ", ".join(str(word).strip() for word in words if word)


def state_words(state: Document | None) -> str:
    """The state of the drive before the run."""
    words = state_name(state)
    if state and state.get("name") and state.get("written_since_bytes"):
        words += f", {units.size(state['written_since_bytes'])} written since"
    return words


def state_name(state: Document | None) -> str:
    """The state without what was written since: the same for repetitions."""
    if not state or not state.get("name"):
        return "not prepared" if state is not None else units.MISSING
    return str(state["name"]) + (" (scaled)" if state.get("scale") not in (None, 1, 1.0) else "")


def idle_words(idle: Document | None) -> str:
    """How the replay changed the trace's idle time."""
    if not idle or idle.get("name") in (None, "original"):
        return "as captured"
    removed = units.duration(idle.get("removed_ns") or 0)
    if idle["name"] == "cap":
        return f"capped at {units.setting(idle.get('cap_ns') or 0)}, {removed} removed"
    return f"removed ({removed})"


def exposure_words(entry: Document) -> str:
    """The exposure of a run with a baseline or a background, or of a trace with background writes, or why it has no
    slowdown; empty for others."""
    exposure, run = entry.get("exposure"), entry["runs"][0]
    if not exposure or exposure["written_until_ns"] is None or not exposure["read_bytes"]:
        return ""
    account = Run.of(run)
    if run["run"] and not account.baseline and not account.background:
        return ""
    words: str = exposure["why"] or exposure["words"]
    return words
