"""The charts of a report and a comparison, as Vega-Lite specifications made with Altair.

Data is reduced before it comes here. Colours come from the page's theme; what colour tells is told by a label,
a dash or a shape as well.
"""

import json

import altair as alt

from . import numbers
from .document import Entry
from .theme import DASHES, SHAPES
from .timeline import MAX_BINS

TAIL_POINTS = 120
_TIME_LABEL = "".join(f"datum.value >= {scale} ? format(datum.value / {scale}, '~r') + ' {unit}' : "
                      for scale, unit in (("1e9", "s"), ("1e6", "ms"), ("1e3", "µs"))) + "datum.value + ' ns'"
_SHARE_LABEL = ("format(datum.value * 100, '~r') + ' %' + (datum.value == 0.5 ? '' : datum.value == 0.1 ? '  p90' : "
                "datum.value == 0.01 ? '  p99' : datum.value == 0.001 ? '  p99.9' : '')")
_MIN_TAIL_NS = 100  # a logarithmic axis has no zero: what is smaller is drawn there
LIMITS_NS = {"limit of p99": 100_000, "limit": 10_000_000}


def name_of(entry: Entry) -> str:
    """The entry's label; one that failed its checks is marked wherever it is drawn."""
    shown = entry.shown
    return shown["label"] + (" (invalid)" if shown["verdict"]["level"] == "invalid" else "")


def ranking(entries: list[Entry], name: str, title: str, domain: list[str], higher_is_better: bool) -> dict | None:
    """One bar per entry from zero, its value beside it; the range of its runs as a line where there are several."""
    values = [{"label": entry.shown["label"], "name": name_of(entry), **entry.shown["headline"][name]}
              for entry in entries]
    values = [value for value in values if value["value"] is not None]
    if not values:
        return None
    is_time = name.endswith("_ns")
    scale, unit = numbers.time_unit([value["value"] for value in values]) if is_time else (1, "MB/s")
    for value in values:
        for key in ("value", "smallest", "largest"):
            if value[key] is not None:
                value[key] /= scale
        value["text"] = f"{numbers.digits(value['value'])} {unit}"
    values.sort(key=lambda value: value["value"], reverse=higher_is_better)
    top = max(max(value["value"], value["largest"] or 0) for value in values) or 1
    base = alt.Chart(alt.Data(values=values)).encode(
        y=alt.Y("name:N", sort=[value["name"] for value in values], axis=None),
        x=alt.X("value:Q", axis=None).scale(domain=[0, top * 1.34]))
    # Names above the bars: beside them, long ones would leave the bars no room.
    names = base.mark_text(align="left", baseline="bottom", dy=-5).encode(text="name:N", x=alt.datum(0))
    bars = base.mark_bar(height=15, yOffset=6, cornerRadiusEnd=2).encode(
        color=alt.Color("label:N", legend=None).scale(domain=domain),
        tooltip=[alt.Tooltip("name:N", title="drive"), alt.Tooltip("text:N", title=title)])
    # Beside the whisker, where there is one.
    text = base.mark_text(align="left", baseline="middle", dx=6, dy=6, fontWeight=600).encode(
        text="text:N", x=alt.X("end:Q")).transform_calculate(end="max(datum.value, datum.largest || 0)")
    layers = [bars, names, text]
    if any(value["largest"] is not None for value in values):
        spread = base.mark_rule(strokeWidth=2, yOffset=6, y2Offset=6, style="spread")
        layers.append(spread.encode(x="smallest:Q", x2="largest:Q"))
    return _finish(alt.layer(*layers), height=48 * len(values), description=f"{title} by drive")


def tail(named: list[tuple[Entry, object]], domain: list[str], what: str, limits: bool = False) -> dict | None:
    """The share of I/Os that took at least so long, both axes logarithmic; faint where fewer than 10 lie beyond.

    named: (entry, one of its distributions). limits: draw those of the replay's verdict.
    """
    values = [point for entry, counts in named for point in _tail_points(entry.shown["label"], counts)]
    if not values:
        return None
    present = [label for label in domain if any(value["label"] == label for value in values)]
    long = sum(len(name_of(entry)) + 4 for entry, _ in named) > 34
    legend = alt.Legend(orient="top", columns=1 if long else 0, symbolStrokeWidth=0, symbolOpacity=1, values=present,
                        labelExpr=_marked(named))
    lowest = min(value["share"] for value in values)
    shares = [share for share in (1, 0.5, 0.1, 0.01, 0.001, 1e-4, 1e-5, 1e-6) if share >= lowest / 3]
    base = alt.Chart(alt.Data(values=values)).encode(
        x=alt.X("ns:Q", title=what).scale(type="log", nice=False).axis(
            labelExpr=_TIME_LABEL, values=[10**power for power in range(2, 12)], grid=True),
        y=alt.Y("share:Q", title="share that took at least so long").scale(
            type="log", domain=[min(lowest, shares[-1]), 1]).axis(labelExpr=_SHARE_LABEL, values=shares),
        color=alt.Color("label:N", title=None, legend=legend).scale(domain=domain),
        strokeDash=alt.StrokeDash("label:N", title=None, legend=legend).scale(domain=domain, range=DASHES))
    line = base.mark_line(interpolate="step-before", strokeWidth=2, clip=True)
    layers = [line.transform_filter("datum.enough"),
              line.mark_line(interpolate="step-before", strokeWidth=1.2, opacity=0.4, clip=True).transform_filter(
                  "!datum.enough || datum.edge"),
              base.mark_point(size=55, filled=True, opacity=1).encode(
                  shape=alt.Shape("label:N", title=None, legend=legend).scale(domain=domain, range=SHAPES),
                  tooltip=[alt.Tooltip("label:N", title="drive"), alt.Tooltip("mark:N", title="percentile"),
                           alt.Tooltip("text:N", title="value")]).transform_filter("datum.mark")]
    if limits:
        layers += _limit_layers()
    return _finish(alt.layer(*layers), height=250, description=f"Tail of {what}, by drive")


def _marked(named):
    """Legend text: the label, with a word at the entries that failed their checks."""
    failed = [entry.shown["label"] for entry, _ in named if name_of(entry) != entry.shown["label"]]
    return f"datum.label + (indexof({json.dumps(failed)}, datum.label) >= 0 ? ' (invalid)' : '')"


def _tail_points(label, counts):
    total = counts.count
    points = [{"label": label, "ns": max(value, _MIN_TAIL_NS), "share": beyond / total, "enough": beyond >= 10,
               "beyond": beyond} for value, beyond in counts.tail(TAIL_POINTS)]
    shown = [point for point in points if point["enough"]]
    if shown:
        shown[-1]["edge"] = True  # where the faint line takes over
    for mark, share in (("p50", 2), ("p90", 10), ("p99", 100), ("p99.9", 1000)):
        if total >= 10 * share:
            value = counts.percentile((share - 1, share))
            points.append({"label": label, "ns": max(value, _MIN_TAIL_NS), "share": 1 / share, "enough": True,
                           "mark": mark, "text": numbers.duration(value)})
    return points


def _limit_layers():
    rows = alt.Data(values=[{"ns": ns, "text": text} for text, ns in LIMITS_NS.items()])
    base = alt.Chart(rows).encode(x="ns:Q")
    return [base.mark_rule(strokeDash=[3, 3], style="limit"),
            base.mark_text(align="left", baseline="top", dx=4, y=2, style="limit-label").encode(text="text:N")]


def timeline(entries: list[Entry]) -> dict | None:
    """Throughput of reads over that of writes, one row per entry on one scale; the strip below zooms all of them."""
    drawn = [(entry, entry.measured[0].timeline) for entry in entries if entry.measured[0].timeline.used]
    if not drawn:
        return None
    width_ns = max(line.width_ns for _, line in drawn)
    for _, line in drawn:
        while line.width_ns < width_ns:
            line.coarsen()
    length = max(line.used for _, line in drawn) * width_ns / 1e9
    steps = {id(line): timeline_steps(line) for _, line in drawn}
    top = max((step[key] for rows in steps.values() for step in rows for key in ("read", "write")), default=0) or 1
    brush = alt.selection_interval(encodings=["x"], name="zoom", mark=alt.BrushConfig(fillOpacity=0.15))
    rows = []
    for index, (entry, line) in enumerate(drawn):
        last = index == len(drawn) - 1
        base = alt.Chart(alt.Data(values=steps[id(line)])).encode(
            x=alt.X("t:Q", title="seconds since the first I/O" if last else None).scale(
                domain=brush, nice=False).axis(labels=last, ticks=last, grid=False))
        rows.append(_lanes(base, top, legend=index == 0).properties(
            height=116, title=alt.TitleParams(name_of(entry), subtitle=_caption(entry))))
    whole = max((steps[id(line)] for _, line in drawn), key=len)
    strip = _lanes(alt.Chart(alt.Data(values=whole)).encode(
        x=alt.X("t:Q", title="drag here to zoom all rows; double click to reset").scale(
            domain=[0, length], nice=False).axis(grid=False)), top, legend=False, axis=False).properties(
        height=34).add_params(brush)
    chart = alt.vconcat(*rows, strip, spacing=14)
    spec = _finish(chart, description="Throughput of reads over writes, by drive, over time")
    # The domain of the rows before anything is selected.
    _set_initial_domain(spec, length)
    return spec


def timeline_steps(line) -> list[dict]:
    """Steps in MB/s at the start of each bin, equal neighbours left out."""
    rows, before = [], None
    factor = 1000 / line.width_ns
    for index in range(line.used):
        value = tuple(int(count) for count in line.bytes[:, index])
        if value != before:
            rows.append({"t": round(index * line.width_ns / 1e9, 6), "read": round(value[0] * factor, 3),
                         "write": round(value[1] * factor, 3)})
        before = value
    end = {"read": 0, "write": 0} if not rows else {key: rows[-1][key] for key in ("read", "write")}
    rows.append({"t": round(line.used * line.width_ns / 1e9, 6), **end})
    return rows


def _lanes(base, top, legend, axis=True):
    y_axis = alt.Axis(tickCount=3, minExtent=46, maxExtent=46, format=",~r") if axis else None
    scale = alt.Scale(domain=[0, top * 1.04], nice=False)
    writes = base.mark_area(interpolate="step-after", opacity=0.55, style="writes", clip=True).encode(
        y=alt.Y("write:Q", title="MB/s" if axis else None, axis=y_axis, scale=scale))
    y = alt.Y("read:Q", axis=y_axis, scale=scale)
    area = base.mark_area(interpolate="step-after", opacity=0.35, style="reads", clip=True).encode(y=y)
    # No line along zero: it would look like something being read.
    line = base.mark_line(interpolate="step-after", strokeWidth=1.4, style="reads", clip=True).encode(
        y=alt.Y("edge:Q", axis=y_axis, scale=scale)).transform_calculate(edge="datum.read > 0 ? datum.read : null")
    return alt.layer(writes, area, line)


def _caption(entry):
    shown = entry.shown
    parts = [f"{name} {numbers.digits(shown['headline'][key]['value'])} MB/s"
             for name, key in (("reads", "read_throughput_mb_s"), ("writes", "write_throughput_mb_s"))
             if shown["headline"][key]["value"] is not None]
    if shown["headline"]["wait_ns"]["value"] is not None:
        parts.append(f"wait {numbers.duration(shown['headline']['wait_ns']['value'])}")
    if shown["n"] > 1:
        parts.append(f"first of {shown['n']} runs")
    return " · ".join(parts)


def sizes(entry: Entry) -> dict | None:
    """How many reads and writes there are of each size."""
    values = size_rows(entry)
    if not values:
        return None
    order = [value["size"] for value in values if value["op"] == "reads"]
    base = alt.Chart(alt.Data(values=values)).encode(
        x=alt.X("size:N", sort=order, title="size up to").axis(labelAngle=0, ticks=False, labelOverlap=True),
        y=alt.Y("share:Q", title="share of the I/Os").axis(format=".0%", tickCount=4),
        xOffset=alt.XOffset("op:N", sort=["reads", "writes"]),
        tooltip=["op:N", "size:N", alt.Tooltip("ops:Q", format=",")])
    layers = [base.mark_bar(style=op, cornerRadiusEnd=2).transform_filter(f"datum.op == '{op}'")
              for op in ("reads", "writes")]
    return _finish(alt.layer(*layers), height=200, description="Sizes of reads and writes")


def size_rows(entry: Entry) -> list[dict]:
    """Sizes by powers of two from the smallest to the largest that occur."""
    counted = {}
    for op, part in (("reads", entry.partial.read), ("writes", entry.partial.write)):
        for length, count in zip(*(column.tolist() for column in part.sizes.items()), strict=True):
            bucket = 1 << max(0, length - 1).bit_length()
            counted[op, bucket] = counted.get((op, bucket), 0) + count
    if not counted:
        return []
    low, high = (pick(bucket for _, bucket in counted) for pick in (min, max))
    buckets = [1 << power for power in range(low.bit_length() - 1, high.bit_length())]
    totals = {"reads": entry.partial.read.ops or 1, "writes": entry.partial.write.ops or 1}
    return [{"op": op, "size": numbers.binary_size(bucket), "ops": counted.get((op, bucket), 0),
             "share": counted.get((op, bucket), 0) / totals[op]} for bucket in buckets for op in totals]


def heat(entry: Entry, kind: int) -> dict | None:
    """Where on the drive the I/O went, over time: 0 for reads, 1 for writes."""
    grid = entry.measured[0].heat
    values = [{"t": column * grid.width_ns / 1e9, "t2": (column + 1) * grid.width_ns / 1e9,
               "gb": row * grid.height_bytes / 1e9, "gb2": (row + 1) * grid.height_bytes / 1e9,
               "bytes": int(grid.cells[kind, row, column]), "text": numbers.size(int(grid.cells[kind, row, column]))}
              for row in range(grid.cells.shape[1]) for column in range(grid.cells.shape[2])
              if grid.cells[kind, row, column]]
    if not values:
        return None
    # One frame for reads and writes, so that they can be laid side by side.
    used = grid.cells.sum(axis=0)
    length = (int(used.sum(axis=0).nonzero()[0][-1]) + 1) * grid.width_ns / 1e9
    top = (int(used.sum(axis=1).nonzero()[0][-1]) + 1) * grid.height_bytes / 1e9
    chart = alt.Chart(alt.Data(values=values)).mark_rect(stroke=None).encode(
        x=alt.X("t:Q", title="seconds since the first I/O").scale(nice=False, domain=[0, length]), x2="t2:Q",
        y=alt.Y("gb:Q", title="place on the drive, GB").scale(nice=False, domain=[0, top]), y2="gb2:Q",
        color=alt.Color("bytes:Q", title=None).scale(type="log").legend(None),
        tooltip=[alt.Tooltip("text:N", title="moved"), alt.Tooltip("t:Q", title="from s", format=".3f"),
                 alt.Tooltip("gb:Q", title="from GB", format=".3f")])
    return _finish(chart, height=190, description="Bytes by place on the drive and time")


def places(entry: Entry, kind: int) -> list[tuple[float, float, int]]:
    """(from GB, to GB, bytes) of the places on the drive that were touched."""
    grid = entry.measured[0].heat
    step = grid.height_bytes / 1e9
    totals = grid.cells[kind].sum(axis=1)
    return [(row * step, (row + 1) * step, int(total)) for row, total in enumerate(totals) if total]


def iops_rows(entry: Entry) -> list[dict]:
    """Mean IOPS of each second, reads and writes; of several seconds together where there are more than MAX_BINS."""
    (reads, _), (writes, _) = (part.seconds.runs[0] for part in (entry.partial.read, entry.partial.write))
    together = -(-len(reads) // MAX_BINS) or 1
    return [{"t": start, "reads": float(reads[start:start + together].mean()),
             "writes": float(writes[start:start + together].mean())} for start in range(0, len(reads), together)]


def iops(entry: Entry) -> dict | None:
    """Completions per second over time."""
    rows = iops_rows(entry)
    if len(rows) < 2:
        return None
    values = [*rows, {**rows[-1], "t": 2 * rows[-1]["t"] - rows[-2]["t"]}]
    base = alt.Chart(alt.Data(values=values)).encode(
        x=alt.X("t:Q", title="seconds since the first I/O").scale(nice=False).axis(grid=False))
    layers = [base.mark_line(interpolate="step-after", strokeWidth=1.6, style=op, strokeDash=dash).encode(
        y=alt.Y(f"{op}:Q", title="completions per second").axis(tickCount=4, format=",~r"))
        for op, dash in (("writes", [4, 2]), ("reads", [1, 0]))]
    return _finish(alt.layer(*layers), height=190, description="Completions per second of reads and writes")


def _set_initial_domain(spec, length):
    """A brush that selects nothing leaves the rows at the range of their own data; they are to share one."""
    def walk(node):
        if isinstance(node, dict):
            scale = node.get("scale")
            if isinstance(scale, dict) and isinstance(scale.get("domain"), dict) and "param" in scale["domain"]:
                scale["domainMax"] = {"expr": f"isValid(zoom.t) ? zoom.t[1] : {length}"}
                scale["domainMin"] = {"expr": "isValid(zoom.t) ? zoom.t[0] : 0"}
                del scale["domain"]
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(spec)


def _finish(chart, height=None, description="") -> dict:
    properties = {"description": description}
    if height:
        # Charts fill their place on the page; rows of a timeline are given their width when they are drawn.
        properties |= {"height": height, "width": "container", "autosize": alt.AutoSizeParams(
            type="fit-x", contains="padding")}
    spec = chart.properties(**properties).to_dict()
    spec.pop("config", None)  # the page's theme stands in its place
    return spec
