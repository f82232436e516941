"""Pages of mixed-burst: how long reads wait while something writes."""

from ...exhibits.model import Column, Exhibit, Row, Section, Table
from ..mixed_burst import BASELINE, MIXED
from .curves import curves
from .drawing import Axis
from .ground import MB_S, POWER, Ground, efficiency, ranking
from .over_time import MOST_POINTS, coarser, reads_over_writes
from .subjects import Subject
from .tables import Figure, Place, figure_table, plain
from .tail import tail

ROLES = {MIXED: "with the writer", BASELINE: "reads alone"}
_WAIT = "Σ over the read bursts of max(complete) − min(submit)"


def lead(subject: Subject) -> tuple:
    """(the figure that the page ranks by, None where there is none; whether higher is better)."""
    return subject.value("states", subject.states()[0], MIXED, "wait_ns") if subject.states() else None, False


def sections(ground: Ground):
    for state in ground.states():
        exhibits = [_slowdown(ground, state), _throughput(ground, state), _timeline(ground, state),
                    *_tails(ground, state), _bursts(ground, state), _waiting(ground, state),
                    efficiency(ground, ground.named("efficiency", state), ground.titled("Efficiency", state),
                               [(words, ("states", state, role), "read_burst_mb_s") for role, words in ROLES.items()])]
        yield Section(f"state-{state or 'any'}", f"State {state}" if state else "Reads beside writes",
                      tuple(one for one in exhibits if one))


def _slowdown(ground, state):
    base = ("states", state)
    figures = [
        Figure("slowdown", "Slowdown", "number", "", "geometric mean over the read bursts of makespan with the writer "
               "/ makespan without", "lower"),
        Figure("wait_ns", "Wait with the writer", "time", "", _WAIT, "lower", (MIXED, "wait_ns")),
        Figure("alone_ns", "Wait, reads alone", "time", "", _WAIT, "lower", (BASELINE, "wait_ns")),
        Figure("service_ns", "Service with the writer", "time", "", "Σ latency of the reads", "lower",
               (MIXED, "read_service_ns")),
        Figure("service_alone_ns", "Service, reads alone", "time", "", "Σ latency of the reads", "lower",
               (BASELINE, "read_service_ns"))]
    table = figure_table(ground.titled("Wait time and slowdown", state), ground.places(*base), figures, base)

    def told(subject):
        wait, slower = subject.value(*base, MIXED, "wait_ns"), subject.value(*base, "slowdown")
        words = plain(wait.value, "time") if wait.value is not None else "–"
        return f"{words} · {plain(slower.value, 'number')} ×" if slower.value is not None else words

    return ranking(ground, ground.named("slowdown", state),
                   ground.titled("Wait time, alone and beside a writer", state),
                   Axis("wait", "ns", "auto"), [(ROLES[BASELINE], (*base, BASELINE, "wait_ns")),
                                                (ROLES[MIXED], (*base, MIXED, "wait_ns"))],
                   table, better="lower", form="time", lead=1, told=told,
                   text="How long a person would sit there; × is the slowdown, burst by burst.")


def _throughput(ground, state):
    base = ("states", state, MIXED)
    table = figure_table(ground.titled("Throughput of bursts", state), ground.places(*base), [
        Figure("read_burst_mb_s", "Reads", "rate", "", "bytes of the read bursts / Σ of their makespans", "higher"),
        Figure("write_burst_mb_s", "Writes", "rate", "", "bytes of the write bursts / Σ of their makespans", "higher"),
        Figure("n", "Repeats", "count"), *POWER], base)
    keep = [_kept_up(subject, state) for subject in ground.subjects]
    kept = {subject.key: words for subject, words in zip(ground.subjects, keep, strict=True)}
    parts = [(words, lambda subject, words=words: (*base, "read_burst_mb_s") if kept[subject.key] == words else (
        "nothing",)) for words in dict.fromkeys(keep)]
    behind = [key for key, words in kept.items() if words == "writer fell behind"]
    whose = "of every drive" if len(behind) == len(kept) > 1 else f"of {', '.join(behind)}"
    notes = [f"The writer fell behind {whose}: those reads had less beside them than was meant."] if behind else []
    table = _with_writer(table, kept, ground, state)

    def told(subject):
        return plain(subject.value(*base, "read_burst_mb_s").value or 0, "rate")

    return ranking(ground, ground.named("read-throughput", state),
                    ground.titled("Read throughput under background writes", state), MB_S, parts, table,
                    better="higher", form="rate", told=told, notes=tuple(notes),
                    leads=lambda subject: (*base, "read_burst_mb_s"))


def _kept_up(subject, state):
    states = {one["state"] for test in subject.tests
              for one in ((test["figures"]["states"].get(state) or {}).get("writer") or ())}
    return "writer fell behind" if "fell behind" in states else "writer kept up" if states == {"kept up"} else "no plan"


def _with_writer(table, kept, ground, state):
    rows, subjects = [], {subject.key: subject for subject in ground.subjects}
    for row in table.rows:
        told = [one for test in subjects[row.entry].tests
                for one in ((test["figures"]["states"].get(state) or {}).get("writer") or ())]
        shares = [one["written_share"] for one in told if one.get("written_share") is not None]
        late = sum(one.get("late_bursts") or 0 for one in told)
        rows.append(Row({**row.values, "writer": kept[row.entry], "late_bursts": late,
                         "written_share": min(shares, default=None)},
                        row.entry, row.why, row.whole, row.group, row.path))
    more = (Column("writer", "Writer", formula="kept up: each write burst ended before the next was due, and 99 % of "
                   "the bytes offered were written"),
            Column("late_bursts", "Late write bursts", "count", better="lower"),
            Column("written_share", "Written / offered", "share", formula="of the repetition with the least"))
    return Table(table.caption, (*table.columns, *more), tuple(rows))


def _timeline(ground, state):
    roles = (MIXED,) if ground.several else (MIXED, BASELINE)
    found = [(subject, role, series) for subject in ground.subjects for role in roles
             for series in subject.series("timeline", state=state, role=role)[:1]]
    if not found:
        return None
    most = min(400, MOST_POINTS // (len(found) + 1))
    panels, widest = [], 0
    for subject, role, series in found:
        lines = {line["name"]: line for line in series["lines"]}
        xs = max((line["x"] for line in lines.values()), key=len)
        kinds = {key: dict(coarser(lines[name]["x"], lines[name]["y"], most)) if name in lines else {}
                 for key, name in (("read", "reads"), ("write", "writes"))}
        at = sorted({x for points in kinds.values() for x in points})
        width_s = series["of"]["width_ns"] / 1e9 * max(1, -(-len(xs) // most))
        widest = max(widest, width_s)
        wait = subject.value("states", state, role, "wait_ns").value
        panels.append({
            "entry": subject.key, "title": subject.name if ground.several else ROLES[role], "until": max(at) + width_s,
            "caption": f"wait {plain(wait, 'time')}" if wait is not None else "",
            "rows": [{"t": x, **{key: _short(points.get(x, 0)) for key, points in kinds.items()}} for x in at]})
    rows = tuple(Row({"drive": panel["entry"], "of": panel["title"], "from_s": row["t"], "read_mb_s": row["read"],
                      "write_mb_s": row["write"]}, panel["entry"], group=panel["title"])
                 for panel in panels for row in panel["rows"])
    table = Table(f"MB/s in bins of up to {widest:.3g} s", (
        Column("drive", "Drive"), Column("from_s", "From", "number", "s"), Column("read_mb_s", "Reads", "rate"),
        Column("write_mb_s", "Writes", "rate")), rows)
    return Exhibit(ground.named("timeline", state), ground.titled("Reads over background writes", state), table,
                   reads_over_writes("Throughput of reads over that of writes, over time, one row a drive", panels),
                   text="Reads in front, writes behind them, one scale for all rows; the strip below zooms.",
                   notes=("Of the first repetition.",) if any(len(s.tests) > 1 for s in ground.subjects) else (),
                   wide=True, zooms=True)


def _short(value):
    return float(f"{value:.4g}")


def _tails(ground, state):
    """Read latency: with one drive both runs in one chart, with several a chart for each."""
    groups = [((MIXED,), "read-tail", "Read latency beside the writer"), ((BASELINE,), "read-tail-alone",
              "Read latency, reads alone"), ((MIXED,), "write-tail", "Write latency")]
    if not ground.several:
        groups = [((MIXED, BASELINE), "read-tail", "Read latency"), ((MIXED,), "write-tail", "Write latency")]
    for roles, id_, title in groups:
        kind = "write" if id_.startswith("write") else "read"
        lines, places = [], []
        for subject in ground.subjects:
            for role in roles:
                for series in subject.series("tail", state=state, role=role, kind=kind)[:1]:
                    (line,) = series["lines"]
                    lines.append({"entry": subject.key, "line": ROLES[role], "n": series["of"]["n"],
                                  "points": list(zip(line["x"], line["y"], strict=True))})
                    places.append(Place(subject, ("states", state, role, f"{kind}_latency"), {"of": role}))
        if not lines:
            continue
        rank = "nearest rank x[⌈n p⌉ − 1] of the sorted complete − submit; only where n (1 − p) ≥ 10"
        table = figure_table(ground.titled(f"{title}: percentiles", state), places, [
            *(Figure(f"{name}_ns", label, "time", "", rank, "lower") for name, label in (
                ("p50", "p50"), ("p90", "p90"), ("p99", "p99"), ("p99_9", "p99.9"))),
            Figure("mean_ns", "mean", "time", "", "Σ latency / n", "lower"),
            Figure("max_ns", "maximum", "time", better="lower"), Figure("n", "I/Os", "count")],
            ("states", state, "{of}", f"{kind}_latency"), (Column("of", "Run"),))
        yield Exhibit(ground.named(id_, state), ground.titled(title, state), _told_small(table),
                      tail(f"{title}: share of I/Os that took at least so long", lines,
                           ground.apart([ROLES[role] for role in roles]), f"{kind} latency"), "lower",
                      "Further left is better. Faint where fewer than 10 I/Os lie beyond: too few to rely on.")


def _told_small(table):
    """Percentiles that are not given say why."""
    def told(row):
        n = row.values.get("n")
        return {key: f"n too small (n={n:,})" if why == "not measured" and key.startswith("p") and n else why
                for key, why in row.why.items()}
    return Table(table.caption, table.columns, tuple(
        Row(row.values, row.entry, told(row), row.whole, row.group, row.path) for row in table.rows))


def _bursts(ground, state):
    places, rows = [], []
    for subject in ground.subjects:
        test = subject.tests[0]
        bursts = (test["figures"]["states"].get(state) or {}).get("bursts") or {}
        first = min((burst["repeat"] for burst in bursts.values()), default=None)
        for key, burst in bursts.items():
            if burst["repeat"] != first:
                continue
            if burst["slowdown"] is not None:
                rows.append({"entry": subject.key, "line": "", "x": burst["burst"] + 1, "y": burst["slowdown"]})
            places.append(Place(Subject(subject.key, (test,)), ("states", state, "bursts", key), {"burst": key}))
    if not places:
        return None
    table = figure_table(ground.titled("Read bursts", state), places, [
        Figure("makespan_ns", "Took", "time", "", "max(complete) − min(submit) of its reads", "lower"),
        Figure("baseline_ns", "Alone", "time", "", "the same burst without a writer"),
        Figure("slowdown", "Slowdown", "number", "", "took / alone", "lower")],
        ("states", state, "bursts", "{burst}"), (
            Column("burst", "Burst", formula="in order, from 0; behind a dash the repeat"),))
    return Exhibit(ground.named("bursts", state), ground.titled("Slowdown of each read burst", state), table,
                   curves("Slowdown of each read burst", rows, ground.apart(), Axis("read burst", kind="count"),
                          Axis("times as long as alone", "×", "auto")), "lower",
                   "Even from burst to burst is what one can count on.")


def _waiting(ground, state):
    places = [Place(subject, ("states", state, role, "read_waiting"), {"of": role})
              for subject in ground.subjects for role in ROLES
              if subject.holds("states", state, role, "read_waiting")]
    if not places:
        return None
    weighted = "smallest x with Σ(l where l ≤ x) ≥ p Σ l"
    table = figure_table(ground.titled("In which reads the waiting was spent", state), places, [
        Figure("p50_ns", "half of it in reads up to", "time", "", weighted, "lower"),
        Figure("p90_ns", "90 %", "time", "", weighted, "lower"),
        Figure("p99_ns", "99 %", "time", "", weighted, "lower")], ("states", state, "{of}", "read_waiting"),
        (Column("of", "Run"),))
    if not any(row.values.get("p50_ns") for row in table.rows):
        return None
    return Exhibit(ground.named("waiting", state), ground.titled("In which reads the waiting was spent", state), table,
                   better="lower", text="Latency-weighted percentiles: each read counts by how long it took.")
