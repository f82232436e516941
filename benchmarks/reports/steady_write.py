"""steady-write: rounds of random writes until steady state, and the steady rate."""

from collections.abc import Iterator

from blkreel.analysis.charts.curves import curves
from blkreel.analysis.charts.model import Chart, Column, Row, Section, Table
from blkreel.analysis.charts.spec import Axis, Point
from blkreel.analysis.stats.intervals import geometric_mean
from blkreel.benchmarks import metric
from blkreel.benchmarks.charts.chart_context import MB_S, ChartContext, ranking, section
from blkreel.benchmarks.results.directory import Runs, Test
from blkreel.benchmarks.results.document import (
    Content,
    Figures,
    by_state,
    figure_series,
    figure_table,
    over_repeats,
    without,
)
from blkreel.benchmarks.step import BenchmarkStep
from blkreel.benchmarks.step_metrics.step_stats import energy_note, step_stats
from blkreel.common.binning import grouped
from blkreel.common.verdict import step_reason
from blkreel.replay.prepare.steady_state import ROUNDS, is_steady

from .report import Report

ROLE = "round"


def report(test: Test, runs: Runs) -> Content:
    """Labels: round, and those of its other loops."""
    measured = runs.measured(ROLE, step_stats, number=ROLE)
    groups = grouped((_group(step), (step, stats)) for step, stats in measured)
    content = Content(method=[*METHOD, energy_note([stats for _, stats in measured])])
    summaries: list[Figures] = []
    for name, own in groups.items():
        rates = [stats.mb_s or 0.0 for _, stats in own]
        steady = all(rates) and is_steady(rates)
        last = own[-ROUNDS:]
        summaries.append({
            "of": name, "rounds": len(own), "steady": steady,
            "steady_mb_s": geometric_mean([stats.mb_s for _, stats in last]) if steady else None,
            "steady_iops": geometric_mean([stats.iops for _, stats in last]) if steady else None,
            "first_mb_s": own[0][1].mb_s, "last_over_first": rates[-1] / rates[0] if rates[0] else None,
            "why": {} if steady else dict.fromkeys(("steady_mb_s", "steady_iops"), "not steady")})
        if not steady:
            content.reasons.append(step_reason(
                "not_steady", "qualified", f"not steady after {len(own)} rounds{f' ({name})' if name else ''}",
                [step.id for step, _ in own]))
    first = next(iter(by_state(measured, ROLE).values()), [])
    repeats = {_group(step) for step, _ in first}
    content.figures = {
        "of": {summary["of"]: without(summary, "of", "why") for summary in summaries},
        **over_repeats("steady_mb_s", [summary["steady_mb_s"] for summary in summaries if summary["of"] in repeats])}
    content.tables = [figure_table("Steady state", [_OF, *METRICS], summaries), figure_table(
        "Round by round", _ROUND, [{"of": _group(step), "round": step.labels[ROLE], "mean_ns": stats.data.mean_ns,
                                    "max_ns": stats.data.max_ns, **stats.metrics()} for step, stats in measured])]
    content.series = [figure_series("Throughput by round", ("round", ""), ("Throughput", "MB/s"),
                           [(name or "rounds", [step.labels[ROLE] for step, _ in own], [stats.mb_s for _, stats in own])
                            for name, own in groups.items()], what="rounds")] if measured else []
    return content


def _group(step: BenchmarkStep) -> str:
    return ", ".join(f"{key} {value}" for key, value in step.labels.items() if key != ROLE)


_OF = metric.text("of", "Of")
_LAST_FIVE = "geometric mean of the last five rounds"
METRICS = [
    metric.text("steady", "Steady", "of the last five rounds: max − min ≤ 0.20 mean, 4 |slope per round| ≤ 0.10 mean"),
    metric.count("rounds", "Rounds", better="lower"), metric.rate("steady_mb_s", "Throughput, last five", _LAST_FIVE),
    metric.number("steady_iops", "IOPS, last five", "1/s", _LAST_FIVE, "higher"),
    metric.rate("first_mb_s", "First round", "bytes / time"),
    metric.share("last_over_first", "Last / first", "throughput of the last round / the first")]
_ROUND = [_OF, metric.count("round", "Round"), metric.THROUGHPUT, metric.IOPS, metric.MEAN_LATENCY,
          metric.MAX_LATENCY, *metric.POWER]

METHOD = [
    ("Rounds", "Each round is a run. They end when the last five are steady, or at the number that the test allows."),
    ("Steady", "Of the throughput y of the last five rounds: max − min ≤ 0.20 of their mean, and 4 × the least-squares "
     "slope by round ≤ 0.10 of it. Otherwise “not steady”, and no figure stands for a steady state."),
    ("Throughput of a round", "bytes / makespan, max(complete) − min(submit). Of the last five the geometric mean."),
]


def sections(context: ChartContext) -> Iterator[Section]:
    of = list(dict.fromkeys(name for drive in context.drives for name in drive.keys("of")))
    yield section("rounds", "Rounds", (_steady(context, of), *_rounds(context, of)))


def _steady(context: ChartContext, of: list[str]) -> Chart | None:
    table = context.table("Steady state", METRICS, ("of", "{of}"), of)
    parts = [(f"{words}{f', {name}' if len(of) > 1 else ''}", ("of", name, key)) for name in of
             for key, words in (("steady_mb_s", "steady"), ("first_mb_s", "first round"))]
    unsteady = [row.values["drive"] for row in table.rows if row.values.get("steady") is False]
    return ranking(context, "steady", "Steady write throughput", MB_S, parts, table, METRICS[2],
                   notes=(f"Not steady: {', '.join(dict.fromkeys(unsteady))}.",) if unsteady else ())


def _rounds(context: ChartContext, of: list[str]) -> Iterator[Chart]:
    for group in [[name] for name in of] if context.several else [of]:
        points = []
        for drive in context.drives:
            for series in drive.series("rounds"):
                for line in series["lines"]:
                    if line["name"] in group or (line["name"] == "rounds" and "" in group):
                        points += [Point(drive.key, line["name"], x, y)
                                   for x, y in zip(line["x"], line["y"], strict=True) if y is not None]
        if not points:
            continue
        several = context.several and len(of) > 1
        title = f"Throughput by round{f', {group[0]}' if several else ''}"
        table = Table(title, (Column("drive", "Drive"), Column("of", "Of"), Column("round", "Round", "count"),
                              Column("mb_s", "Throughput", "rate", formula="bytes / max(complete) − min(submit)",
                                     better="higher")),
                      tuple(Row({"drive": point.entry, "of": point.line, "round": point.x, "mb_s": point.y},
                                point.entry) for point in points))
        id_ = "rounds" if not several else f"rounds-{group[0]}".replace(" ", "-").replace("+", "-")
        yield Chart(id_, title, table, curves(title, points, context.style(dict.fromkeys(
            point.line for point in points)), Axis("round", kind="count"), MB_S), "higher")


REPORT = Report(report, sections, lambda drive: drive.value("steady_mb_s"), METRICS[2])
