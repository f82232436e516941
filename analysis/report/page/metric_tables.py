"""Tables without a chart: headline figures, figures of one run by class, replay accuracy, threads."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from blkreel.analysis.charts.model import Chart, Column, Row, Table
from blkreel.analysis.metrics.definitions.metric import pace_names
from blkreel.analysis.metrics.definitions.registry import (
    CLASS_DISTRIBUTIONS,
    METRICS,
    ClassMetric,
    class_metrics,
    value_at,
)
from blkreel.analysis.report.columns import headline_of, missing, remark_of, value_of
from blkreel.analysis.report.commands import column_of, path_of
from blkreel.analysis.report.verdict import Document
from blkreel.common import units
from blkreel.traces.format.metadata_types import HostAccount, Run

MOST_THREADS = 25
CLASSES = (("read", "Reads"), ("write", "Writes"), ("other", "Other"))


def headline(sections: list[Document], order: list[str]) -> Chart:
    """Headline figures per drive and pace. order: of the labels."""
    metrics = headline_of([entry for section in sections for entry in section["entries"]])
    columns = [Column("drive", "Drive"), *(column_of(metric, metric.short) for metric in metrics),
               Column("runs", "Runs", "count"), Column("verdict", "Verdict", "verdict")]
    rows = []
    for section in sections:
        for entry in sorted(section["entries"], key=lambda entry: order.index(entry["label"])):
            values = {metric: entry["headline"][metric.key]["value"] for metric in metrics}
            why = {metric.column: missing(entry, metric) for metric, value in values.items() if value is None}
            remarks = {metric.column: remark for metric in metrics if (remark := remark_of(entry, metric))}
            rows.append(Row({"drive": entry["label"], "runs": entry["n"], "verdict": entry["verdict"]["level"],
                             **{metric.column: value for metric, value in values.items()}},
                            entry["label"], why, remarks, section["title"], path_of(entry)))
    return Chart("figures", "Figures", Table("Each drive and pace; formulas stand under Method", tuple(columns),
                                               tuple(rows)), wide=True)


def by_class(entry: Document) -> list[Chart]:
    """The metrics of one run or trace by class of I/O: work and time, percentiles, consistency."""
    figures = entry["figures"]
    present = [(op, title) for op, title in CLASSES if figures[op]["ops"] or figures[op]["unseen_ops"]]

    def row(op: str, title: str, metrics: list[ClassMetric], columns: list[Column], group: str = "") -> Row:
        values: dict[str, Any] = {"class": title}
        why = {}
        for metric, column in zip(metrics, columns, strict=True):
            own = METRICS[f"{op}_{metric.key}"]
            values[column.key] = value_of(entry, own)
            if values[column.key] is None:
                why[column.key] = missing(entry, own)
        return Row(values, entry["label"], why, group=group, path=path_of(entry))

    def chart(id_: str, title: str, caption: str, columns: list[Column], rows: list[Row]) -> list[Chart]:
        table = Table(caption, (Column("class", "Class"), *columns), tuple(rows))
        return [Chart(id_, title, table, wide=True)] if rows else []

    def columns_of(metrics: list[ClassMetric]) -> list[Column]:
        """With the commands of the reads."""
        return [replace(column_of(METRICS[f"read_{metric.key}"]), key=metric.column, title=metric.label)
                for metric in metrics]

    paces = pace_names(entry["pace"])
    work, consistency, percentiles = ([metric for metric in class_metrics(name) if metric.of("read").meaningful(paces)]
                                      for name in ("work", "consistency", "latency"))
    of_work, of_consistency = columns_of(work), columns_of(consistency)
    of_percentiles = [replace(column, key=metric.path.rpartition(".")[2], title=metric.label.rpartition(" ")[2])
                      for metric, column in zip(percentiles, columns_of(percentiles), strict=True)]
    return [
        *chart("work", "Work and time", "By class of I/O. “Other” are all but reads and writes; --figure "
                 "takes read_, write_ or other_ before the name", of_work,
                 [row(*class_, work, of_work) for class_ in present]),
        *chart("percentiles", "Percentiles", "By nearest rank; the commands are those of latency",
                 of_percentiles,
                 [row(*class_, class_metrics(shape.group), of_percentiles, shape.label)
                  for shape in CLASS_DISTRIBUTIONS if class_metrics(shape.group)[0].of("read").meaningful(paces)
                  for class_ in present if value_at(figures[class_[0]], shape.path)["n"]]),
        *chart("consistency", "Consistency over seconds", "IOPS of whole seconds since the first I/O", of_consistency,
                 [row(*class_, consistency, of_consistency) for class_ in present
                  if any(value_at(figures[class_[0]], metric.path) is not None for metric in consistency)]),
    ]


def certificate(run: Run, label: str) -> list[Chart]:
    """Replay accuracy, and the causes of late issue."""
    charts = []
    rows = [Row({"figure": what, "trace": planned, "replay": replayed}, label)
            for what, planned, replayed in certificate_rows(run)]
    if rows:
        charts.append(Chart("certificate", "Replay accuracy", Table(
            "In flight: also an effect of the drive, since a faster drive has fewer",
            (Column("figure", "Figure"), Column("trace", "Trace"), Column("replay", "Replay")), tuple(rows)),
            wide=True))
    rows = [Row({"cause": row["words"], "count": row["count"], "total_ns": row["total_ns"],
                 "longest_ns": row["longest_ns"], "late_ops": row["late_ops"]}, label) for row in held_up_rows(run)]
    if rows:
        charts.append(Chart("held-up", "Stalls of the replay", Table(
            "Stalls of the issuing thread by cause", (
                Column("cause", "Cause"), Column("count", "Times", "count"), Column("total_ns", "In sum", "time"),
                Column("longest_ns", "Longest", "time"), Column("late_ops", "I/Os late by it", "count")), tuple(rows)),
            wide=True))
    return charts


def threads(programs: list[Document], label: str) -> Chart | None:
    """I/O by command and process, largest first."""
    if not programs:
        return None
    columns = (Column("name", "Command"), Column("pid", "Process", "count"), Column("threads", "Threads", "count"),
               Column("read_ops", "Reads", "count"), Column("read_bytes", "Read", "size"),
               Column("read_service_ns", "Service, reads", "time"), Column("write_ops", "Writes", "count"),
               Column("write_bytes", "Written", "size"), Column("write_service_ns", "Service, writes", "time"))
    caption = "I/O by command and process, largest first"
    if len(programs) > MOST_THREADS:
        caption += f"; the first {MOST_THREADS} of {len(programs)}"
    rows = tuple(Row({key.key: program[key.key] for key in columns}, label) for program in programs[:MOST_THREADS])
    return Chart("threads", "I/O by process", Table(caption, columns, rows), wide=True)


_Rows = Iterator[tuple[str, str, str]]


def certificate_rows(run: Run) -> list[tuple[str, str, str]]:
    """(what, as planned or captured, as replayed); empty for a run without a certificate."""
    certificate = run.certificate
    return [*_arrivals(certificate.arrivals), *_in_flight(certificate.in_flight), *_counts(run, certificate.host)]


def held_up_rows(run: Run) -> list[Document]:
    """Causes of late issue, most late I/Os first: words, count, total_ns, longest_ns, late_ops."""
    causes = run.certificate.host.causes if run.certificate.host else {}
    rows: list[Document] = [{**sum_of, "words": sum_of.get("words") or name} for name, sum_of in causes.items()]
    return sorted(rows, key=lambda row: (row["late_ops"], row["total_ns"]), reverse=True)


def _arrivals(arrivals: Mapping[str, Any] | None) -> _Rows:
    if not arrivals:
        return
    planned, issued = arrivals["planned"], arrivals["issued"]
    for name, words in (("mean_ns", "mean"), ("p50_ns", "median"), ("p99_ns", "p99")):
        yield (f"Gap between submissions, {words}", units.duration(planned[name]), units.duration(issued[name]))
    yield "Greatest difference of the two distributions of gaps", "", units.format_share(arrivals['ks'])
    yield ("A gap changed by: median, p99, most", "",
           ", ".join(units.duration(arrivals["changed"][name]) for name in ("p50_ns", "p99_ns", "max_ns")))


def _in_flight(in_flight: Mapping[str, Any] | None) -> _Rows:
    if not in_flight:
        return
    captured, replayed = in_flight["captured"], in_flight["replayed"]
    for name, words in (("mean", "mean"), ("p50", "median"), ("p99", "p99"), ("max", "most")):
        before, after = (units.digits(side[name]) if side else units.MISSING for side in (captured, replayed))
        yield f"In flight while busy, {words}", before, after
    if in_flight["ks"] is not None:
        yield "Greatest difference of the two distributions in flight", "", units.format_share(in_flight['ks'])


def _counts(run: Run, host: HostAccount | None) -> _Rows:
    if not host:
        return
    yield "Forced off the processor", "", f"{host.preemptions:,} times"
    if host.waited_ns is not None:
        yield "Waited for a processor", "", units.duration(host.waited_ns)
    yield "Drift at the end", "", units.duration(run.drift_ns)
    late, stalls = (units.MISSING if count is None else f"{count:,}" for count in (run.underruns, run.record_stalls))
    yield "Plan too late, records not taken away", "", f"{late}, {stalls} times"
    for counts, words in ((run.altered, "altered"), (run.dropped, "not issued")):
        yield f"I/Os {words}", "", f"{sum(counts.values()):,}"
