"""The drives of a page of tests, each with its tests, and figures over repetitions."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from blkreel.analysis.charts.model import Entry
from blkreel.analysis.report.drives_file import DrivesFile
from blkreel.analysis.report.page.drive_facts import chosen, interface
from blkreel.analysis.stats.intervals import geometric_mean, interval
from blkreel.analysis.stats.ranking import ENOUGH_RUNS
from blkreel.common import units
from blkreel.common.binning import grouped
from blkreel.common.verdict import Verdict, merged
from blkreel.traces.format.metadata_types import Run

FigurePath = tuple[str, ...]  # keys of a figure in a document
_SUMMED = ("n", "ops", "extents", "sizes", "met", "rounds", "read_bursts", "write_bursts")


@dataclass(frozen=True)
class Value:
    """A figure of one drive. repeats: its values. low, high: the 95 % interval, from ENOUGH_RUNS repetitions on.
    smallest, largest: of several. why: the reason if there is no value."""

    value: Any
    repeats: tuple[Any, ...] = ()
    low: float | None = None
    high: float | None = None
    smallest: float | None = None
    largest: float | None = None
    why: str = ""

    @property
    def n(self) -> int:
        return len(self.repeats)

    @property
    def whisker(self) -> tuple[float | None, float | None, bool]:
        """(low, high, whether they are an interval and not the range)."""
        if self.low is not None:
            return self.low, self.high, True
        return self.smallest, self.largest, False


@dataclass(frozen=True)
class DriveResults:
    """A drive with the documents of its tests, which count as repetitions. key: its label, unique on the page."""

    key: str
    tests: tuple[dict[str, Any], ...]

    @property
    def name(self) -> str:
        return self.key + (" (invalid)" if self.verdict["level"] == "invalid" else "")

    @property
    def path(self) -> str | None:
        """The test's directory, where it is one: a figure of several has no command of its own."""
        return self.tests[0]["path"] if len(self.tests) == 1 else None

    @cached_property
    def verdict(self) -> Verdict:
        return merged(test["verdict"] for test in self.tests)

    def states(self) -> list[str]:
        return list(dict.fromkeys(state for test in self.tests for state in test["figures"].get("states") or {}))

    def of_state(self, index: int, *path: str) -> Value | None:
        """A figure of the first (0) or last (-1) state; None without states."""
        states = self.states()
        return self.value("states", states[index], *path) if states else None

    def series(self, what: str, **of: Any) -> list[dict[str, Any]]:
        """The series of this kind, of the first test that has any."""
        for test in self.tests:
            series = [line_series for line_series in test["series"] if line_series["of"].get("what") == what
                      and all(line_series["of"].get(key) == value for key, value in of.items())]
            if series:
                return series
        return []

    def holds(self, *path: str) -> bool:
        return any(value_at(test["figures"], path) is not None for test in self.tests)

    def keys(self, *path: str) -> list[str]:
        """The keys below a figure, over all its tests."""
        return list(dict.fromkeys(key for test in self.tests for key in value_at(test["figures"], path) or ()))

    def value(self, *path: str) -> Value:
        """A figure over repetitions: tests, and the repeats of each. Rates, times and ratios are geometric means. Text
        has no value unless all tests agree, nor have percentiles and maxima, as they are not averaged."""
        head, key = path[:-1], path[-1]
        outcomes: list[Any] = []
        why, first = "", None
        for test in self.tests:
            figures = value_at(test["figures"], head)
            if not isinstance(figures, dict) or key not in figures:
                outcomes.append(None)
                continue
            repeats = figures.get(f"{key}_repeats")
            outcomes += repeats if repeats is not None else [figures[key]]
            first = figures[key] if first is None else first
            why = why or (figures.get("why") or {}).get(key, "")
        present = [value for value in outcomes if value is not None]
        is_agreed = len(self.tests) > 1 and is_pooled(path) and len({*outcomes}) == 1
        if not present or is_agreed or any(isinstance(value, bool | str) for value in present):
            agreed = present[0] if present and all(value == present[0] for value in present) else None
            return Value(agreed, tuple(outcomes), why=why if agreed is None and not present else
                         "" if agreed is not None else "not the same in all tests")
        if len(outcomes) == 1:
            return Value(outcomes[0], tuple(outcomes), why=why)
        if len(self.tests) > 1 and is_pooled(path):
            return Value(None, tuple(outcomes), smallest=min(present), largest=max(present),
                         why=f"{len(self.tests)} tests: not averaged")
        if key in _SUMMED and len(self.tests) > 1:
            return Value(sum(present), tuple(outcomes))
        value = first if len(self.tests) == 1 else geometric_mean(outcomes)
        if value is None:
            return Value(None, tuple(outcomes), smallest=min(present), largest=max(present),
                         why=why or "unknown in one of the repetitions")
        sure = interval(outcomes) if len(outcomes) >= ENOUGH_RUNS else None
        low, high = (sure.low, sure.high) if sure else (None, None)
        return Value(value, tuple(outcomes), low, high, min(present), max(present))


def is_pooled(path: FigurePath) -> bool:
    """Whether a figure is computed from the I/Os of all repeats together: a percentile, a maximum."""
    key = str(path[-1])
    return key.startswith(("p50", "p90", "p99", "latency_p99")) or key in (
        "max_ns", "steady_at_ns", "lowest_depth_with_95_percent")


def value_at(figures: Any, path: FigurePath) -> Any:
    """The figure at a path of keys; None if there is none."""
    for part in path:
        if not isinstance(figures, dict):
            return None
        figures = figures.get(str(part))
    return figures


def drives_of(document: dict[str, Any]) -> list[DriveResults]:
    """The drives of a document of results, or of a comparison. Tests of the same label, drive and parameters are
    repetitions of one."""
    groups = grouped((test.get("entry") or test["label"] or test["test"] or "the drive", test)
                     for test in document.get("tests") or [document])
    return [DriveResults(key, tuple(tests)) for key, tests in groups.items()]


def models_of(drives: list[DriveResults]) -> dict[str, str]:
    return {drive.key: drive.tests[0]["drive"].get("model") or "" for drive in drives}


def entries_of(drives: list[DriveResults], ranks: dict[str, int], highlight: str | None,
               drives_file: DrivesFile | None = None) -> tuple[Entry, ...]:
    """In the order of their ranks. Parameters and errors as of page_of."""
    models = models_of(drives)
    marked = chosen(highlight, models)
    related = drives_file.relations(marked, models) if drives_file and marked else {}
    entries = [Entry(drive.key, _facts(drive, drives_file, related.get(drive.key)), drive.verdict,
                     ranks.get(drive.key), drive.key == marked) for drive in drives]
    return tuple(sorted(entries, key=lambda entry: entry.rank or len(entries) + 1))


def _facts(drive: DriveResults, drives_file: DrivesFile | None, relation: str | None) -> dict[str, Any]:
    """Facts about the drive, in the order shown; those of drives.toml have priority."""
    device = drive.tests[0]["drive"]
    stated = drives_file.facts(drive.key, device.get("model") or "") if drives_file else {}
    count = len(drive.tests)
    facts = {"model": (device.get("model") or "").strip(), "firmware": (device.get("firmware") or "").strip(),
             "unit": (device.get("serial_hash") or "")[:8],
             "capacity": units.size(device["size_bytes"]) if device.get("size_bytes") else "",
             "class": stated.get("class"), "interface": stated.get("interface") or interface(device, Run()),
             "flash": stated.get("flash"),
             "tests": str(count) if count > 1 else "", "price": stated.get("price"),
             "relation": relation}
    return {name: value for name, value in facts.items() if value}
