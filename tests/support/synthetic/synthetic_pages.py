"""Synthetic report pages: one, three or twenty drives, with every kind of chart."""

import random

from blkreel.analysis.charts.model import Chart, Column, Entry, Page, Row, Section, Table
from blkreel.analysis.report.page import method

MAKERS = ("WD Black", "Samsung", "Crucial", "Kioxia", "Solidigm", "Corsair", "Sabrent", "Micron", "Seagate", "SK hynix")
CLASSES = ("consumer", "enterprise")
INTERFACES = ("PCIe 3.0 x4", "PCIe 4.0 x4", "PCIe 5.0 x4", "SATA")
FLASH = ("TLC", "QLC", "MLC")
_HIGHLIGHT = {"name": "highlight", "value": ""}
_MARKED = "datum.entry === highlight"


def drives(count: int, seed: int = 5) -> list[Entry]:
    chance = random.Random(seed)
    entries = []
    for index in range(count):
        level = "invalid" if index == 7 else "qualified" if index % 3 == 1 else "valid"
        reasons = [{"level": "qualified", "text": "fewer than 6 runs (n=3)"}]
        if index == 7:
            reasons.append({"level": "invalid", "text": "host-limited lateness: p99 312 µs exceeds 100 µs"})
        maker = MAKERS[index % len(MAKERS)]
        facts = {"model": f"{maker} Model {index} 1TB", "firmware": f"{chance.randrange(10**5):05d}W",
                 "unit": f"{chance.randrange(16**6):06x}", "class": CLASSES[index % 5 == 4],
                 "interface": INTERFACES[index % 4], "flash": FLASH[index % 3] if index != 5 else None,
                 "price": f"{60 + 7 * index}.90 EUR", "predecessor": f"{MAKERS[8]} SN{790}" if index == 0 else ""}
        entries.append(Entry(f"{maker} SN{710 + 10 * index}", facts, {"level": level, "reasons": reasons},
                             rank=index + 1 if index != count - 1 or count < 3 else None, highlighted=index == 2))
    return entries


def chart_of(values, description, **more):
    return {"description": description, "params": [_HIGHLIGHT], "width": "container",
            "autosize": {"type": "fit-x", "contains": "padding"}, "data": {"values": values}, **more}


def axis(field, **more):
    return {"field": field, "type": "quantitative", **more}


def if_marked(marked, other):
    return {"condition": {"test": _MARKED, "value": marked}, "value": other}


def ranking(name: str, title: str, entries: list[Entry], seed: int, better: str, form: str = "time") -> Chart:
    """Dots with whiskers; the second of the entries has no figure."""
    chance = random.Random(seed)
    scale, unit, key = {"time": (1e9, "s", "wait_ns"), "rate": (1, "MB/s", "read_throughput_mb_s")}[form]
    rows, values = [], []
    for index, entry in enumerate(entries):
        value = (1.2 + index * 0.21 + chance.random() * 0.1) * (1e9 if form == "time" else 200)
        if index == 1:
            rows.append(Row({"entry": entry.key, key: None, "runs": 3}, entry.key, why={key: "no reads"}))
            continue
        value = round(value) if form == "time" else value
        low, high = value * 0.96 / scale, value * 1.05 / scale
        rows.append(Row({"entry": entry.key, key: value, "runs": 6}, entry.key, path=f"runs/{entry.key}/1",
                        remarks={key: f"{low:.3g} to {high:.3g} {unit}"}))
        values.append({"entry": entry.key, "value": value / scale, "low": low, "high": high})
    y = {"field": "entry", "type": "nominal", "sort": [value["entry"] for value in values], "title": None,
         "axis": {"labelLimit": 170, "ticks": False, "domain": False}}
    color = if_marked({"expr": "accent"}, {"expr": "plain"})
    spec = chart_of(values, f"{title}, a dot for each drive with its interval", height={"step": 24}, layer=[
        {"mark": {"type": "rule", "style": "reference"},
         "encoding": {"x": axis("value"), "opacity": if_marked(1, 0)}},
        {"mark": {"type": "rule", "strokeWidth": 2},
         "encoding": {"y": y, "color": color, "x2": {"field": "high"},
                      "x": axis("low", title=f"{title}, {unit}", scale={"zero": False})}},
        {"mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
         "encoding": {"y": y, "color": color, "x": axis("value"),
                      "tooltip": [{"field": "entry", "title": "drive"},
                                  {"field": "value", "title": unit, "format": ".3f"}]}}])
    figure = Column(key, title, form, better=better, recompute="blkreel report RUN --figure read.bursts.makespan_ns",
                    formula="Σ makespans of the read bursts" if form == "time" else "Σ bytes / Σ makespans")
    table = Table(f"{title} of each drive", (Column("entry", "Drive"), figure, Column("runs", "Runs", "count")),
                  tuple(rows))
    return Chart(name, title, table, spec, better, notes=("Whiskers are 95 % intervals over runs.",),
                 text="What a person would sit there for, summed over the bursts of reads.")


def timeline(name: str, entries: list[Entry], seed: int, steps: int = 120) -> Chart:
    """A row for each of at most six drives, and a strip to drag in."""
    chance, rows, table = random.Random(seed), [], []
    for entry in entries[:6]:
        values = [{"entry": entry.key, "t": step / 10, "mb_s": round(200 + 900 * chance.random() * (step // 12 % 2), 1)}
                  for step in range(steps)]
        table += [Row({"entry": entry.key, "from_ns": int(value["t"] * 1e9), "read_mb_s": value["mb_s"]}, entry.key)
                  for value in values]
        rows.append({
            "title": entry.key, "height": 74, "data": {"values": values},
            "mark": {"type": "area", "interpolate": "step-after", "clip": True, "style": "reads", "opacity": 0.7},
            "encoding": {"x": axis("t", title=None, axis={"grid": False},
                                   scale={"nice": False, "domain": {"param": "zoom"}}),
                         "y": axis("mb_s", title="MB/s", axis={"tickCount": 3, "minExtent": 40},
                                   scale={"domain": [0, 1200]})}})
    strip = {"height": 30, "data": {"values": rows[0]["data"]["values"]}, "mark": {"type": "area", "style": "reads"},
             "params": [{"name": "zoom", "select": {"type": "interval", "encodings": ["x"]}}],
             "encoding": {"x": axis("t", scale={"nice": False}, axis={"grid": False},
                                    title="seconds since the first I/O; drag to zoom all rows"),
                          "y": axis("mb_s", axis=None)}}
    spec = {"description": "Throughput of reads over time, a row for each drive", "params": [_HIGHLIGHT],
            "vconcat": [*rows, strip]}
    columns = (Column("entry", "Drive"), Column("from_ns", "From", "time", formula="start of the bin"),
               Column("read_mb_s", "Reads", "rate", formula="bytes completed in the bin / its width"))
    return Chart(name, "Reads over writes", Table("Throughput over time", columns, tuple(table)), spec, wide=True,
                 zooms=True, text="First run of each drive.")


def tail(name: str, entries: list[Entry], seed: int) -> Chart:
    chance, values, rows = random.Random(seed), [], []
    for entry in entries:
        base = 60_000 * (1 + chance.random())
        values += [{"entry": entry.key, "ns": base * 1.35**step, "share": 0.5**step} for step in range(15)]
        rows.append(Row({"entry": entry.key, "n": 64_000, "p50_ns": round(base), "p99_ns": round(base * 7.4),
                         "p99_99_ns": None}, entry.key, why={"p99_99_ns": "n too small"}))
    lines = {"detail": {"field": "entry"},
             "x": axis("ns", scale={"type": "log"}, title="read latency, ns", axis={"format": "~s"}),
             "y": axis("share", scale={"type": "log"}, title="share that took at least so long")}
    spec = chart_of(values, "Latency of reads, the share that took at least so long", height=280, layer=[
        {"mark": {"type": "line", "style": "other", "strokeWidth": 1.3}, "encoding": lines},
        {"mark": {"type": "line", "style": "highlight", "strokeWidth": 2.6},
         "encoding": {**lines, "opacity": if_marked(1, 0)}}])
    columns = (Column("entry", "Drive"), Column("n", "I/Os", "count"),
               *(Column(f"{key}_ns", key.replace("_", "."), "time", formula=f"nearest rank, {key}", better="lower",
                        recompute=f"blkreel report RUN --figure read.latency.{key}_ns")
                 for key in ("p50", "p99", "p99_99")))
    return Chart(name, "Read latency", Table("Percentiles of read latency", columns, tuple(rows)), spec, "lower")


def scatter(name: str, entries: list[Entry], seed: int) -> Chart:
    chance = random.Random(seed)
    values = [{"entry": entry.key, "watts": 2 + 5 * chance.random(), "mb_j": 80 + 300 * chance.random(),
               "interface": entry.facts["interface"]} for entry in entries]
    rows = tuple(Row({"entry": value["entry"], "watts": value["watts"], "mb_j": value["mb_j"], "share": chance.random(),
                      "change": chance.random() - 0.5, "bytes": chance.randrange(10**10), "block": 4096},
                     value["entry"], group=value["interface"]) for value in values)
    spec = chart_of(values, "Megabytes per joule by power", height=280,
                    mark={"type": "point", "filled": True, "size": 90, "opacity": 0.9}, encoding={
        "x": axis("watts", title="W", scale={"zero": False}), "y": axis("mb_j", title="MB/J"),
        "shape": {"field": "interface", "legend": {"orient": "top", "title": None}},
        "color": if_marked({"expr": "accent"}, {"expr": "plain"}),
        "tooltip": [{"field": "entry"}, {"field": "mb_j", "format": ".3~g"}]})
    columns = (Column("entry", "Drive"), Column("watts", "Power", "number", "W", "mean power"),
               Column("mb_j", "Efficiency", "number", "MB/J", "bytes / joules", better="higher"),
               Column("share", "Busy", "share"), Column("change", "Change", "change"), Column("bytes", "Moved", "size"),
               Column("block", "Block", "block"))
    return Chart(name, "Efficiency", Table("Power and efficiency, by interface", columns, rows), spec, "higher")


def made(count: int = 20, paces: int = 2, steps: int = 120) -> Page:
    """A comparison of `count` drives, or a report of one."""
    entries = drives(count)
    columns = (Column("name", "Command"), Column("read_bytes", "Read", "size"), Column("service_ns", "Service", "time"))
    threads = Chart("threads", "Who did it", Table("I/O by command", columns, (
        Row({"name": "steam <b>", "read_bytes": 12_345_678_901, "service_ns": 4_567_890_123}),
        Row({"name": "kworker", "read_bytes": 4096, "service_ns": 12_345}),
        Row({"name": "idle", "read_bytes": None, "service_ns": None},
            why={"read_bytes": "no reads", "service_ns": "no reads"}))))

    def charts(index):
        return (ranking(f"s{index}-wait", "Wait time", entries, 1 + index, "lower"),
                ranking(f"s{index}-read-throughput", "Read throughput under background writes", entries, 9 + index,
                        "higher", "rate"),
                timeline(f"s{index}-timeline", entries, index, steps), tail(f"s{index}-read-tail", entries, index),
                scatter(f"s{index}-efficiency", entries, index), *((threads,) if index == paces - 1 else ()))

    titles = ("Original pace", "Idle capped at 25 ms", "As fast as the drive can")[:paces]
    sections = tuple(Section(f"s{index}", title, charts(index),
                             ("Response and service times under the arrivals of the trace.",))
                     for index, title in enumerate(titles))
    title = entries[0].key if count == 1 else f"{count} drives loading a game while another downloads"
    return Page("report" if count == 1 else "compare", title,
                "A trace of steam and aria2, replayed six times on each drive in the state “client”.", tuple(entries),
                sections, ("class", "interface", "flash"),
                ("Two runs of Kioxia SN740 were left out: the capture lost events.",) if count > 2 else (),
                (("Burst gap", "100 ms"), ("Trace", "game-load.parquet, 184,113 I/Os")), method.decisions("100 ms"),
                method.definitions(), method.PREAMBLE)
