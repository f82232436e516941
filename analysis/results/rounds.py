"""steady-write: rounds of one workload until its rate is steady, and what that rate is."""

from blkreel.traces.steady import ROUNDS, is_steady

from .directory import Runs, Test
from .parts import Content, geometric_mean, series, table
from .tally import POWER_COLUMNS, energy_note, tally

ROLE = "round"


def content(test: Test, runs: Runs) -> Content:
    """Labels: round, and those of its other loops."""
    found = runs.measured(ROLE, tally, number=ROLE)
    groups = {}
    for step, sums in found:
        groups.setdefault(_group(step), []).append((step, sums))
    shown = Content(method=[*METHOD, energy_note([sums for _, sums in found])])
    summaries = []
    for name, own in groups.items():
        rates = [sums.mb_s for _, sums in own]
        steady = None not in rates and is_steady(rates)
        last = own[-ROUNDS:]
        summaries.append({
            "of": name, "rounds": len(own), "steady": steady,
            "steady_mb_s": geometric_mean([sums.mb_s for _, sums in last]) if steady else None,
            "steady_iops": geometric_mean([sums.iops for _, sums in last]) if steady else None,
            "first_mb_s": rates[0], "last_over_first": rates[-1] / rates[0] if rates[0] else None,
            "why": {} if steady else dict.fromkeys(("steady_mb_s", "steady_iops"), "not steady")})
        if not steady:
            shown.reasons.append({"level": "qualified", "text": f"not steady after {len(own)} rounds{_of(name)}",
                                  "steps": [step.id for step, _ in own]})
    shown.figures = {"of": {one["of"]: {key: value for key, value in one.items() if key not in ("of", "why")}
                            for one in summaries}}
    shown.tables = [table("Steady state", _SUMMARY, summaries), table("Round by round", _ROUND, [_row(*one)
                                                                                              for one in found])]
    shown.series = [series("Throughput by round", ("round", ""), ("Throughput", "MB/s"),
                           [(name or "rounds", [step.labels[ROLE] for step, _ in own], [sums.mb_s for _, sums in own])
                            for name, own in groups.items()], what="rounds")] if found else []
    return shown


def _group(step) -> str:
    return ", ".join(f"{key} {value}" for key, value in step.labels.items() if key != ROLE)


def _of(name) -> str:
    return f" ({name})" if name else ""


def _row(step, sums) -> dict:
    power = sums.power_figures()
    return {"of": _group(step), "round": step.labels[ROLE], "mb_s": sums.mb_s, "iops": sums.iops,
            "mean_ns": sums.data.mean_ns, "max_ns": sums.data.longest_ns, "average_w": power["average_w"],
            "mb_per_j": power["mb_per_j"], "why": power.get("why", {})}


_SUMMARY = [("of", "Of", ""), ("steady", "Steady", ""), ("rounds", "Rounds", ""),
            ("steady_mb_s", "Throughput, last five", "MB/s"), ("steady_iops", "IOPS, last five", "1/s"),
            ("first_mb_s", "First round", "MB/s"), ("last_over_first", "Last / first", "")]
_ROUND = [("of", "Of", ""), ("round", "Round", ""), ("mb_s", "Throughput", "MB/s"), ("iops", "IOPS", "1/s"),
          ("mean_ns", "Latency, mean", "ns"), ("max_ns", "Latency, maximum", "ns"), *POWER_COLUMNS]

METHOD = [
    ("Rounds", "Each round is a run. They end when the last five are steady, or at the number that the test allows."),
    ("Steady", "Of the throughput y of the last five rounds: max − min ≤ 0.20 of their mean, and 4 × the least-squares "
     "slope by round ≤ 0.10 of it. Otherwise “not steady”, and no figure stands for a steady state."),
    ("Throughput of a round", "bytes / makespan, max(complete) − min(submit). Of the last five the geometric mean."),
]
