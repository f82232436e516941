"""The tables without a chart: what a comparison leads with, the figures of one run by class, who did it."""

from ..certificate import certificate_rows, held_up_rows
from ..classes import CONSISTENCY
from ..columns import TITLES, missing
from ..definitions import HEADLINE
from ..percentiles import PERCENTILES
from .commands import command, path_of
from .model import Column, Exhibit, Row, Table

MOST_THREADS = 25
CLASSES = (("read", "Reads"), ("write", "Writes"), ("other", "Other"))
KINDS = (("latency", "Latency (from submit)"), ("response", "Response (from due)"), ("queue", "In the scheduler"))


def headline(sections: list[dict], order: list[str]) -> Exhibit:
    """All figures that a comparison leads with, each drive and pace. order: of the labels."""
    columns = [Column("drive", "Drive")]
    for name, title in TITLES.items():
        definition = HEADLINE[name]
        better = "higher" if name.endswith("mb_s") else "lower"
        columns.append(Column(name, title, "time" if name.endswith("_ns") else "rate", formula=definition.formula,
                              recompute=command(definition.key), better=better))
    columns += [Column("runs", "Runs", "count"), Column("verdict", "Verdict", "verdict")]
    rows = []
    for section in sections:
        for entry in sorted(section["entries"], key=lambda entry: order.index(entry["label"])):
            values = {"drive": entry["label"], "runs": entry["n"], "verdict": entry["verdict"]["level"],
                      **{name: entry["headline"][name]["value"] for name in TITLES}}
            why = {name: missing(entry, name) for name in TITLES if values[name] is None}
            whole = {"read_throughput_mb_s": "writer fell behind"} if entry["writer"] == "fell behind" else {}
            rows.append(Row(values, entry["label"], why, whole, section["title"], path_of(entry)))
    return Exhibit("figures", "Figures", Table("Each drive and pace; formulas stand under Method", tuple(columns),
                                               tuple(rows)), wide=True)


def by_class(entry: dict) -> list[Exhibit]:
    """The figures of one run or trace by class of I/O: work and time, percentiles, evenness."""
    figures, path, label = entry["figures"], path_of(entry), entry["label"]
    present = [(name, title) for name, title in CLASSES if figures[name]["ops"] or figures[name]["unseen_ops"]]
    exhibits = []

    def table(id_, title, columns, rows, caption):
        columns = (Column("class", "Class"), *(Column(key.replace(".", "_"), heading, form, formula=formula,
                                                      recompute=command(f"read.{key}"))
                                               for key, heading, form, formula in columns))
        exhibits.append(Exhibit(id_, title, Table(caption, columns, tuple(rows)), wide=True))

    other = "--figure takes read., write., other. or all. before the name"
    work = [(key, title, form, formula) for key, title, form, formula in _WORK]
    rows = []
    for name, title in present:
        values = {key.replace(".", "_"): at(figures[name], key) for key, *_ in work}
        why = {key: "nothing moved" for key, value in values.items() if value is None}
        rows.append(Row({"class": title, **values}, label, why, path=path))
    table("work", "Work and time", work, rows,
          f"By class of I/O. “Other” are flushes, discards and write-zeroes; {other}")
    percentiles = [("n", "n", "count", "I/Os"), ("mean_ns", "Mean", "time", "Σ / n"),
                   *((f"{name}_ns", name.replace("_", "."), "time", HEADLINE["read_latency_p50_ns"].formula)
                     for name in PERCENTILES), ("max_ns", "Max", "time", "the largest")]
    rows = []
    for kind, words in KINDS:
        for name, title in present:
            shown = figures[name][kind]
            if not shown["n"]:
                continue
            why = {f"{percentile}_ns": f"n too small (n={shown['n']:,})" for percentile in shown["too_small"]}
            rows.append(Row({"class": title, **{key: shown[key] for key, *_ in percentiles}}, label, why,
                            group=words, path=path))
    columns = (Column("class", "Class"), *(Column(key, heading, form, formula=formula,
                                                  recompute=command(f"read.latency.{key}"))
                                           for key, heading, form, formula in percentiles))
    if rows:
        exhibits.append(Exhibit("percentiles", "Percentiles", Table(
            "By nearest rank, nothing interpolated; latency, response or queue before the name", columns, tuple(rows)),
            wide=True))
    even = [(f"consistency.{key}", words.split(": ")[-1], "number", words) for key, words in CONSISTENCY.items()]
    rows = [Row({"class": title, **{f"consistency_{key}": figures[name]["consistency"][key] for key in CONSISTENCY}},
                label, path=path) for name, title in present
            if any(figures[name]["consistency"][key] is not None for key in CONSISTENCY)]
    if rows:
        table("evenness", "Evenness over seconds", even, rows, "IOPS of whole seconds since the first I/O")
    return exhibits


def at(figures: dict, key: str):
    """The figure under a dotted key."""
    for part in key.split("."):
        figures = figures[part]
    return figures


_WORK = (
    ("ops", "I/Os", "count", "I/Os whose completion was seen"),
    ("bytes", "Bytes", "size", "Σ bytes of these"),
    ("bursts.throughput_mb_s", "Burst throughput", "rate", "Σ bytes of the bursts / Σ of their makespans"),
    ("throughput_by_busy_mb_s", "Throughput while busy", "rate", "bytes / busy time"),
    ("service_ns", "Total service time", "time", "Σ (complete − submit)"),
    ("busy_ns", "Busy time", "time", "measure of the union of [submit, complete)"),
    ("makespan_ns", "Makespan", "time", "max(complete) − min(submit)"),
    ("mean_busy_depth", "Mean busy depth", "number", "total service time / busy time"),
    ("bursts.makespan_ns", "Wait", "time", "Σ makespans of the bursts"),
    ("bursts.count", "Bursts", "count", "see Burst under Method"),
    ("bursts.strays.count", "Strays", "count", "bursts of fewer than 16 ops and under 1 MiB"),
    ("unseen_ops", "Unseen", "count", "I/Os whose completion was never seen: in no other figure"),
    ("error_ops", "Failed", "count", "I/Os that failed"),
)


def certificate(run: dict | None, label: str) -> list[Exhibit]:
    """How near the replay came to its plan, and what held it up."""
    exhibits = []
    rows = [Row({"figure": what, "trace": planned, "replay": replayed}, label)
            for what, planned, replayed in certificate_rows(run)]
    if rows:
        exhibits.append(Exhibit("certificate", "How near the replay came to its plan", Table(
            "How many I/Os were in flight is the drive's doing too: a faster one has fewer",
            (Column("figure", "Figure"), Column("trace", "Trace"), Column("replay", "Replay")), tuple(rows)),
            wide=True))
    rows = [Row({"cause": one["words"], "count": one["count"], "total_ns": one["total_ns"],
                 "longest_ns": one["longest_ns"], "late_ops": one["late_ops"]}, label) for one in held_up_rows(run)]
    if rows:
        exhibits.append(Exhibit("held-up", "What held the replay up", Table(
            "Times at which the issuing thread could not go on", (
                Column("cause", "Cause"), Column("count", "Times", "count"), Column("total_ns", "In sum", "time"),
                Column("longest_ns", "Longest", "time"), Column("late_ops", "I/Os late by it", "count")), tuple(rows)),
            wide=True))
    return exhibits


def threads(told: list[dict], label: str) -> Exhibit | None:
    """I/O by command and process, largest first."""
    if not told:
        return None
    columns = (Column("name", "Command"), Column("pid", "Process", "count"), Column("threads", "Threads", "count"),
               Column("read_ops", "Reads", "count"), Column("read_bytes", "Read", "size"),
               Column("read_service_ns", "Service, reads", "time"), Column("write_ops", "Writes", "count"),
               Column("write_bytes", "Written", "size"), Column("write_service_ns", "Service, writes", "time"))
    caption = "I/O by command and process, largest first"
    if len(told) > MOST_THREADS:
        caption += f"; the first {MOST_THREADS} of {len(told)}"
    rows = tuple(Row({key.key: one[key.key] for key in columns}, label) for one in told[:MOST_THREADS])
    return Exhibit("threads", "Who did it", Table(caption, columns, rows), wide=True)
