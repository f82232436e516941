"""qd1: one I/O at a time, where nothing hides a drive's latency; and by block size."""

from dataclasses import dataclass, field

from .. import numbers
from ..percentiles import ValueCounts, enough
from .depths import ROLE as SWEEP
from .depths import sweep, sweep_series, sweep_tables
from .directory import Runs, Test, arrays
from .parts import Content, by_state, in_state, over_repeats, series, table, with_spread
from .sensors import sensors_of
from .tally import COLUMNS, POWER_COLUMNS, Tally, energy_note, tally

ROLES = ("qd1", "blocks")
SHOWN = {"p99_ns": (99, 100), "p99_99_ns": (9999, 10_000)}


@dataclass
class Measured:
    """One step: its sums, and how its latencies are distributed."""

    sums: Tally
    latency: ValueCounts = field(default_factory=ValueCounts)


def _measure(step, trace):
    found = Measured(Tally(sensors_of(step.directory)))
    for columns in arrays(trace, COLUMNS):
        found.sums.feed(columns)
        seen = (columns["latency_ns"] >= 0) & (columns["op"] < 2)
        found.latency.add(columns["latency_ns"][seen])
    return found


def content(test: Test, runs: Runs) -> Content:
    """Roles qd1 and blocks, labels state, access, op, block, repeat; and role depth, label depth, where there is a
    sweep as well."""
    found = {role: by_state(runs.measured(role, _measure)) for role in ROLES}
    sweeps = by_state(runs.measured(SWEEP, tally, number="depth"))
    shown = Content(figures={"states": {}})
    for state in dict.fromkeys(state for own in (*found.values(), sweeps) for state in own):
        figures = shown.figures["states"][state] = {}
        for role, title in zip(ROLES, ("One outstanding", "By block size"), strict=True):
            rows = _rows(found[role].get(state, []))
            figures[role] = {row["io"].replace(" ", "-"): row for row in rows}
            if rows:
                shown.tables.append(table(in_state(title, state), _COLUMNS, rows))
        shown.series += _curves(state, figures["blocks"].values())
        if state in sweeps:
            rows, of_sweep = sweep(test, state, sweeps[state])
            figures["sweep"] = of_sweep
            shown.tables += sweep_tables(state, rows, of_sweep)
            shown.series += sweep_series(state, rows)
    shown.method = [*METHOD, energy_note([each.sums for states in found.values() for own in states.values()
                                          for _, each in own])]
    return shown


def _rows(found):
    groups = {}
    for step, each in found:
        key = (str(step.labels.get("access", "")), str(step.labels.get("op", "")), _block(step))
        groups.setdefault(key, []).append(each)
    return [_row(*key, groups[key]) for key in sorted(groups, key=lambda key: (*key[:2], key[2] or 0))]


def _block(step):
    block = step.labels.get("block")
    return block if isinstance(block, int) else None


def _row(access, op, block, repeats: list[Measured]):
    latency = repeats[0].latency
    for found in repeats[1:]:
        latency = latency + found.latency
    powers = [found.sums.power_figures() for found in repeats]
    why = dict(next((power["why"] for power in powers if "why" in power), {}))
    count, percentiles = latency.count, {}
    for key, fraction in SHOWN.items():
        percentiles[key] = latency.percentile(fraction) if enough(count, fraction) else None
        if percentiles[key] is None:
            why[key] = f"n too small (n={count:,})"
    iops = [found.sums.iops for found in repeats]
    named = [access, op, numbers.binary_size(block) if block else ""]
    return {"io": " ".join(filter(None, named)), "access": access, "op": op, "block": block,
            **over_repeats("kiops", [None if rate is None else rate / 1000 for rate in iops]),
            **over_repeats("mb_s", [found.sums.mb_s for found in repeats]),
            "mean_ns": latency.total / count if count else None, **percentiles, "max_ns": latency.maximum,
            **over_repeats("average_w", [power["average_w"] for power in powers]),
            **over_repeats("kiops_per_w", [power["kiops_per_w"] for power in powers]),
            **over_repeats("mb_per_j", [power["mb_per_j"] for power in powers]),
            "ops": count, "n": len(repeats), "why": why}


def _curves(state, rows):
    for key, name, unit in (("mb_s", "Throughput", "MB/s"), ("kiops", "kIOPS", "1000/s"),
                            ("mean_ns", "Latency, mean", "ns")):
        lines = {}
        for row in rows:
            if row["block"] is not None and row[key] is not None:
                name_of = " ".join(filter(None, (row["access"], row["op"])))
                lines.setdefault(name_of, []).append((row["block"], row[key]))
        if lines:
            yield series(in_state(f"{name} by block size", state), ("block size", "bytes"), (name, unit),
                         [(line, [x for x, _ in points], [y for _, y in points]) for line, points in lines.items()])


_COLUMNS = [("io", "I/O", ""), *with_spread([("kiops", "kIOPS", "1000/s"), ("mb_s", "Throughput", "MB/s")]),
            ("mean_ns", "Latency, mean", "ns"), ("p99_ns", "p99", "ns"), ("p99_99_ns", "p99.99", "ns"),
            ("max_ns", "maximum", "ns"),
            *with_spread([POWER_COLUMNS[0], ("kiops_per_w", "kIOPS/W", "1000/s/W"), POWER_COLUMNS[1]]),
            ("ops", "I/Os", ""), ("n", "n", "")]

METHOD = [
    ("Rates", "I/Os and bytes / makespan of the step, max(complete) − min(submit)."),
    ("Percentiles", "Nearest rank of complete − submit, nothing interpolated; shown only where at least 10 I/Os lie "
     f"beyond (n (1 − p) ≥ 10): p99 from {numbers.digits(1000)} I/Os on, p99.99 from {100_000:,}. Repeats are pooled "
     "I/O by I/O."),
    ("kIOPS/W", "thousands of I/Os a second by the average power, which is thousands of I/Os by joule."),
    ("Lowest depth with 95 %", "The lowest depth of the sweep whose throughput is at least 95 % of that of the best "
     "depth; given only where every depth of the test was measured."),
    ("Repeats", "Rates are geometric means over the repeats; the smallest and the largest stand beside them."),
]
