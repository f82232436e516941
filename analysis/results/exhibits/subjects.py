"""What a page of tests is of: drives, each with its tests; and a figure over repetitions."""

from dataclasses import dataclass
from functools import cached_property

from ... import numbers
from ...exhibits.facts import chosen, interface
from ...exhibits.model import Entry
from ...statistics import geometric_mean, interval
from ...verdict import ENOUGH_RUNS, judged

_MANY = ("n", "ops", "extents", "sizes", "met", "rounds", "read_bursts", "write_bursts")


@dataclass(frozen=True)
class Value:
    """A figure of one drive. each: of the repetitions. low, high: the 95 % interval, from ENOUGH_RUNS repetitions on,
    and in `words` of what kind. smallest, largest: of several. why: the reason where there is no value."""

    value: object
    each: tuple = ()
    low: float | None = None
    high: float | None = None
    words: str = ""
    smallest: float | None = None
    largest: float | None = None
    why: str = ""

    @property
    def n(self) -> int:
        return len(self.each)

    @property
    def whisker(self) -> dict:
        """low, high, is_interval of a row of a chart."""
        if self.low is not None:
            return {"low": self.low, "high": self.high, "is_interval": True}
        return {"low": self.smallest, "high": self.largest, "is_interval": False}


@dataclass(frozen=True)
class Subject:
    """A drive with the documents of its tests, which count as repetitions. key: its label, unique on the page."""

    key: str
    tests: tuple[dict, ...]

    @property
    def name(self) -> str:
        return self.key + (" (invalid)" if self.verdict["level"] == "invalid" else "")

    @property
    def path(self) -> str | None:
        """The test's directory, where it is one: a figure of several has no command of its own."""
        return self.tests[0]["path"] if len(self.tests) == 1 else None

    @cached_property
    def verdict(self) -> dict:
        reasons = []
        for test in self.tests:
            reasons += [{"level": each["level"], "text": each["text"]} for each in test["verdict"]["reasons"]
                        if not any(each["text"] == other["text"] for other in reasons)]
        return judged(reasons)

    def states(self) -> list[str]:
        return list(dict.fromkeys(state for test in self.tests for state in test["figures"].get("states") or {}))

    def series(self, what: str, **of) -> list[dict]:
        """Of its first test that has any: those that show this."""
        for test in self.tests:
            found = [one for one in test["series"] if one["of"].get("what") == what
                     and all(one["of"].get(key) == value for key, value in of.items())]
            if found:
                return found
        return []

    def holds(self, *path) -> bool:
        return any(figure_at(test["figures"], path) is not None for test in self.tests)

    def keys(self, *path) -> list[str]:
        """The keys below a figure, over all its tests."""
        found = {}
        for test in self.tests:
            below = figure_at(test["figures"], path)
            found |= dict.fromkeys(below or ())
        return list(found)

    def value(self, *path) -> Value:
        """A figure over its repetitions: tests, and the repeats of each. Rates, times and ratios are geometric means;
        words have to agree; percentiles and maxima are never averaged, and of several tests there is none."""
        head, key = path[:-1], path[-1]
        each, why, first = [], "", None
        for test in self.tests:
            here = figure_at(test["figures"], head)
            if not isinstance(here, dict) or key not in here:
                each.append(None)
                continue
            repeats = here.get(f"{key}_repeats")
            each += repeats if repeats is not None else [here[key]]
            first = here[key] if first is None else first
            why = why or (here.get("why") or {}).get(key, "")
        known = [value for value in each if value is not None]
        if not known or any(isinstance(value, bool | str) for value in known):
            agreed = known[0] if known and all(value == known[0] for value in known) else None
            return Value(agreed, tuple(each), why=why if agreed is None and not known else
                         "" if agreed is not None else "not the same in all tests")
        if len(each) == 1:
            return Value(each[0], tuple(each), why=why)
        if len(self.tests) > 1 and is_pooled(path):
            return Value(None, tuple(each), smallest=min(known), largest=max(known), why=(
                f"{len(self.tests)} tests: not averaged; {min(known):,.0f} to {max(known):,.0f}"))
        if key in _MANY and len(self.tests) > 1:
            return Value(sum(known), tuple(each))
        value = first if len(self.tests) == 1 else geometric_mean(each)
        if value is None:
            return Value(None, tuple(each), smallest=min(known), largest=max(known),
                         why=why or "unknown in one of the repetitions")
        sure = interval(each) if len(each) >= ENOUGH_RUNS else None
        return Value(value, tuple(each), *((sure.low, sure.high, sure.words) if sure else (None, None, "")),
                     min(known), max(known))


def is_pooled(path: tuple) -> bool:
    """Whether a figure is of the I/Os of all repeats together: a percentile, a maximum."""
    key = str(path[-1])
    return key.startswith(("p50", "p90", "p99", "latency_p99")) or key in (
        "max_ns", "steady_at_ns", "lowest_depth_with_95_percent")


def figure_at(figures, path):
    """The figure at a path of keys; None where there is none."""
    for part in path:
        if not isinstance(figures, dict):
            return None
        figures = figures.get(str(part))
    return figures


def subjects_of(document: dict) -> list[Subject]:
    """The drives of a document of results, or of a comparison. Tests of the same label, drive and parameters are
    repetitions of one."""
    groups = {}
    for test in document.get("tests") or [document]:
        groups.setdefault(test.get("entry") or test["label"] or test["test"] or "the drive", []).append(test)
    return [Subject(key, tuple(tests)) for key, tests in groups.items()]


def models_of(subjects: list[Subject]) -> dict[str, str]:
    """Key -> model of the drives."""
    return {subject.key: subject.tests[0]["drive"].get("model") or "" for subject in subjects}


def entries_of(subjects: list[Subject], ranks: dict, highlight: str | None, catalogue=None) -> tuple[Entry, ...]:
    """In the order of their ranks. highlight, catalogue: as of page_of, which says what is raised."""
    models = models_of(subjects)
    marked = chosen(highlight, models)
    related = catalogue.relations(marked, models) if catalogue and marked else {}
    entries = [Entry(subject.key, _facts(subject, catalogue, related.get(subject.key)), subject.verdict,
                     ranks.get(subject.key), subject.key == marked) for subject in subjects]
    return tuple(sorted(entries, key=lambda entry: entry.rank or len(entries) + 1))


def _facts(subject, catalogue, relation):
    """What is known of the drive, in the order shown; what the user told of it wins."""
    drive = subject.tests[0]["drive"]
    told = catalogue.facts(subject.key, drive.get("model") or "") if catalogue else {}
    count = len(subject.tests)
    facts = {"model": (drive.get("model") or "").strip(), "firmware": (drive.get("firmware") or "").strip(),
             "unit": (drive.get("serial_hash") or "")[:8],
             "capacity": numbers.size(drive["size_bytes"]) if drive.get("size_bytes") else "",
             "class": told.get("class"), "interface": told.get("interface") or interface(drive, {}),
             "flash": told.get("flash"),
             "tests": str(count) if count > 1 else "", "price": told.get("price"),
             "relation": relation}
    return {name: value for name, value in facts.items() if value}
