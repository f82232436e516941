"""A history as JSON, as lines of the terminal, and as a decision."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any
from xml.etree import ElementTree

from rich.markup import escape

from blkreel import __version__
from blkreel.common.printable import printable, within_sentence
from blkreel.common.text_table import TextColumn, fitting, lines_of, wrapped
from blkreel.common.units import counted, digits

from .selection import Selected
from .series import FEWEST_VALUES, Change, History, Level, as_percent

VERSION = 1
NOUNS = {"date": "night", "firmware": "firmware version", "kernel": "kernel"}


@dataclass(frozen=True)
class Outcome:
    """Of --fail-on-change for one metric. status: "changed", "unchanged" or "unknown" with why. changes: those that
    fail."""

    history: History
    status: str
    why: str = ""
    changes: tuple[Change, ...] = ()


def outcome(history: History, accepted_until: date | None, allow_simulated: bool) -> Outcome:
    """Changes for the worse of more than 2 %, or in any direction where the metric has none, fail, except those of
    points that began no later than accepted_until."""
    failing = tuple(
        change for change in history.changes
        if change.matters and change.worse is not False
        and (accepted_until is None or date.fromisoformat(history.points[change.index].date) > accepted_until))
    if not allow_simulated and any(row["simulated"] for point in history.points for row in point.rows):
        return Outcome(history, "unknown", "simulated drive; --allow-simulated decides all the same")
    if failing:
        return Outcome(history, "changed", changes=failing)
    if not history.is_searched:
        return Outcome(history, "unknown", too_few(history))
    return Outcome(history, "unchanged")


def too_few(history: History) -> str:
    values = counted(history.values, "night" if history.by == "date" else "run")
    return f"n too small ({values}, {FEWEST_VALUES} are needed)"


def outcome_line(outcome: Outcome) -> str:
    key = outcome.history.metric.key
    if outcome.status == "changed":
        return f"changed: {key}: " + "; ".join(change_words(outcome.history, change) for change in outcome.changes)
    return f"{outcome.status}: {key}" + (f": {outcome.why}" if outcome.why else "")


def change_words(history: History, change: Change) -> str:
    """2026-10-03 +5.1 % (95 % interval +4.2 to +6.0 %), worse, with firmware 1.1."""
    ratio = change.point.ratio
    words = f"{history.points[change.index].name} {as_percent(ratio.value)} (95 % interval {interval_words(change)})"
    return ", ".join([words, *filter(None, (direction(change), coincidence(history, change)))])


def coincidence(history: History, change: Change) -> str:
    """By date: the firmware and the kernel that are new since the change."""
    if history.by != "date":
        return ""
    before, after = history.points[change.index - 1], history.points[change.index]
    new = []
    for column in ("firmware", "kernel"):
        versions = _distinct(after.rows, column)
        if versions and not set(versions) & set(_distinct(before.rows, column)):
            new.append(f"{column} {versions[0]}")
    return f"with {' and '.join(new)}" if new else ""


def interval_words(change: Change) -> str:
    ratio = change.point.ratio
    return f"{as_percent(ratio.low).removesuffix(' %')} to {as_percent(ratio.high)}"


def direction(change: Change) -> str:
    return "" if change.worse is None else "worse" if change.worse else "better"


def dated_words(history: History, change: Change) -> str:
    first, last = history.points[change.first].name, history.points[change.last].name
    return first if first == last else f"{first} to {last}"


def sentence(history: History) -> str:
    """The result of one metric."""
    left_out = f" ({history.unusable:,} without a value left out)" if history.unusable else ""
    points = f"{counted(len(history.points), NOUNS[history.by])}, {counted(runs_of(history), 'run')}{left_out}"
    title = history.metric.title
    if not history.is_searched:
        return f"{title}: not searched for changes, {too_few(history)}{left_out}"
    if not history.changes:
        return f"{title}: no change in {points}"
    return f"{title}: {counted(len(history.changes), 'change')} in {points}; the latest: " \
           f"{change_words(history, history.changes[-1])}"


def runs_of(history: History) -> int:
    return sum(point.runs for point in history.points)


def lines(histories: Sequence[History], selected: Selected, width: int, everything: bool) -> list[str]:
    """For the terminal, as lines of rich markup: the levels of each metric, and all points with `everything`."""
    row = selected.rows[-1]
    how = "; ".join(filter(None, (within_sentence(row["pace"]), f"state: {row['state']}" if row["state"] else "")))
    head = f"{row['workload_title']} on {row['model'] or row['label']}" + (f": {how}" if how else "")
    built = [escape(line) for line in wrapped(head, width)]
    left_out = ", ".join(f"{count} {why}" for why, count in selected.left_out.items())
    notes = [*([f"left out: {left_out}"] if left_out else []), *selected.notices]
    built += [escape(line) for note in notes for line in wrapped(note, width)]
    for history in histories:
        built += ["", *(escape(line) for line in wrapped(sentence(history), width))]
        if history.dated_from is not None and history.is_searched:
            built += [escape(line) for line in wrapped(spread_words(history), width)]
        built += lines_of(fitting(_level_columns(history), width))
        if everything:
            built += ["", *lines_of(fitting(_point_columns(history), width))]
    return built


def spread_words(history: History) -> str:
    spread, dated_from = (f"{digits(100 * (share or 0))} %" for share in (history.spread, history.dated_from))
    words = f"spread {spread}"
    return words + (f": steps from {dated_from} on are dated to within one night" if history.by == "date" else "")


def _level_columns(history: History) -> list[TextColumn]:
    noun = {"date": "nights", "firmware": "versions", "kernel": "kernels"}[history.by]
    changes: list[Change | None] = [None, *history.changes]
    styles = ["" if change is None or not change.matters or change.worse is None else "red" if change.worse else "green"
              for change in changes]
    columns = [
        TextColumn("from", [history.points[level.first].name for level in history.levels], right=False),
        TextColumn("to", [history.points[level.last].name for level in history.levels], right=False),
        TextColumn("value", [history.metric.unit.text(level.value) for level in history.levels])]
    if history.changes:
        columns += [
            TextColumn("change", [as_percent(change.point.ratio.value) if change else "" for change in changes],
                       styles=styles),
            TextColumn("95 % interval", [interval_words(change) if change else "" for change in changes]),
            TextColumn("", [direction(change) if change else "" for change in changes], right=False, styles=styles)]
    columns.append(TextColumn("runs", [f"{level.runs:,}" for level in history.levels]))
    if history.by == "date" and history.changes:
        columns.append(TextColumn("dated", [dated_words(history, change) if change else "" for change in changes],
                                  right=False))
    columns.append(TextColumn(noun, [f"{level.last - level.first + 1:,}" for level in history.levels]))
    return columns


def _point_columns(history: History) -> list[TextColumn]:
    points, text = history.points, history.metric.unit.text
    starts = {change.index: change for change in history.changes}
    columns = [
        TextColumn(NOUNS[history.by], [point.name for point in points], right=False),
        TextColumn("value", [text(point.value) for point in points]),
        TextColumn("change", [as_percent(starts[index].point.ratio.value) if index in starts else ""
                              for index in range(len(points))]),
        TextColumn("runs", [f"{point.runs:,}" for point in points])]
    if any(point.runs > 1 for point in points):
        columns.append(TextColumn("smallest to largest", [
            f"{text(point.smallest)} to {text(point.largest)}" if point.runs > 1 else "" for point in points]))
    if history.by != "date":
        columns.append(TextColumn("first run", [point.date for point in points], right=False))
    return columns


def document_of(histories: Sequence[History], selected: Selected, by: str,
                outcomes: Sequence[Outcome] = ()) -> dict[str, Any]:
    """The document of --json (docs/schema/results.json)."""
    row = selected.rows[-1]
    return {"version": VERSION, "kind": "history", "blkreel": __version__, "by": by,
            "workload": {"checksum": row["workload"], "title": row["workload_title"], "name": row["workload_name"]},
            "drive": {key: row[key] for key in ("label", "model", "unit", "capacity_bytes")},
            "pace": row["pace"], "state": row["state"], "left_out": dict(selected.left_out),
            "notices": list(selected.notices), "series": [_series(history) for history in histories],
            **({"fail_on_change": [{"metric": outcome.history.metric.key, "status": outcome.status, "why": outcome.why
                                    or None,
                                    "changes": [change.index for change in outcome.changes]} for outcome in outcomes]}
               if outcomes else {})}


def _series(history: History) -> dict[str, Any]:
    return {"metric": history.metric.key, "title": history.metric.title, "unit": history.metric.unit.symbol,
            "better": history.metric.better or None, "sentence": sentence(history), "unusable": history.unusable,
            "searched": history.is_searched, "spread": history.spread, "dated_from": history.dated_from,
            "points": [{"name": point.name, "date": point.date, "value": point.value, "smallest": point.smallest,
                        "largest": point.largest, "runs": point.runs, "ids": [row["id"] for row in point.rows],
                        "firmware": _distinct(point.rows, "firmware"), "kernel": _distinct(point.rows, "kernel")}
                       for point in history.points],
            "levels": [_level(level) for level in history.levels],
            "changes": [{"index": change.index, "name": history.points[change.index].name, "first": change.first,
                         "last": change.last, "ratio": change.point.ratio.value, "low": change.point.ratio.low,
                         "high": change.point.ratio.high, "p": change.point.p, "worse": change.worse,
                         "over_2_percent": change.matters} for change in history.changes]}


def _level(level: Level) -> dict[str, Any]:
    low, high = (level.interval.low, level.interval.high) if level.interval else (None, None)
    return {"first": level.first, "last": level.last, "runs": level.runs, "value": level.value, "low": low,
            "high": high}


def _distinct(rows: Sequence[Any], column: str) -> list[str]:
    return list(dict.fromkeys(row[column] for row in rows if row[column]))


_NO_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_of(outcomes: Sequence[Outcome], selected: Selected) -> str:
    """A metric that changed is a failure; one that could not be decided is an error, so that it never passes."""
    row = selected.rows[-1]
    name = _text(f"blkreel history: {row['workload_title']} on {row['model'] or row['label']}")
    counts = {status: sum(outcome.status == status for outcome in outcomes) for status in ("changed", "unknown")}
    suites = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(suites, "testsuite", {
        "name": name, "tests": str(len(outcomes)), "failures": str(counts["changed"]),
        "errors": str(counts["unknown"])})
    for outcome in outcomes:
        case = ElementTree.SubElement(suite, "testcase", {"classname": name, "name": _text(outcome.history.metric.key)})
        if outcome.status == "changed":
            words = "; ".join(change_words(outcome.history, change) for change in outcome.changes)
            ElementTree.SubElement(case, "failure", {"type": "change", "message": _text(words)})
        elif outcome.status == "unknown":
            ElementTree.SubElement(case, "error", {"type": "unknown", "message": _text(outcome.why)})
        ElementTree.SubElement(case, "system-out").text = _text(sentence(outcome.history))
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _text(text: str) -> str:
    """Text that XML allows: names come from outside."""
    return _NO_XML.sub("\ufffd", printable(text))
