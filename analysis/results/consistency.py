"""consistency: how evenly a drive goes on once it has no spare blocks left."""

from dataclasses import dataclass

import numpy as np

from ..metrics import SECOND_NS
from ..summary import consistency as evenness
from .directory import Runs, Test, arrays
from .fine_bins import FineBins
from .parts import Content, geometric_mean, series, table
from .sensors import Sensors, sensors_of
from .stalls import Stalls, find
from .steadiness import Steady, steady
from .tally import COLUMNS, Tally, energy_note

ROLE = "consistency"
LAST_S, WHOLE_S = 400, 3600
SHOWN = ("mean_iops", "score", "downside_score", "first_percentile_over_median", "share_under_half_median")


@dataclass(frozen=True)
class Measured:
    """seconds: completions in each whole second since the first submit."""

    sums: Tally
    seconds: np.ndarray
    stalls: Stalls | None
    steady: Steady | None
    round_ns: int
    rounds: int

    @property
    def last_s(self) -> int:
        """How many seconds are the last part: 400, of a run shorter than an hour the same share of it."""
        return min(len(self.seconds), LAST_S, max(2, round(len(self.seconds) * LAST_S / WHOLE_S)))

    @property
    def sensors(self) -> Sensors:
        return self.sums.sensors


def _measure(step, trace):
    sums, bins = Tally(sensors_of(step.directory)), None
    per_second = np.zeros(0, np.int64)
    for columns in arrays(trace, COLUMNS):
        data = columns["op"] < 2
        complete_ns = sums.feed({name: column[data] for name, column in columns.items()})
        if not len(complete_ns):
            continue
        bins = bins or FineBins(sums.begin_ns)
        bins.add(complete_ns)
        counts = np.bincount((complete_ns - sums.begin_ns) // SECOND_NS)
        longer, shorter = sorted((per_second, counts), key=len, reverse=True)
        longer[:len(shorter)] += shorter
        per_second = longer
    whole = sums.makespan_ns // SECOND_NS
    seconds = np.pad(per_second, (0, max(0, whole - len(per_second))))[:whole]
    if bins is None:
        return Measured(sums, seconds, None, None, 0, 0)
    stalls = find(bins)
    return Measured(sums, seconds, stalls, *steady(bins, sums.makespan_ns, stalls and stalls.period_ns))


def content(test: Test, runs: Runs) -> Content:
    """Labels: state, repeat."""
    found = runs.measured(ROLE, _measure)
    shown = Content(method=[*METHOD, energy_note([each.sums for _, each in found])])
    rows, states = [], {}
    for step, each in found:
        rows.append(_row(step, each))
        states.setdefault(str(step.labels.get("state", "")), []).append(rows[-1])
    shown.figures = {"states": {state: _of_state(own) for state, own in states.items()}}
    shown.tables = [table("The last part", _LAST, rows), table("The whole run", _WHOLE, rows)]
    short = [each for _, each in found if len(each.seconds) and each.last_s < LAST_S]
    if short:
        each = short[0]
        shown.method.append(("Shorter than an hour", f"A run of {len(each.seconds)} s: its last part is the last "
                             f"{each.last_s} s, which is the share that 400 s are of an hour."))
    for step, each in found:
        if each.steady is None:
            shown.reasons.append({"level": "qualified", "text": f"not steady: {step.title}" + (
                "" if each.rounds >= 5 else ", too short to tell"), "steps": [step.id]})
    several = len({step.repeat for step, _ in found}) > 1
    names = [f"{step.labels.get('state', '') or step.title}{f', repeat {step.repeat}' if several else ''}"
             for step, _ in found]
    shown.series = list(_series(names, found))
    return shown


def _row(step, each: Measured):
    last = evenness(each.seconds[len(each.seconds) - each.last_s:])
    power = each.sums.power_figures()
    why = dict(power.get("why", {}))
    if each.stalls is None:
        why |= dict.fromkeys(("stall_period_ns", "stall_ns"), "none found")
    if last["score"] is None:
        why["score"] = "no second differs from another"
    if last["downside_score"] is None:
        why["downside_score"] = "no second under the median"
    if each.steady is None:
        why |= dict.fromkeys(("steady_iops", "steady_at_ns"), "not steady")
    warm = each.sensors.temperature[1]
    return {"state": step.labels.get("state"), "repeat": step.repeat, "last_s": each.last_s,
            **{key: last[key] for key in SHOWN},
            "whole_iops": each.sums.iops, "whole_mb_s": each.sums.mb_s,
            "stall_period_ns": each.stalls and each.stalls.period_ns, "stall_ns": each.stalls and each.stalls.length_ns,
            "stalls": each.stalls and each.stalls.count, "stall_complete": each.stalls and each.stalls.complete,
            "steady_iops": each.steady and each.steady.iops, "steady_at_ns": each.steady and each.steady.at_ns,
            "round_ns": each.round_ns, "max_ns": each.sums.data.longest_ns,
            "max_temperature_c": float(warm.max()) if len(warm) else None,
            "average_w": power["average_w"], "mb_per_j": power["mb_per_j"], "why": why}


def _of_state(rows):
    """The figures of one state: of its only run, or of several the geometric means, and each run."""
    first = {key: value for key, value in rows[0].items() if key not in ("state", "repeat")}
    if len(rows) == 1:
        return {**first, "n": 1}
    means = {key: geometric_mean([row[key] for row in rows])
             for key in ("mean_iops", "score", "downside_score", "whole_iops", "whole_mb_s", "steady_iops")}
    return {**means, "n": len(rows), "runs": [{key: value for key, value in row.items() if key not in ("state", "why")}
                                              for row in rows]}


def _series(names, found):
    """Each run's IOPS and temperature, whole and over its last part."""
    for name, (step, each) in zip(names, found, strict=True):
        state, begin = str(step.labels.get("state", "")), len(each.seconds) - each.last_s
        of = {"state": state, "repeat": step.repeat}
        for part, from_s in (("whole", 0), ("last", begin)):
            words = "" if part == "whole" else f" over the last {each.last_s} s"
            seconds = list(range(from_s, len(each.seconds)))
            if seconds:
                yield series(f"IOPS{words}, {name}", ("time", "s"), ("IOPS", "1/s"),
                             [(name, seconds, each.seconds[from_s:].tolist())], what="iops", part=part, **of)
            time_ns, degrees = each.sensors.temperature
            if not len(time_ns) or each.sums.begin_ns is None:
                continue
            at_s = (time_ns - each.sums.begin_ns) / SECOND_NS
            inside = (at_s >= from_s) & (at_s <= each.sums.makespan_ns / SECOND_NS)
            if inside.any():
                yield series(f"Temperature{words}, {name}", ("time", "s"), ("Temperature", "°C"),
                             [(name, at_s[inside].tolist(), degrees[inside].tolist())], what="temperature", part=part,
                             **of)


_LAST = [("state", "State", ""), ("repeat", "Repeat", ""), ("last_s", "Last", "s"), ("mean_iops", "IOPS, mean", "1/s"),
         ("score", "Consistency", ""), ("downside_score", "Dips only", ""),
         ("first_percentile_over_median", "Slowest 1 % of seconds / median", ""),
         ("share_under_half_median", "Share under half the median", "")]
_WHOLE = [("state", "State", ""), ("repeat", "Repeat", ""), ("whole_iops", "IOPS, mean", "1/s"),
          ("steady_iops", "IOPS, steady", "1/s"), ("steady_at_ns", "Steady after", "ns"),
          ("stall_period_ns", "Stalls every", "ns"), ("stall_ns", "Stall", "ns"), ("max_ns", "Latency, maximum", "ns"),
          ("max_temperature_c", "Hottest", "°C"), ("average_w", "Power", "W"), ("mb_per_j", "Efficiency", "MB/J")]

METHOD = [
    ("IOPS over time", "Completions in bins of 1 s since the first submit; empty bins are zeros, and a last, cut-off "
     "second is left out."),
    ("Consistency", "Of the last 400 s: mean / population standard deviation of the bins. It punishes seconds that "
     "were too good as well, so also: dips only = median / √(mean(min(0, x − median)²)), the slowest 1 % of seconds "
     "/ median, and the share of seconds under half the median. The median is by nearest rank."),
    ("Stalls", "Pauses between two completions, longer than 2 ms and than 5 times the mean time between completions, "
     "that come at even intervals: at least four of them, whose intervals vary by 8 % at most (seven 4 %, six 3 %, "
     "five 2 %, four 1 %); of eight and more one in five may be odd and one in five missing (D). Where pauses have "
     "no period, dips are looked at in the same way: times under half of the rate that a quarter of the same tenth "
     "of the run exceeds. Period and length are the mean interval and the median pause, less the usual time between "
     "two completions; bins of 1 ms, in which the first and last completion are kept to the nanosecond."),
    ("Steady state", "Rounds of a sixtieth of the run, of whole periods where the drive stalls periodically (D). "
     "Steady from the first five rounds on with max − min ≤ 0.20 mean and 4 |least-squares slope per round| ≤ 0.10 "
     "mean, whose mean is within 10 % of that of all rounds from there on and within 20 % of the last five's (D): a "
     "fast beginning is even as well, and does not stay. Otherwise “not steady”."),
]
