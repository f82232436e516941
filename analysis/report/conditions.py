"""Conditions on a comparison, for firmware and kernels that are tested without anybody looking.

    condition = metric comparison limit         read_wait > +10%    read_p99 > 2ms    read_throughput < 500MB/s

A limit in percent is on the change of the new runs against the base; any other is on the new runs alone. What is past a
limit in percent, but with six and more runs on both sides within what chance does (the 95 % Welch interval of the ratio
holds 1), is noise and not met. With fewer runs the value alone decides, and the outcome says so. What could not be
compared, or is of invalid runs, is never taken for passed. Conditions on I/Os that failed are decided before the
verdict, because such I/Os make a run invalid.
"""

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from blkreel.analysis.metrics.definitions.headline import RELATIVE_PERFORMANCE, usable_keys, why_refused
from blkreel.analysis.metrics.definitions.metric import BYTES, MB_S, NS, NUMBER, SHARE, TEXT, Metric, pace_names
from blkreel.analysis.metrics.definitions.registry import METRICS, find
from blkreel.analysis.stats.intervals import mean_of_runs, welch
from blkreel.analysis.stats.ranking import ENOUGH_RUNS
from blkreel.common import units
from blkreel.common.errors import UsageError, did_you_mean
from blkreel.common.printable import within_sentence
from blkreel.common.units import parse_size_bytes, parse_time_ns
from blkreel.traces.format.condition import Condition as RunCondition
from blkreel.traces.format.condition import differences

from .figure import paths
from .workloads import FEWEST_WORKLOADS, Score, overview

MET, NOT_MET, NOISE, UNKNOWN = "met", "not met", "noise", "unknown"
EXIT_MET, EXIT_UNKNOWN = 4, 3
_ROUNDING = 1e-12

_CONDITION = re.compile(r"\s*([A-Za-z_][\w.+\- ]*?)\s*(>=|<=|>|<)\s*([+\-−]?)\s*(\d+(?:\.\d+)?|\.\d+)\s*"
                        r"([^\W\d]*(?:/s)?|%)\s*")
_RATES = {"mb/s": 1, "mb_s": 1, "gb/s": 1000, "kb/s": 1e-3}
_UNITS = {unit.suffix: unit for unit in (NS, MB_S, BYTES)}
_LEFT_OUT = ": all its runs are invalid and left out"
_FAILURES = ("error_ops", "unseen_ops")  # ends of keys
_EXAMPLES = "write it like 'read_response_p99 > +20%', 'read_p99 > 2ms' or 'read_throughput < 500MB/s'"


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

    def document(self) -> dict[str, Any]:
        return asdict(self)


def parse(text: str) -> Condition:
    """Raises UsageError, with an example, for text that is not a condition."""
    match = _CONDITION.fullmatch(text)
    if not match:
        raise UsageError(f"--fail-if {text!r} is not a condition", _EXAMPLES)
    metric, comparison, sign, number, unit = match.groups()
    metric = _joined(metric)
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
        with suppress(UsageError):
            return Condition(text, metric, comparison, parse_unit(number + unit), kind)
    raise UsageError(f"--fail-if {text!r}: unknown unit {unit!r}", "units are %, ns, us, ms, s, MB/s, GB/s, KiB, MB")


def _joined(words: str) -> str:
    """`read wait` and `read-wait` are `read_wait`; steps of a benchmark have dashes in their names."""
    return re.sub(r"[\s\-]+", "_", words)


def check(document: dict[str, Any], conditions: list[Condition], base: str | None = None,
          allow_simulated: bool = False, scores: Sequence[Score] = ()) -> list[Outcome]:
    """Each condition on each drive of a comparison except the base: the first of its section, or that of the label.

    A condition on a simulated drive is unknown, unless allow_simulated, and so is one on a withheld metric.
    document: of report.document.comparison, or of several results of a test. scores: of further workloads, for the
    relative performance. Raises UsageError for an unknown metric, a metric without meaning at the pace, a limit in
    another unit than the metric, and an unknown base.
    """
    sections = _test_sections(document, allow_simulated) if "sections" not in document else [
        (section["title"], [_Drive.of_entry(entry, allow_simulated) for entry in section["entries"]])
        for section in document["sections"]]
    bases = [section.get("base", drives[0].label) for section, (_, drives) in
             zip(document.get("sections", [{}]), sections, strict=True)]
    # A base alone says nothing of a drive that is compared with it elsewhere.
    compared_bases = {base or label for (_, drives), label in zip(sections, bases, strict=True) if len(drives) > 1}
    left_out = [section.get("left_out", ()) for section in document.get("sections", [{}])]
    # Sections all of whose runs are.
    gone_sections = [(section["title"], section["left_out"]) for section in document.get("left_out", ())]
    labels = [drive.label for _, drives in sections for drive in drives]
    if base is not None and base not in labels:
        raise UsageError(f"--base {base!r} is none of these drives",
                         did_you_mean(base, labels, f"name one of: {', '.join(dict.fromkeys(labels))}"))
    outcomes: list[Outcome] = []
    for condition in conditions:
        if condition.metric == RELATIVE_PERFORMANCE:
            outcomes += _on_relative(condition, document, sections, base or bases[0], scores,
                                     [label for gone in (*left_out, *(gone for _, gone in gone_sections))
                                      for label in gone])
            continue
        for (title, drives), first_label, gone in zip(sections, bases, left_out, strict=True):
            first = next((drive for drive in drives if drive.label == (base or first_label)), None)
            metric = _resolved(condition, drives)
            compared_drives = [drive for drive in drives if drive is not first]
            if condition.kind != "change" and (compared_drives or drives[0].label not in compared_bases):
                outcomes += [_on_value(condition, title, metric, drive) for drive in compared_drives or drives]
            elif first is None or not compared_drives:
                outcomes.append(Outcome(condition.text, title, metric, None, drives[0].label, UNKNOWN,
                                        why="there is no base to compare with"
                                        f"{_LEFT_OUT if first_label is None and not base else ''}" if first is None else
                                        "no other run here is of this trace at this pace, and others are never "
                                        "compared" if len(sections) > 1 else
                                        "there is nothing to compare with the base: name runs of two drives, or with "
                                        "two labels"))
            else:
                outcomes += [_on_change(condition, title, metric, first, drive) for drive in compared_drives]
            outcomes += [_left_out(condition, title, metric, label) for label in gone]
        outcomes += [_left_out(condition, title, condition.metric, label)
                     for title, gone in gone_sections for label in gone]
    return outcomes


def _left_out(condition: Condition, title: str, metric: str, label: str) -> Outcome:
    return Outcome(condition.text, title, metric, None, label, UNKNOWN, why=f"{label} has no run{_LEFT_OUT}")


def exit_code(outcomes: list[Outcome]) -> int:
    """4 if a condition is met; otherwise 3 if one could not be checked, or only on invalid runs."""
    if any(outcome.status == MET for outcome in outcomes):
        return EXIT_MET
    return EXIT_UNKNOWN if any(outcome.status == UNKNOWN for outcome in outcomes) else 0


def words(outcome: Outcome, has_section: bool = False) -> str:
    """One line for the terminal. has_section: names the section too, where a comparison has several."""
    line = f"{outcome.status}: {outcome.condition}  [{outcome.new}"
    line += f" against {outcome.base}" if outcome.base else ""
    line += f", {within_sentence(outcome.section)}]" if has_section else "]"
    # The change of a percentile is then that of the mean of the runs' own, which may have another sign.
    is_of_runs = outcome.low is not None and (metric := find(outcome.metric)) is not None and metric.pooled
    if outcome.change is not None:
        line += f"  {_percent(outcome.change)}{' in the mean of the runs' if is_of_runs else ''}"
        if outcome.low is not None and outcome.high is not None:
            line += f", 95 % interval {_percent(outcome.low)} to {_percent(outcome.high)}"
    if outcome.new_value is not None:
        before = f"{_value(outcome.metric, outcome.base_value)} to " if outcome.base_value is not None else ""
        line += f"  ({before}{_value(outcome.metric, outcome.new_value)}{' of all I/Os' if is_of_runs else ''})"
    return line + (f"; {outcome.why}" if outcome.why else "")


@dataclass(frozen=True)
class _Drive:
    """figures: of all runs pooled. runs: of each. headline: by key. invalid: why its runs are not used.

    run: the account of its first run; None of a test. left_out: figures of its runs that --drop-invalid leaves out.
    parameters: how those of compared tests differ.
    """

    label: str
    figures: dict[str, Any]
    runs: list[dict[str, Any]]
    headline: dict[str, Any]
    invalid: str = ""
    paces: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    run: dict[str, Any] | None = None
    left_out: tuple[dict[str, Any], ...] = ()
    parameters: str = ""

    @classmethod
    def of_entry(cls, entry: dict[str, Any], allow_simulated: bool) -> "_Drive":
        return cls(entry["label"], entry["figures"], [run["figures"] for run in entry["runs"]], entry["headline"],
                   _unusable(entry["label"], entry, allow_simulated), pace_names(entry["pace"]),
                   tuple(entry["verdict"].get("withheld", ())), entry["runs"][0].get("run"),
                   tuple(entry.get("left_out", ())))

    def without_value(self, metric: str, value: float | None) -> str:
        """Why a metric cannot decide a condition; "" if it can."""
        if self.invalid and not _is_of_failures(metric):
            return self.invalid
        if metric in self.withheld:
            return f"{metric} of {self.label} is withheld: list the reasons with --why"
        return _missing(self, metric) if value is None else ""

    def values(self, metric: str) -> tuple[float | None, list[float | None]]:
        """(value of the drive, value of each run or repeat)."""
        definition, path = find(metric), _path(metric)
        if self.runs:
            runs = [_at(figures, path) for figures in self.runs]
            if definition and definition.key in self.headline:
                value = self.headline[definition.key]["value"]
                return value, runs if value is not None else [None] * len(runs)
            return (_at(self.figures, path) if definition and definition.pooled else mean_of_runs(runs)), runs
        value = _at(self.figures, path)
        repeats = _at(self.figures, f"{path}_repeats")
        return value, list(repeats) if isinstance(repeats, list) else [value]


def _differing(base: _Drive, new: _Drive) -> str:
    """How the inputs of the runs or tests differ: the drive is not all that changed. "" if they do not."""
    drives = {drive.label: RunCondition.of({"run": drive.run}) for drive in (base, new) if drive.run}
    return "; ".join(differences(drives)) if len(drives) == 2 else new.parameters


def _unusable(name: str, judged: dict[str, Any], allow_simulated: bool) -> str:
    """Why no figure of an entry, or of results of a test, decides a condition; "" if they do."""
    if judged["verdict"]["level"] == "invalid":
        reasons = [reason["text"] for reason in judged["verdict"]["reasons"] if reason["level"] == "invalid"]
        return f"{name} is invalid: {'; '.join(reasons) or 'its replay says so'}"
    if judged.get("simulated") and not allow_simulated:
        return f"{name} is simulated: to rehearse, add --allow-simulated"
    return ""


def _test_sections(document: dict[str, Any], allow_simulated: bool) -> list[tuple[str, list[_Drive]]]:
    invalid = _unusable("the comparison of tests", document, allow_simulated)
    several = document.get("labels")
    figures = document["figures"] if several else {document["label"] or "the test": document["figures"]}
    differing = "; ".join(reason["text"] for reason in document["verdict"]["reasons"]
                          if reason.get("code") == "parameters_differ" and not reason["text"].startswith("repeats "))
    return [(document["title"], [_Drive(label, own, [], {}, invalid, parameters=differing)
                                 for label, own in figures.items()])]


def _on_value(condition: Condition, title: str, metric: str, drive: _Drive) -> Outcome:
    value, runs = drive.values(metric)
    if drive.runs and _is_of_failures(metric):  # of all runs: a mean over runs would hide a single run
        runs = [_at(figures, _path(metric)) for figures in (*drive.runs, *drive.left_out)]
        value = sum(count or 0 for count in runs)
    subject = (condition.text, title, metric, None, drive.label)
    if (why := drive.without_value(metric, value)) or value is None:
        return Outcome(*subject, UNKNOWN, new_value=value, why=why)
    return Outcome(*subject, MET if condition.past(value) else NOT_MET, new_value=value, why=_few(len(runs)))


def _on_change(condition: Condition, title: str, metric: str, base: _Drive, new: _Drive) -> Outcome:
    (before, base_runs), (after, new_runs) = base.values(metric), new.values(metric)
    subject = (condition.text, title, metric, base.label, new.label)
    why = " and ".join(dict.fromkeys(filter(None, (base.without_value(metric, before),
                                                   new.without_value(metric, after), _differing(base, new)))))
    if why or before is None or after is None:
        return Outcome(*subject, UNKNOWN, before, after, why=why)
    if before < 0 or not before and after:
        why = f"{metric} of {base.label} is {'below ' if before else ''}zero: there is no change in percent"
        return Outcome(*subject, UNKNOWN, before, after, why=why)
    few = min(len(base_runs), len(new_runs))
    ratio = welch(new_runs, base_runs) if few >= ENOUGH_RUNS else None
    if not ratio:
        change = after / before - 1 if before else 0.0
        why = _few(few) or "a run is zero or lacks this figure: no interval, the value alone decided"
        return Outcome(*subject, MET if condition.past(change) else NOT_MET, before, after, change, why=why)
    # Of a pooled percentile the change of the runs' own, as its interval.
    change, low, high = ratio.value - 1, ratio.low - 1, ratio.high - 1
    status, why = _status(condition, change, low, high)
    return Outcome(*subject, status, before, after, change, low, high, why)


def _on_relative(condition: Condition, document: dict[str, Any], sections: list[tuple[str, list["_Drive"]]],
                 base: str | None, scores: Sequence[Score], left_out: Sequence[str]) -> list[Outcome]:
    """The performance of each drive over all workloads, relative to the base. base: its label; None if it is left out.
    left_out: labels of drives that are at a workload."""
    of_runs = document.get("sections", ())
    if len(of_runs) + len(scores) < FEWEST_WORKLOADS:
        paces = sections[0][1][0].paces
        raise UsageError(f"--fail-if {condition.text!r}: {RELATIVE_PERFORMANCE} needs {FEWEST_WORKLOADS} workloads",
                         f"metrics of one workload: {usable_keys(paces)}" if paces else
                         "compare the benchmarks together with runs")
    metric = _in_unit(condition, RELATIVE_PERFORMANCE)
    compared = overview(of_runs, base, scores) if base else None
    drives = [drive for _, drives in sections for drive in drives]
    labels = [label for label in dict.fromkeys([*(drive.label for drive in drives), *left_out]) if label != base]
    title = f"{len(of_runs) + len(scores)} workloads"
    if not labels:
        why = "there is nothing to compare with the base: name runs of two drives, or with two labels"
        return [Outcome(condition.text, title, metric, None, drives[0].label, UNKNOWN, why=why)]
    outcomes = []
    for label in labels:
        subject = (condition.text, title, metric, base, label)
        why = "; ".join(dict.fromkeys([
            *([] if base else [f"there is no base to compare with{_LEFT_OUT}"]),
            *(f"{name} has no run of a workload{_LEFT_OUT}" for name in (base, label) if name in left_out),
            *(drive.invalid for drive in drives if drive.label in (base, label) and drive.invalid)]))
        relative = compared.overall.get(label) if compared else None
        if why or base is None or compared is None or relative is None:
            outcomes.append(Outcome(*subject, UNKNOWN, why=why or f"{base} and {label} have no result on "
                                    f"{FEWEST_WORKLOADS} workloads, or {label} misses one that {base} has"))
            continue
        few = min(len(workload.score.runs[name]) for workload in compared.workloads for name in (base, label))
        value, change, low, high = relative.value, relative.value - 1, None, None
        if condition.kind == "change" and few >= ENOUGH_RUNS and relative.low and relative.high:
            low, high = relative.low - 1, relative.high - 1
            status, why = _status(condition, change, low, high)
        else:
            past = condition.past(change if condition.kind == "change" else value)
            status, why = MET if past else NOT_MET, _few(few)
        outcomes.append(Outcome(*subject, status, None, value, change, low, high, why))
    return outcomes


def _status(condition: Condition, change: float, low: float, high: float) -> tuple[str, str]:
    """(status, why) of a change with its interval."""
    if not condition.past(change):
        return NOT_MET, ""
    if condition.wants_worse and low <= 0 <= high:
        return NOISE, "past the limit, and within what chance does: more runs can tell"
    return MET, ""


def _is_of_failures(metric: str) -> bool:
    """Whether a metric counts what makes a run invalid: such a condition is decided before the verdict."""
    return metric.rpartition(".")[2].endswith(_FAILURES)


def _few(count: int) -> str:
    return "" if count >= ENOUGH_RUNS else f"n={count}: fewer than {ENOUGH_RUNS} runs, the value alone decided"


def _missing(drive: _Drive, metric: str) -> str:
    definition = find(metric)
    *above, name = _path(metric).split(".")
    near = _at(drive.figures, ".".join(above)) if above else drive.figures
    if isinstance(near, dict) and name.removesuffix("_ns") in near.get("too_small", ()):
        return f"{metric} of {drive.label} is not known: n too small (n={near['n']:,})"
    why = definition.missing if definition and not definition.op else "nothing of this kind was measured"
    return f"{metric} of {drive.label} is not known: {why}"


def _path(metric: str) -> str:
    definition = find(metric)
    return definition.path if definition else metric


def _at(figures: Any, key: str) -> Any:
    for part in key.split("."):
        if not isinstance(figures, dict) or part not in figures:
            return None
        figures = figures[part]
    return figures


def _resolved(condition: Condition, drives: list[_Drive]) -> str:
    """The key of the metric that a condition means; of results of a test, and of other figures, a dotted path or its
    end, of those that lie least deep."""
    name, runs = condition.metric, bool(drives[0].runs)
    if runs and (metric := find(name)):
        _check_pace(condition, metric, drives[0].paces)
        return _in_unit(condition, metric.key)
    numeric_paths = list(dict.fromkeys(path for drive in drives for path in paths(drive.figures)
                                       if isinstance(_at(drive.figures, path), int | float | None)))
    ends = [f"{name}{unit}" for unit in ("", *_UNITS)]
    matches = [path for path in numeric_paths if _joined(path) in ends] or [
        path for path in numeric_paths if any(_joined(path).endswith(f".{end}") for end in ends)]
    # The slowdown of a test, not that of each of its bursts, which lies deeper.
    matches = [path for path in matches if path.count(".") == min(match.count(".") for match in matches)]
    if len(matches) == 1:
        if runs and (metric := find(matches[0])):
            _check_pace(condition, metric, drives[0].paces)
            return _in_unit(condition, metric.key)
        return _in_unit(condition, matches[0])
    if matches:
        raise UsageError(f"--fail-if {condition.text!r}: {name!r} may be {', '.join(matches[:6])}",
                         "write one of them in full")
    names = [*(METRICS if runs else ()), RELATIVE_PERFORMANCE, *numeric_paths]
    raise UsageError(f"--fail-if {condition.text!r}: there is no figure {name!r}",
                     did_you_mean(name, names, "list all figures: blkreel compare … --json"))


def _check_pace(condition: Condition, metric: Metric, paces: tuple[str, ...]) -> None:
    if refused := f"{metric.key} is not a number" if metric.unit is TEXT else why_refused(metric, paces):
        raise UsageError(f"--fail-if {condition.text!r}: {refused}", f"metrics at this pace: {usable_keys(paces)}")


def _in_unit(condition: Condition, metric: str) -> str:
    unit = _unit(metric)
    if _is_share(metric) and condition.kind == "change" and not re.search("[<>=] *[+\\-−]", condition.text):
        raise UsageError(f"--fail-if {condition.text!r}: {metric} is a share, so the limit may be one or a change",
                         f"write {condition.limit:g} for the share, {condition.limit * 100:+g}% for its change")
    if condition.kind not in ("change", unit):
        like = {"_ns": "2ms", "_mb_s": "500MB/s", "_bytes": "8GiB", "": "1.5"}[unit]
        problem = f"{metric} is not in that unit" if condition.kind else f"the limit of {metric} needs a unit"
        raise UsageError(f"--fail-if {condition.text!r}: {problem}",
                         f"write the limit like {like}, or +10%")
    return metric


def _unit(metric: str) -> str:
    definition = find(metric)
    if definition:
        return definition.unit.suffix if definition.unit.suffix in _UNITS else ""
    return next((unit for unit in _UNITS if f"_{metric.split('.')[-1]}".endswith(unit)), "")


def _is_share(metric: str) -> bool:
    definition = find(metric)
    return metric == RELATIVE_PERFORMANCE or definition is not None and definition.unit is SHARE


def _percent(share: float) -> str:
    return units.format_change(share) if round(share * 100, 1) else "0.0 %"


def _value(metric: str, value: float | None) -> str:
    if value is None:
        return units.MISSING
    unit = SHARE if _is_share(metric) else _UNITS.get(_unit(metric), NUMBER)
    return unit.text(value)
