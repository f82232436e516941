"""Conditions on a comparison, for firmware and kernels that are tested without anybody looking.

    condition = figure comparison limit         wait_time > +10%    read_p99 > 2ms    read_throughput < 500MB/s

A limit in percent is on the change of the new runs against the base; any other is on the new runs alone. What is past a
limit in percent, but with six and more runs on both sides within what chance does (the 95 % Welch interval of the ratio
holds 1), is noise and not met. With fewer runs the value alone decides, and the outcome says so. What could not be
compared, or is of invalid runs, is never taken for passed.
"""

import difflib
import math
import re
from dataclasses import asdict, dataclass

from blkreel.traces.errors import UsageError
from blkreel.traces.units import parse_size_bytes, parse_time_ns

from . import numbers
from .definitions import HEADLINE
from .figure import NAMES, keys
from .statistics import geometric_mean, welch
from .verdict import ENOUGH_RUNS

MET, NOT_MET, NOISE, UNKNOWN = "met", "not met", "noise", "unknown"
EXIT_MET, EXIT_UNKNOWN = 4, 3
_ROUNDING = 1e-12

_CONDITION = re.compile(r"\s*([A-Za-z_][\w.\- ]*?)\s*(>=|<=|>|<)\s*([+\-−]?)\s*(\d+(?:\.\d+)?|\.\d+)\s*"
                        r"([^\W\d]*(?:/s)?|%)\s*")
_RATES = {"mb/s": 1, "mb_s": 1, "gb/s": 1000, "kb/s": 1e-3}
_UNITS = ("_ns", "_mb_s", "_bytes")
_EXAMPLES = "write it like 'wait_time > +10%', 'read_p99 > 2ms' or 'read_throughput < 500MB/s'"
_POOLED = re.compile(r"\.(mean|p\d+(_\d+)?|max)_ns$")


@dataclass(frozen=True)
class Condition:
    """metric: as the user wrote it. limit: a share (0.1 is 10 %) of a change, otherwise in the unit of `kind`."""

    text: str
    metric: str
    comparison: str
    limit: float
    kind: str  # "change", "_ns", "_mb_s", "_bytes" or "" for a plain number

    def past(self, value: float) -> bool:
        # 110 / 100 - 1 is not quite 10 %: what differs from the limit by rounding is at it.
        if math.isclose(value, self.limit, rel_tol=_ROUNDING, abs_tol=_ROUNDING):
            return self.comparison in (">=", "<=")
        return {">": value > self.limit, ">=": value >= self.limit, "<": value < self.limit,
                "<=": value <= self.limit}[self.comparison]

    @property
    def wants_worse(self) -> bool:
        """Whether no change at all passes it: otherwise it asks for an improvement."""
        return self.limit >= 0 if self.comparison[0] == ">" else self.limit <= 0


@dataclass(frozen=True)
class Outcome:
    """One condition on one drive. status: met, not met, noise (past the limit, and within what chance does) or unknown.

    change, low, high: as shares; the interval only where there are six runs on both sides. why: of what is no plain
    met or not met, and where only few runs decided.
    """

    condition: str
    section: str
    metric: str
    base: str | None
    new: str
    status: str
    base_value: float | None = None
    new_value: float | None = None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    why: str = ""

    def shown(self) -> dict:
        return asdict(self)


def parse(text: str) -> Condition:
    """Raises UsageError for what is no condition, with how to write one."""
    match = _CONDITION.fullmatch(text)
    if not match:
        raise UsageError(f"--fail-if {text!r} is no condition", _EXAMPLES)
    metric, comparison, sign, number, unit = match.groups()
    metric = re.sub(r"[\s\-]+", "_", metric)
    value = float(number) * (-1 if sign in ("-", "−") else 1)
    if unit == "%":
        return Condition(text, metric, comparison, value / 100, "change")
    if sign:
        raise UsageError(f"--fail-if {text!r}: a limit with a sign is a change", f"add % to it: {sign}{number}%")
    if not unit:
        return Condition(text, metric, comparison, value, "")
    if unit.lower() in _RATES:
        return Condition(text, metric, comparison, value * _RATES[unit.lower()], "_mb_s")
    for parse_unit, kind in ((parse_time_ns, "_ns"), (parse_size_bytes, "_bytes")):
        try:
            return Condition(text, metric, comparison, parse_unit(number + unit), kind)
        except UsageError:
            pass
    raise UsageError(f"--fail-if {text!r}: unknown unit {unit!r}", "units are %, ns, us, ms, s, MB/s, GB/s, KiB, MB")


def check(document: dict, conditions: list[Condition], base: str | None = None) -> list[Outcome]:
    """Each condition on each drive of a comparison but the base: the first of its section, or the one of that label.

    document: of analysis.document.comparison, or of several results of a test. Raises UsageError for a figure that
    there is not, a limit in a unit that isn't the figure's, and a base that is no drive.
    """
    sections = _test_sections(document) if "sections" not in document else [
        (section["title"], [_Drive.of_entry(entry) for entry in section["entries"]])
        for section in document["sections"]]
    labels = [drive.label for _, drives in sections for drive in drives]
    if base is not None and base not in labels:
        raise UsageError(f"--base {base!r} is none of these drives",
                         f"name one of: {', '.join(dict.fromkeys(_near(base, labels) or labels))}")
    outcomes = []
    for condition in conditions:
        for title, drives in sections:
            first = next((drive for drive in drives if drive.label == base), None) if base else drives[0]
            metric = _resolved(condition, drives)
            others = [drive for drive in drives if drive is not first]
            if condition.kind != "change":
                outcomes += [_on_value(condition, title, metric, drive) for drive in others or drives]
            elif first is None or not others:
                outcomes.append(Outcome(condition.text, title, metric, None, drives[0].label, UNKNOWN,
                                        why="there is no base to compare with" if first is None else
                                        "no other run here is of this trace at this pace, and others are never "
                                        "compared" if len(sections) > 1 else
                                        "there is nothing to compare with the base: name runs of two drives, or with "
                                        "two labels"))
            else:
                outcomes += [_on_change(condition, title, metric, first, drive) for drive in others]
    return outcomes


def exit_code(outcomes: list[Outcome]) -> int:
    """4 where a condition is met; otherwise 3 where one could not be checked, or only on runs that can't be trusted."""
    if any(outcome.status == MET for outcome in outcomes):
        return EXIT_MET
    return EXIT_UNKNOWN if any(outcome.status == UNKNOWN for outcome in outcomes) else 0


def words(outcome: Outcome) -> str:
    """One line for the terminal."""
    told = f"{outcome.status}: {outcome.condition}  [{outcome.new}"
    told += f" against {outcome.base}]" if outcome.base else "]"
    if outcome.change is not None:
        told += f"  {_percent(outcome.change)}"
        if outcome.low is not None:
            told += f", 95 % interval {_percent(outcome.low)} to {_percent(outcome.high)}"
    if outcome.new_value is not None:
        before = f"{_value(outcome.metric, outcome.base_value)} to " if outcome.base_value is not None else ""
        told += f"  ({before}{_value(outcome.metric, outcome.new_value)})"
    return told + (f"; {outcome.why}" if outcome.why else "")


@dataclass(frozen=True)
class _Drive:
    """figures: of all runs pooled; runs: of each; invalid: why it is not to be trusted. headline: by name."""

    label: str
    figures: dict
    runs: list[dict]
    headline: dict
    invalid: str = ""

    @classmethod
    def of_entry(cls, entry):
        reasons = [reason["text"] for reason in entry["verdict"]["reasons"] if reason["level"] == "invalid"]
        invalid = entry["verdict"]["level"] == "invalid"
        return cls(entry["label"], entry["figures"], [run["figures"] for run in entry["runs"]], entry["headline"],
                   f"{entry['label']} is invalid: {'; '.join(reasons) or 'its replay says so'}" if invalid else "")

    def values(self, metric):
        """(value of the drive, value of each run where they are known apart)."""
        key = HEADLINE[metric].key if metric in HEADLINE else metric
        if self.runs:
            runs = [_at(figures, key) for figures in self.runs]
            if metric in HEADLINE:
                shown = self.headline[metric]["value"]
                return shown, runs if shown is not None else [None] * len(runs)
            return (_at(self.figures, key) if _POOLED.search(key) else _mean(runs)), runs
        value = _at(self.figures, key)
        repeats = _at(self.figures, f"{key}_repeats")
        return value, list(repeats) if isinstance(repeats, list) else [value]


def _test_sections(document):
    reasons = [reason["text"] for reason in document["verdict"]["reasons"] if reason["level"] == "invalid"]
    invalid = f"the tests are invalid: {'; '.join(reasons)}" if document["verdict"]["level"] == "invalid" else ""
    several = document.get("labels")
    figures = document["figures"] if several else {document["label"] or "the test": document["figures"]}
    return [(document["title"], [_Drive(label, own, [], {}, invalid) for label, own in figures.items()])]


def _on_value(condition, title, metric, drive):
    value, runs = drive.values(metric)
    told = (condition.text, title, metric, None, drive.label)
    if drive.invalid or value is None:
        return Outcome(*told, UNKNOWN, new_value=value, why=drive.invalid or _missing(drive, metric))
    return Outcome(*told, MET if condition.past(value) else NOT_MET, new_value=value, why=_few(len(runs)))


def _on_change(condition, title, metric, base, new):
    (before, base_runs), (after, new_runs) = base.values(metric), new.values(metric)
    told = (condition.text, title, metric, base.label, new.label)
    wrong = " and ".join(dict.fromkeys(filter(None, (base.invalid, new.invalid))))
    wrong = wrong or next((_missing(one, metric) for one, value in ((base, before), (new, after)) if value is None), "")
    if not wrong and (before < 0 or not before and after):
        wrong = f"{metric} of {base.label} is {'below ' if before else ''}zero: there is no change in percent"
    if wrong:
        return Outcome(*told, UNKNOWN, before, after, why=wrong)
    change = after / before - 1 if before else 0.0
    few = min(len(base_runs), len(new_runs))
    ratio = welch(new_runs, base_runs) if few >= ENOUGH_RUNS else None
    if ratio:
        change = ratio.value - 1  # of a pooled percentile that of the runs' own, as its interval
    told += (NOT_MET,) if not condition.past(change) else (MET,)
    shown = {"base_value": before, "new_value": after, "change": change, "low": ratio and ratio.low - 1,
             "high": ratio and ratio.high - 1}
    if not ratio:
        why = _few(few) or "a run is zero or lacks this figure: no interval, the value alone decided"
        return Outcome(*told, **shown, why=why)
    if told[-1] == MET and condition.wants_worse and not ratio.excludes_one:
        why = "past the limit, and within what chance does: more runs can tell"
        return Outcome(*told[:-1], NOISE, **shown, why=why)
    return Outcome(*told, **shown)


def _few(count):
    return "" if count >= ENOUGH_RUNS else f"n={count}: fewer than {ENOUGH_RUNS} runs, the value alone decided"


def _missing(drive, metric):
    key = HEADLINE[metric].key if metric in HEADLINE else metric
    *above, name = key.split(".")
    near = _at(drive.figures, ".".join(above)) if above else drive.figures
    if isinstance(near, dict) and name.removesuffix("_ns") in near.get("too_small", ()):
        return f"{metric} of {drive.label} is not known: n too small (n={near['n']:,})"
    return f"{metric} of {drive.label} is not known: nothing of this kind was measured"


def _at(figures, key):
    for part in key.split("."):
        if not isinstance(figures, dict) or part not in figures:
            return None
        figures = figures[part]
    return figures


def _mean(values):
    """Of rates and times the geometric mean; of counts that may be zero the mean."""
    if any(value is None for value in values):
        return None
    return geometric_mean(values) or sum(values) / len(values)


def _resolved(condition, drives):
    """The figure that a condition means: name of a headline, dotted key, or its end, of those that lie least deep."""
    metric, runs = condition.metric, bool(drives[0].runs)
    known = list(dict.fromkeys(key for drive in drives for key in keys(drive.figures)
                               if isinstance(_at(drive.figures, key), int | float | None)))
    ends = [f"{metric}{unit}" for unit in ("", *_UNITS)]
    if runs:
        found = next((name for name in (NAMES.get(metric), *ends) if name in HEADLINE), None)
        if found:
            return _in_unit(condition, found)
    end = ends + ([NAMES[metric]] if metric in NAMES else [])
    exact = [key for key in known if key in end]
    found = exact or [key for key in known if any(key.endswith(f".{one}") for one in end)]
    # The slowdown of a test, not that of each of its bursts, which lies deeper.
    found = [key for key in found if key.count(".") == min(one.count(".") for one in found)]
    if len(found) == 1:
        return _in_unit(condition, found[0])
    if found:
        raise UsageError(f"--fail-if {condition.text!r}: {metric!r} may be {', '.join(found[:6])}",
                         "write one of them in full")
    names = [*(sorted(NAMES) if runs else ()), *known]
    near = _near(metric, names) or names[:5]
    raise UsageError(f"--fail-if {condition.text!r}: there is no figure {metric!r}",
                     f"did you mean {', '.join(near)}? All of them: blkreel compare … --json")


def _in_unit(condition, metric):
    unit = _unit(metric)
    if condition.kind not in ("change", unit):
        like = {"_ns": "2ms", "_mb_s": "500MB/s", "_bytes": "8GiB", "": "1.5"}[unit]
        raise UsageError(f"--fail-if {condition.text!r}: {metric} is not in that unit",
                         f"write the limit like {like}, or +10%")
    return metric


def _unit(metric):
    return next((one for one in _UNITS if f"_{metric.split('.')[-1]}".endswith(one)), "")


def _near(word, names):
    """Those that look like it; a word of a name that is left out doesn't make another name."""
    near = difflib.get_close_matches(word, names, 4, .55)
    return list(dict.fromkeys([*near, *(name for name in names if word.lower() in name.lower())]))[:4]


def _percent(share):
    return f"{share * 100:+.1f} %" if round(share * 100, 1) else "0.0 %"


def _value(metric, value):
    unit = _unit(metric)
    if unit == "_ns":
        return numbers.duration(value)
    if unit == "_bytes":
        return numbers.size(value)
    return f"{numbers.digits(value)}{' MB/s' if unit == '_mb_s' else ''}"
