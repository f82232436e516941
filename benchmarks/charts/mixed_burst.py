"""Charts of mixed-burst: wait time of reads, alone and with a writer."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from blkreel.analysis.charts.axes import Axis
from blkreel.analysis.charts.curves import curves
from blkreel.analysis.charts.model import Chart, Column, Row, Section, Table
from blkreel.analysis.charts.over_time import MOST_POINTS, Panel, coarser, time_rows
from blkreel.analysis.charts.spec import Point
from blkreel.analysis.charts.tail import Tail, tail_chart
from blkreel.analysis.metrics.definitions.metric import NS
from blkreel.benchmarks import metric
from blkreel.benchmarks.results.mixed_burst import (
    BASELINE,
    BURSTS,
    MIXED,
    ROLES,
    SERVICE_TIME,
    SLOWDOWN,
    THROUGHPUTS,
    WAIT,
    WAITING,
)

from .chart_context import MB_S, ChartContext, efficiency, ranking, state_section
from .drives import DriveResults, Value
from .tables import MetricRow, metric_table, plain

_PERCENTILES = {"p50": 0.5, "p90": 0.1, "p99": 0.01, "p99.9": 0.001}  # name -> share beyond


headline_text = NS.text  # of the figure of headline()


def headline(drive: DriveResults) -> tuple[Value | None, bool]:
    """(the figure that ranks the drives of the page, or None; whether higher is better)."""
    return drive.of_state(0, MIXED, "read_wait_ns"), False


def sections(context: ChartContext) -> Iterator[Section]:
    for state in context.states():
        charts = [_slowdown(context, state), _throughput(context, state), _timeline(context, state),
                    *_tails(context, state), _bursts(context, state), _waiting(context, state),
                    efficiency(context, context.named("efficiency", state), context.titled("Efficiency", state),
                               [(words, ("states", state, role), "read_burst_mb_s") for role, words in ROLES.items()])]
        yield state_section(state, "Reads during writes", charts)


def _slowdown(context: ChartContext, state: str) -> Chart | None:
    base = ("states", state)
    columns = [SLOWDOWN, *(replace(each, key=key, title=title, path=(role, each.key)) for each, key, title, role in (
        (WAIT, "read_wait_ns", "Wait beside the writer", MIXED), (WAIT, "alone_ns", "Wait alone", BASELINE),
        (SERVICE_TIME, "service_ns", "Service time beside the writer", MIXED),
        (SERVICE_TIME, "service_alone_ns", "Service time alone", BASELINE)))]
    table = metric_table(context.titled("Wait time and slowdown", state), context.metric_rows(*base), columns, base)

    def text_of(drive: DriveResults) -> str:
        wait, slower = drive.value(*base, MIXED, "read_wait_ns"), drive.value(*base, "slowdown")
        words = plain(wait.value, "time") if wait.value is not None else "–"
        return f"{words} · {plain(slower.value, 'number')} ×" if slower.value is not None else words

    return ranking(context, context.named("slowdown", state),
                   context.titled("Wait time, alone and beside a writer", state),
                   Axis("wait", "ns", "auto"), [(ROLES[BASELINE], (*base, BASELINE, "read_wait_ns")),
                                                (ROLES[MIXED], (*base, MIXED, "read_wait_ns"))],
                   table, better="lower", form="time", order_part=1, text_of=text_of,
                   text="Time that a user waits for the read bursts; × is the geometric mean of their slowdowns.")


def _throughput(context: ChartContext, state: str) -> Chart | None:
    base = ("states", state, MIXED)
    table = metric_table(context.titled("Throughput of bursts", state), context.metric_rows(*base),
                         [*THROUGHPUTS, metric.REPEATS, *metric.POWER], base)
    keep = [_kept_up(drive, state) for drive in context.drives]
    writer_words = {drive.key: words for drive, words in zip(context.drives, keep, strict=True)}
    parts = [(words, lambda drive, words=words: (*base, "read_burst_mb_s") if writer_words[drive.key] == words else (
        "nothing",)) for words in dict.fromkeys(keep)]
    behind = [key for key, words in writer_words.items() if words == "writer fell behind"]
    whose = "of every drive" if len(behind) == len(writer_words) > 1 else f"of {', '.join(behind)}"
    notes = [f"The writer fell behind {whose}: fewer writes than planned ran during the reads."] if behind else []
    table = _with_writer(table, writer_words, context, state)

    def text_of(drive: DriveResults) -> str:
        return plain(drive.value(*base, "read_burst_mb_s").value or 0, "rate")

    return ranking(context, context.named("read-throughput", state),
                    context.titled("Read throughput under background writes", state), MB_S, parts, table,
                    better="higher", form="rate", text_of=text_of, notes=tuple(notes),
                    order_path=lambda drive: (*base, "read_burst_mb_s"))


def _kept_up(drive: DriveResults, state: str) -> str:
    states = {writer["state"] for writer in _writers(drive, state)}
    return "writer fell behind" if "fell behind" in states else "writer kept up" if states == {"kept up"} else "no plan"


def _writers(drive: DriveResults, state: str) -> list[dict[str, Any]]:
    return [writer for test in drive.tests
            for writer in (test["figures"]["states"].get(state) or {}).get("writer") or ()]


def _with_writer(table: Table, writer_words: dict[str, str], context: ChartContext, state: str) -> Table:
    rows, drives = [], {drive.key: drive for drive in context.drives}
    for row in table.rows:
        key = row.values["drive"]
        writers = _writers(drives[key], state)
        shares = [writer["written_share"] for writer in writers if writer.get("written_share") is not None]
        late = sum(writer.get("late_bursts") or 0 for writer in writers)
        rows.append(replace(row, values={**row.values, "writer": writer_words[key], "late_bursts": late,
                                         "written_share": min(shares, default=None)}))
    more = (Column("writer", "Writer", formula="kept up: each write burst ended before the next was due, and 99 % of "
                   "the bytes offered were written"),
            Column("late_bursts", "Late write bursts", "count", better="lower"),
            Column("written_share", "Written / offered", "share", formula="of the repetition with the least"))
    return Table(table.caption, (*table.columns, *more), tuple(rows))


def _timeline(context: ChartContext, state: str) -> Chart | None:
    roles = (MIXED,) if context.several else (MIXED, BASELINE)
    drawn = [(drive, role, series) for drive in context.drives for role in roles
             for series in drive.series("timeline", state=state, role=role)[:1]]
    if not drawn:
        return None
    most = min(400, MOST_POINTS // (len(drawn) + 1))
    panels, widest_s = [], 0.0
    for drive, role, series in drawn:
        lines = {line["name"]: line for line in series["lines"]}
        bins = max(len(line["x"]) for line in lines.values())
        rates = {key: dict(coarser(lines[name]["x"], lines[name]["y"], most)) if name in lines else {}
                 for key, name in (("read", "reads"), ("write", "writes"))}
        begins = sorted({begin for by_begin in rates.values() for begin in by_begin})
        width_s = series["of"]["width_ns"] / 1e9 * max(1, -(-bins // most))
        widest_s = max(widest_s, width_s)
        wait = drive.value("states", state, role, "read_wait_ns").value
        panels.append(Panel(
            drive.key, drive.name if context.several else ROLES[role],
            [{"t": t, **{key: float(f"{by_begin.get(t, 0):.4g}") for key, by_begin in rates.items()}} for t in begins],
            begins[-1] + width_s, caption=f"wait {plain(wait, 'time')}" if wait is not None else ""))
    table = Table(f"MB/s in bins of up to {widest_s:.3g} s", (
        Column("drive", "Drive"), Column("from_s", "From", "number", "s"), Column("read_mb_s", "Reads", "rate"),
        Column("write_mb_s", "Writes", "rate")), tuple(
            Row({"drive": panel.entry, "of": panel.title, "from_s": step["t"], "read_mb_s": step["read"],
                 "write_mb_s": step["write"]}, panel.entry, group=panel.title)
            for panel in panels for step in panel.steps))
    return Chart(context.named("timeline", state), context.titled("Reads over background writes", state), table,
                 time_rows("Throughput of reads over that of writes, over time, one row per drive", panels, "MB/s"),
                 text="Reads (orange, outlined) in front of writes (blue), one scale for all rows. "
                      "The strip at the bottom zooms all rows.",
                 notes=("The first repetition is drawn.",) * any(len(drive.tests) > 1 for drive in context.drives),
                 wide=True, zooms=True)


def _tails(context: ChartContext, state: str) -> Iterator[Chart]:
    """Read latency: with one drive both runs in one chart, with several a chart for each."""
    groups: list[tuple[tuple[str, ...], str, str]] = [
        ((MIXED,), "read-tail", "Read latency beside the writer"), ((BASELINE,), "read-tail-alone",
              "Read latency alone"), ((MIXED,), "write-tail", "Write latency")]
    if not context.several:
        groups = [((MIXED, BASELINE), "read-tail", "Read latency"), ((MIXED,), "write-tail", "Write latency")]
    for roles, id_, title in groups:
        kind = "write" if id_.startswith("write") else "read"
        tails, metric_rows = [], []
        for drive in context.drives:
            for role in roles:
                for series in drive.series("tail", state=state, role=role, kind=kind)[:1]:
                    (line,) = series["lines"]
                    row = MetricRow(drive, ("states", state, role, f"{kind}_latency"), {"of": role})
                    percentiles = [(name, share, value.value) for name, share in _PERCENTILES.items() if (
                        value := drive.value(*row.base, f"{name.replace('.', '_')}_ns")).value is not None]
                    tails.append(Tail(drive.key, ROLES[role], series["of"]["n"],
                                      list(zip(line["x"], line["y"], strict=True)), percentiles))
                    metric_rows.append(row)
        if not tails:
            continue
        rank = "nearest rank x[⌈n p⌉ − 1] of the sorted complete − submit; only where n (1 − p) ≥ 10"
        table = metric_table(context.titled(f"{title}: percentiles", state), metric_rows, [
            *(metric.duration(f"{name.replace('.', '_')}_ns", name, rank) for name in _PERCENTILES),
            metric.MEAN_LATENCY, metric.MAX_LATENCY, metric.count("n", "I/Os")],
            ("states", state, "{of}", f"{kind}_latency"), (Column("of", "Run"),))
        yield Chart(context.named(id_, state), context.titled(title, state), _with_reasons(table),
                    tail_chart(f"{title}: share of I/Os that took at least a time", tails,
                               context.style([ROLES[role] for role in roles]), f"{kind} latency"), "lower",
                    "Further left is better. Faint where fewer than 10 I/Os lie beyond: too few for a percentile.")


def _with_reasons(table: Table) -> Table:
    """Missing percentiles with the reason."""
    def why(row: Row) -> dict[str, str]:
        n = row.values.get("n")
        return {key: f"n too small (n={n:,})" if reason == "not measured" and key.startswith("p") and n else reason
                for key, reason in row.why.items()}
    return replace(table, rows=tuple(replace(row, why=why(row)) for row in table.rows))


def _bursts(context: ChartContext, state: str) -> Chart | None:
    metric_rows, points = [], []
    for drive in context.drives:
        test = drive.tests[0]
        bursts = (test["figures"]["states"].get(state) or {}).get("bursts") or {}
        first = min((burst["repeat"] for burst in bursts.values()), default=None)
        for key, burst in bursts.items():
            if burst["repeat"] != first:
                continue
            if burst["slowdown"] is not None:
                points.append(Point(drive.key, "", burst["burst"] + 1, burst["slowdown"]))
            metric_rows.append(MetricRow(DriveResults(drive.key, (test,)), ("states", state, "bursts", key),
                                         {"burst": key}))
    if not metric_rows:
        return None
    table = metric_table(context.titled("Read bursts", state), metric_rows, BURSTS,
                         ("states", state, "bursts", "{burst}"),
                         (Column("burst", "Burst", formula="in order, from 0; after a dash the repeat"),))
    return Chart(context.named("bursts", state), context.titled("Slowdown of each read burst", state), table,
                 curves("Slowdown of each read burst", points, context.style(), Axis("read burst", kind="count"),
                        Axis("times as long as alone", "×", "auto")), "lower",
                 "The smaller the differences between bursts, the more predictable the drive.")


def _waiting(context: ChartContext, state: str) -> Chart | None:
    metric_rows = [MetricRow(drive, ("states", state, role, "read_waiting"), {"of": role})
              for drive in context.drives for role in ROLES
              if drive.holds("states", state, role, "read_waiting")]
    if not metric_rows:
        return None
    table = metric_table(context.titled("Distribution of the waiting over reads", state), metric_rows, WAITING,
                         ("states", state, "{of}", "read_waiting"), (Column("of", "Run"),))
    if not any(row.values.get("p50_ns") for row in table.rows):
        return None
    return Chart(context.named("waiting", state), context.titled("Distribution of the waiting over reads", state),
                 table, better="lower", text="Latency-weighted percentiles: each read has its latency as weight.")
