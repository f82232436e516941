"""mixed-random and mixed-sequential: throughput and efficiency by the share of reads, on a full and an empty drive."""

from ..energy import SECOND_NS, mb_per_joule
from .directory import Runs, Test
from .parts import Content, geometric_mean, over_repeats, ratio, series, table, with_spread
from .tally import POWER_COLUMNS, Tally, energy_note, tally

ROLE = "mix"
FULL, EMPTY = "full", "data"


def content(test: Test, runs: Runs) -> Content:
    """Labels: state, mix (reads in percent), repeat."""
    groups = {}
    for step, sums in runs.measured(ROLE, tally, number="mix"):
        groups.setdefault(str(step.labels.get("state", "")), {}).setdefault(
            step.labels["mix"], {})[step.repeat] = sums
    wanted = sorted({mix for step in test.steps if step.role == ROLE
                     and isinstance(mix := step.labels.get("mix"), int)}, reverse=True)
    shown = Content(method=[*METHOD, energy_note([sums for mixes in groups.values() for repeats in mixes.values()
                                                  for sums in repeats.values()])])
    figures = {}
    for state, mixes in groups.items():
        rows = [_row(mix, list(mixes[mix].values())) for mix in wanted if mix in mixes]
        figures[state] = {"mixes": {str(row["mix"]): {key: value for key, value in row.items() if key != "mix"}
                                    for row in rows}, "mean": _mean(mixes, wanted)}
        mean = figures[state]["mean"]
        rows.append({"mix": f"mean of {len(wanted)}", **mean})
        shown.tables.append(table(f"State {state}" if state else "Mixes", _COLUMNS, rows))
    shown.figures = {"states": figures, "full_over_empty": _full_over_empty(figures)}
    for full, pairs in shown.figures["full_over_empty"].items():
        rows = [{"mix": int(mix), "ratio": value} for mix, value in pairs["mixes"].items()]
        rows.append({"mix": f"of the means of {len(wanted)}", "ratio": pairs["mean"]})
        shown.tables.append(table(f"Throughput, {full} / {pairs['empty']}",
                                  [("mix", "Reads", "%"), ("ratio", "Ratio", "")], rows))
    for key, title, unit in (("mb_s", "Throughput", "MB/s"), ("average_w", "Power", "W"),
                             ("mb_per_j", "Efficiency", "MB/J")):
        lines = []
        for state, of_state in figures.items():
            points = sorted((int(mix), row[key]) for mix, row in of_state["mixes"].items() if row[key] is not None)
            if points:
                lines.append((state or title, [x for x, _ in points], [y for _, y in points]))
        if lines:
            shown.series.append(series(f"{title} by share of reads", ("reads", "%"), (title, unit), lines))
    return shown


def _row(mix, repeats: list[Tally]):
    powers = [sums.power_figures() for sums in repeats]
    return {"mix": mix, **over_repeats("mb_s", [sums.mb_s for sums in repeats]),
            **over_repeats("iops", [sums.iops for sums in repeats]),
            "bytes": sum(sums.data.bytes for sums in repeats), "time_ns": sum(sums.makespan_ns for sums in repeats),
            "read_mean_ns": _pooled_mean([sums.reads for sums in repeats]),
            "write_mean_ns": _pooled_mean([sums.writes for sums in repeats]),
            **over_repeats("average_w", [power["average_w"] for power in powers]),
            **over_repeats("mb_per_j", [power["mb_per_j"] for power in powers]),
            "n": len(repeats), "why": next((power["why"] for power in powers if "why" in power), {})}


def _pooled_mean(sums):
    return ratio(sum(each.service_ns for each in sums), sum(each.ops for each in sums))


def _mean(mixes, wanted):
    """The mean over all mixes: of each repeat, then the geometric mean over repeats. None where one is missing."""
    per_repeat = []
    for repeat in sorted({repeat for repeats in mixes.values() for repeat in repeats}):
        found = [mixes[mix][repeat] for mix in wanted if repeat in mixes.get(mix, {})]
        if len(found) == len(wanted):
            per_repeat.append(found)
    if not per_repeat:
        gone = [f"{mix} %" for mix in wanted if mix not in mixes]
        why = f"missing: {', '.join(gone)}" if gone else "no repeat has all mixes"
        return {"mb_s": None, "average_w": None, "mb_per_j": None, "n": 0,
                "why": dict.fromkeys(("mb_s", "average_w", "mb_per_j"), why)}
    rates = [[sums.mb_s for sums in found] for found in per_repeat]
    powers = [_power_of_all(found) for found in per_repeat]
    return {**over_repeats("mb_s", [None if None in each else sum(each) / len(each) for each in rates]),
            **over_repeats("average_w", [power[0] for power in powers]),
            **over_repeats("mb_per_j", [power[1] for power in powers]), "n": len(per_repeat),
            **({} if all(None not in power for power in powers) else
               {"why": dict.fromkeys(("average_w", "mb_per_j"), "power not measured for each mix")})}


def _power_of_all(found):
    """(W over the active time of all mixes, MB/J = bytes of all / joules of all)."""
    used = [sums.energy() for sums in found]
    if None in used:
        return None, None
    joules, covered_ns = sum(each.joules for each in used), sum(each.covered_ns for each in used)
    return (ratio(joules * SECOND_NS, covered_ns), mb_per_joule(sum(sums.covered_bytes for sums in found), joules))


def _full_over_empty(figures):
    """State full over state data, each with the same over-provisioning: {full: {"empty", "mixes", "mean"}}."""
    found = {}
    for full in figures:
        if not full.startswith(FULL):
            continue
        empty = EMPTY + full.removeprefix(FULL)
        if empty not in figures:
            continue
        ours, theirs = figures[full]["mixes"], figures[empty]["mixes"]
        found[full] = {
            "empty": empty,
            "mixes": {mix: ratio(ours[mix]["mb_s"], theirs[mix]["mb_s"]) for mix in ours if mix in theirs},
            "mean": ratio(figures[full]["mean"]["mb_s"], figures[empty]["mean"]["mb_s"]),
            "geometric_mean": geometric_mean([ratio(ours[mix]["mb_s"], theirs[mix]["mb_s"])
                                              for mix in ours if mix in theirs]),
        }
    return found


_COLUMNS = [("mix", "Reads", "%"), *with_spread([("mb_s", "Throughput", "MB/s"), ("iops", "IOPS", "1/s")]),
            ("read_mean_ns", "Read latency, mean", "ns"), ("write_mean_ns", "Write latency, mean", "ns"),
            *with_spread(POWER_COLUMNS), ("n", "n", "")]

METHOD = [
    ("Throughput of a mix", "bytes read and written / makespan of the step, max(complete) − min(submit): the stream "
     "keeps its depth outstanding from the first to the last, so this is its active time. The rest after it, as long "
     "as the step took, is no part of it."),
    ("Mean of the mixes", "Arithmetic mean of the throughputs of all mixes of a repeat (D), of equal weight however "
     "long each took; given only where every mix of the test was measured. Its W is by the active time of all mixes, "
     "its MB/J the bytes of all by the joules of all."),
    ("Full / empty", "Throughput in the state `full` divided by that where only the test data was on the drive, by "
     "mix; and of the means."),
    ("Repeats", "Geometric means over the repeats; the smallest and the largest stand beside them."),
]
