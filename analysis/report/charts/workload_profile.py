"""What a trace is like: sizes and alignment, I/Os in flight, gaps, and the bytes by offset and time."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from blkreel.analysis.charts.matrix import MatrixCell, matrix
from blkreel.analysis.charts.model import Chart, Column, Row, Table
from blkreel.analysis.charts.series_style import SeriesStyle
from blkreel.analysis.charts.spec import Datum, Spec, finish, tooltip
from blkreel.analysis.metrics.partials.alignment import BLOCK_BYTES
from blkreel.analysis.metrics.partials.distributions import Distribution
from blkreel.analysis.metrics.partials.timeline import Heat
from blkreel.analysis.report.commands import path_of
from blkreel.analysis.report.document import Entry
from blkreel.analysis.report.workloads import Overview, interval_words, percent
from blkreel.common import units

_SIZES_COMMAND = "blkreel report RUN --format csv --chart sizes"
_OPS = (("reads", "read"), ("writes", "write"))


def workload_profile(entries: Sequence[Entry], prefix: str) -> list[Chart]:
    """entries: of a report.document.Section. The first represents all drives that replayed the trace, and the charts
    are of no single drive then; I/Os in flight depend on the drive, and are shown for a single drive."""
    entry = entries[0]
    key = entry.document["label"] if len(entries) == 1 else None
    charts = [sizes(entry, f"{prefix}sizes", key), depth(entry, f"{prefix}depth", key) if key else None,
              gaps(entry, f"{prefix}gaps", key), *heats(entry, 0, f"{prefix}heat-reads", key),
              *heats(entry, 1, f"{prefix}heat-writes", key)]
    return [chart for chart in charts if chart]


def sizes(entry: Entry, id_: str, key: str | None) -> Chart | None:
    """Reads and writes by size, in powers of two."""
    rows = _by_bucket({name: _by_power(getattr(entry.partial, op).sizes) for name, op in _OPS})
    if not rows:
        return None
    for row in rows:
        row["text"] = units.binary_size(row["bucket"])
    columns = (Column("size_up_to_bytes", "Up to", "block", formula="sizes by powers of two"),
               Column("reads", "Reads", "count", recompute=_SIZES_COMMAND),
               Column("reads_share", "of reads", "share"),
               Column("writes", "Writes", "count", recompute=_SIZES_COMMAND),
               Column("writes_share", "of writes", "share"))
    table = Table("I/Os by size", columns, tuple(_row(key, entry, "size_up_to_bytes", row) for row in rows))
    return Chart(id_, "Sizes", table, _bars(rows, "size up to", "share of the I/Os", "Sizes of reads and writes"),
                 text="The left bar of each pair is reads, the right bar writes.")


def gaps(entry: Entry, id_: str, key: str | None) -> Chart | None:
    """Time from one submission to the next, in powers of two."""
    counts = entry.partial.workload_profile.submit_gaps
    if not counts.count:
        return None
    rows = _by_bucket({"ios": _by_power(counts)})
    for row in rows:
        row["text"] = re.sub(r"\.0+ ", " ", units.duration(row["bucket"]))
    columns = (Column("gap_up_to_ns", "Up to", "time", formula="submit − submit of the I/O before, by powers of two"),
               Column("ios", "I/Os", "count"), Column("ios_share", "Share", "share"))
    table = Table("Gaps between submissions", columns, tuple(_row(key, entry, "gap_up_to_ns", row) for row in rows))
    return Chart(id_, "Gaps between submissions", table,
                 _bars(rows, "gap up to", "share of the I/Os", "Gaps between submissions"))


def depth(entry: Entry, id_: str, key: str | None) -> Chart | None:
    """Share of the time with a number of I/Os in flight; in powers of two from 8 on."""
    spent = [int(value) for value in entry.partial.depth.ns]
    if sum(spent[1:]) <= 0:
        return None
    counted: Counter[int] = Counter()
    for in_flight, value in enumerate(spent):
        counted[in_flight if in_flight <= 8 else 1 << (in_flight - 1).bit_length()] += value
    rows = [{"bucket": bucket, "ios": value, "ios_share": value / sum(spent),
             "text": str(bucket) if bucket <= 8 else f"{bucket // 2 + 1}–{bucket}"}
            for bucket, value in counted.items()]
    columns = (Column("in_flight_up_to", "I/Os in flight, up to", "count", formula="submitted and not completed"),
               Column("ios", "Time", "time", formula="Σ time with this many in flight"),
               Column("ios_share", "Share", "share"))
    table = Table("Time by I/Os in flight", columns, tuple(_row(key, entry, "in_flight_up_to", row) for row in rows))
    return Chart(id_, "I/Os in flight", table,
                 _bars(rows, "I/Os in flight", "share of the time", "Time by I/Os in flight"))


def heats(entry: Entry, op: int, id_: str, key: str | None) -> list[Chart | None]:
    """A heat map for each device of the trace. op: 0 for reads, 1 for writes."""
    grids = entry.measured[0].partial.heats
    if len(grids) == 1:
        return [_heat(grids[0], op, id_, key, "")]
    devices = entry.measured[0].metadata.get("devices") or []
    return [_heat(grid, op, f"{id_}-{grid.device}", key, f", {_device_name(devices, grid.device)}") for grid in grids]


def _device_name(devices: Sequence[Mapping[str, str]], number: int) -> str:
    name = devices[number].get("name") if number < len(devices) else None
    return f"device {number}{f' ({name})' if name else ''}"


def _heat(grid: Heat, op: int, id_: str, key: str | None, of_device: str) -> Chart | None:
    """Bytes by offset on the drive and time. of_device: appended to the titles."""
    name, cells = _OPS[op][0], grid.cells
    values: list[Datum] = [{"t": column * grid.width_ns / 1e9, "t2": (column + 1) * grid.width_ns / 1e9,
               "gb": row * grid.height_bytes / 1e9, "gb2": (row + 1) * grid.height_bytes / 1e9,
               "bytes": int(cells[op, row, column]), "text": units.size(int(cells[op, row, column]))}
              for row in range(cells.shape[1]) for column in range(cells.shape[2]) if cells[op, row, column]]
    if not values:
        return None
    # Reads and writes have the same axes, for comparison.
    used = cells.sum(axis=0)
    length = (int(used.sum(axis=0).nonzero()[0][-1]) + 1) * grid.width_ns / 1e9
    top = (int(used.sum(axis=1).nonzero()[0][-1]) + 1) * grid.height_bytes / 1e9
    least, most = (pick(value["bytes"] for value in values) for pick in (min, max))
    spec = finish(f"Bytes {name[:-1]} by offset on the drive and time{of_device}", height=190,
                  data={"values": values}, mark={"type": "rect", "stroke": None}, encoding={
        "x": {"field": "t", "type": "quantitative", "title": "seconds since the first I/O",
              "scale": {"nice": False, "domain": [0, length]}, "axis": {"grid": False}}, "x2": {"field": "t2"},
        "y": {"field": "gb", "type": "quantitative", "title": "offset, GB",
              "scale": {"nice": False, "domain": [0, top]}, "axis": {"grid": False}}, "y2": {"field": "gb2"},
        "color": {"field": "bytes", "type": "quantitative", "legend": None,
                  "scale": {"type": "log", "domain": [least, max(most, least + 1)]}},
        "tooltip": tooltip(("text", "bytes"), ("t", "from s", ".3f"), ("gb", "from GB", ".3f"))})
    columns = (Column("from_bytes", "From", "size"), Column("to_bytes", "To", "size"),
               Column("moved_bytes", "Moved", "size", formula=f"Σ bytes of the {name} that began there"))
    rows = tuple(Row({"from_bytes": row * grid.height_bytes, "to_bytes": (row + 1) * grid.height_bytes,
                      "moved_bytes": int(total)}, key) for row, total in enumerate(cells[op].sum(axis=1)) if total)
    return Chart(id_, f"{name.capitalize()} by offset and time{of_device}",
                 Table(f"Bytes by offset on the drive{of_device}", columns, rows), spec,
                 text="The stronger the color, the more bytes.")


def _by_power(values: Distribution) -> Counter[int]:
    """How many values lie up to each power of two, above the power before."""
    counted: Counter[int] = Counter()
    for value, count in zip(*(array.tolist() for array in values.items()), strict=True):
        counted[1 << max(0, int(value) - 1).bit_length()] += int(count)
    return counted


def _by_bucket(counted: Mapping[str, Mapping[int, int]]) -> list[Datum]:
    """A row for each power of two from the smallest to the largest, with counts and shares by name."""
    buckets = [bucket for counts in counted.values() for bucket in counts]
    if not buckets:
        return []
    low, high = (int(math.log2(pick(buckets))) for pick in (min, max))
    totals = {name: sum(counts.values()) or 1 for name, counts in counted.items()}
    return [{"bucket": 1 << power, **{name: counts.get(1 << power, 0) for name, counts in counted.items()},
             **{f"{name}_share": counts.get(1 << power, 0) / totals[name] for name, counts in counted.items()}}
            for power in range(low, high + 1)]


def _row(key: str | None, entry: Entry, unit: str, row: Datum) -> Row:
    values = {name: value for name, value in row.items() if name not in ("bucket", "text")}
    return Row({unit: row["bucket"], **values}, key, path=path_of(entry.document))


def _bars(rows: Sequence[Datum], x_title: str, y_title: str, description: str) -> Spec:
    order = [row["text"] for row in rows]
    names = [name for name, _ in _OPS if name in rows[0]] or ["ios"]
    layers: list[Spec] = []
    for name in names:
        values = [{"at": row["text"], "op": name, "share": row[f"{name}_share"], "count": row[name]} for row in rows]
        beside = {"xOffset": {"field": "op", "type": "nominal", "sort": names, "scale": {"domain": names}}}
        layers.append({
            "data": {"values": values},
            "mark": {"type": "bar", "style": {"ios": "plain"}.get(name, name), "cornerRadiusEnd": 2},
            "encoding": {
                "x": {"field": "at", "type": "nominal", "sort": order, "title": x_title,
                      "axis": {"labelAngle": 0, "ticks": False, "labelOverlap": True}},
                "y": {"field": "share", "type": "quantitative", "title": y_title,
                      "axis": {"format": ".0%", "tickCount": 4}},
                **(beside if len(names) > 1 else {}),
                "tooltip": tooltip(("op", "class"), ("at", "up to"), ("share", "share", ".2%"),
                                   ("count", "count", ","))}})
    return finish(description, height=200, layer=layers)


def alignment(entries: Sequence[Entry], id_: str) -> Chart | None:
    """entries: of a report.document.Section. None without writes."""
    rows = []
    for entry in entries:
        shares = entry.document["figures"]["write"]["alignment"]
        for size in BLOCK_BYTES:
            name = f"{size // 1024}k"
            if shares[f"unaligned_{name}"] is not None:
                rows.append(Row({"block_bytes": size, "unaligned": shares[f"unaligned_{name}"],
                                 "repeated": shares[f"repeated_{name}"]}, entry.document["label"],
                                group=entry.document["label"] if len(entries) > 1 else ""))
    if not rows:
        return None
    columns = (Column("block_bytes", "Block", "block"),
               Column("unaligned", "Not aligned", "share",
                      formula="writes that begin or end within a block / all writes"),
               Column("repeated", "Again into a block", "share",
                      formula="writes that begin in the block in which the previous write to the drive ended / all "
                              "writes"))
    return Chart(id_, "Alignment of writes", Table("Share of the writes, by size of block", columns, tuple(rows)))


_ALL = "all workloads"
_GRAY = "Gray: no difference shown to the drive that is 100 %, or too few runs for an interval."


def workload_matrix(overview: Overview, order: Sequence[str]) -> Chart | None:
    """order: labels of all drives of the page, as they are listed."""
    columns = [*(workload.title for workload in overview.workloads), _ALL]
    labels = [label for label in order if any(label in workload.drives for workload in overview.workloads)]
    cells = []
    for place, label in enumerate(labels):
        for workload in overview.workloads:
            own = workload.drives.get(label)
            if own:
                cells.append(MatrixCell(label, workload.title, place, own.share, not own.differ, percent(own.share),
                                        f"{workload.what} {own.text}"))
        if performance := overview.overall.get(label):
            sure = interval_words(performance)
            cells.append(MatrixCell(label, _ALL, place, performance.value, not performance.differs,
                                    percent(performance.value), f"95 % interval {sure}" if sure else "no interval"))
    spec = matrix(f"Performance of each drive on each workload in percent of {overview.reference}", cells, columns,
                  SeriesStyle(tuple(order), {}))
    metrics = "; ".join(f"{workload.title}: {workload.what}" for workload in overview.workloads)
    return Chart("workloads", f"Performance relative to {overview.reference}", _table(overview, labels), spec, "higher",
                 f"{overview.reference} is 100 %; 200 % is twice as fast. By {metrics}.",
                 (_GRAY, "The last column is the geometric mean over workloads, with its interval over runs in the "
                         "table."), wide=True)


def _table(overview: Overview, labels: Sequence[str]) -> Table:
    formula = f"value of {overview.reference} / value of the drive, inverse where higher is better"
    columns = (Column("drive", "Drive"),
               *(Column(f"workload_{index}", workload.title, "share", formula=formula, better="higher")
                 for index, workload in enumerate(overview.workloads)),
               Column("relative_performance", "All workloads", "share", better="higher",
                      formula="geometric mean over workloads"),
               Column("low", "Interval, low", "share", formula="95 % over runs, on ln"),
               Column("high", "Interval, high", "share", formula="95 % over runs, on ln"))
    rows = []
    for label in labels:
        values: dict[str, object] = {"drive": label}
        why, remarks = {}, {}
        for index, workload in enumerate(overview.workloads):
            own, key = workload.drives.get(label), f"workload_{index}"
            values[key] = own.share if own else None
            if own is None:
                why[key] = "no result"
            elif own.differ is False and label != overview.reference:
                remarks[key] = "no difference shown"
        performance = overview.overall.get(label)
        values |= {"relative_performance": performance and performance.value, "low": performance and performance.low,
                   "high": performance and performance.high}
        if performance is None:
            why["relative_performance"] = "not on every workload"
        elif performance.low is None:
            why |= dict.fromkeys(("low", "high"), "too few runs")
        rows.append(Row(values, label, why, remarks))
    return Table(f"Performance relative to {overview.reference}", columns, tuple(rows))
