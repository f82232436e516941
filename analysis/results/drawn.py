"""The series of results as line charts, reduced to what a chart can show."""

import altair as alt
import numpy as np

from .. import numbers
from ..theme import DASHES

MOST_POINTS = 1200
_FEW = 40  # so many points are drawn as points too
_DOUBLING = ("queue depth", "block size", "extent")


def reduced(xs: list, ys: list) -> tuple[list, list]:
    """At most MOST_POINTS of them: of each stretch its lowest and its highest, so that no peak and no gap is lost."""
    known = [(x, y) for x, y in zip(xs, ys, strict=True) if x is not None and y is not None]
    if len(known) <= MOST_POINTS:
        return [x for x, _ in known], [y for _, y in known]
    values = np.array([y for _, y in known])
    kept = []
    for part in np.array_split(np.arange(len(known)), MOST_POINTS // 2):
        kept += sorted({part[0] + int(values[part].argmin()), part[0] + int(values[part].argmax())})
    return [known[index][0] for index in kept], [known[index][1] for index in kept]


def lines(series: dict) -> tuple[list[dict], str]:
    """([{"name", "x", "y"}] as they are drawn, the unit of y): times in the unit that suits them."""
    drawn, unit, scale = [], series["y"]["unit"], 1
    for line in series["lines"]:
        xs, ys = reduced(line["x"], line["y"])
        drawn.append({"name": line["name"], "x": xs, "y": ys})
    if unit == "ns":
        scale, unit = numbers.time_unit([y for line in drawn for y in line["y"]])
    return [{**line, "y": [y / scale for y in line["y"]]} for line in drawn if line["x"]], unit


def by_op(series: dict) -> bool:
    """Whether its lines are reads and writes."""
    return {line["name"] for line in series["lines"]} <= {"reads", "writes"}


def chart(series: dict) -> dict | None:
    """A Vega-Lite specification; None where there is nothing to draw."""
    drawn, unit = lines(series)
    if not drawn:
        return None
    values = [{"line": line["name"], "x": x, "y": y}
              for line in drawn for x, y in zip(line["x"], line["y"], strict=True)]
    names = [line["name"] for line in drawn]
    # Rates are of the bin that begins there.
    shape = {"interpolate": "step-after"} if series["x"]["title"] == "time" and unit != "°C" else {}
    legend = alt.Legend(orient="top", columns=0, symbolStrokeWidth=2) if len(names) > 1 else None
    doubling = series["x"]["title"] in _DOUBLING
    spans = doubling and min(value["x"] for value in values) > 0
    ticks = sorted({value["x"] for value in values})
    x = alt.X("x:Q", title=_titled(series["x"]["title"], "" if doubling else series["x"]["unit"]))
    if spans:
        label = "format(datum.value, '~s')" if series["x"]["unit"] != "bytes" else _BLOCK_LABEL
        x = x.scale(type="log", base=2, nice=False).axis(values=ticks, labelExpr=label, grid=False)
    else:
        x = x.scale(nice=False, zero=False).axis(grid=False)
    plain = alt.Chart(alt.Data(values=values)).encode(
        x=x, y=alt.Y("y:Q", title=_titled(series["y"]["title"], unit)).axis(tickCount=5, format=",~r"))
    base = plain.encode(
        color=alt.Color("line:N", title=None, legend=legend).scale(domain=names),
        strokeDash=alt.StrokeDash("line:N", title=None, legend=legend).scale(domain=names, range=DASHES))
    layers = [base.mark_line(strokeWidth=1.4, **shape)]
    if by_op(series):
        # In the colours that reads and writes have on every page, reads in front.
        layers = [plain.mark_line(strokeWidth=1.4, style=name, **shape).transform_filter(alt.datum.line == name)
                  for name in ("writes", "reads") if name in names]
    elif max(len(line["x"]) for line in drawn) <= _FEW:
        layers.append(base.mark_point(size=36, filled=True, opacity=1).encode(
            strokeDash=alt.Undefined, tooltip=[alt.Tooltip("line:N", title="of"), alt.Tooltip("x:Q", title="at"),
                                               alt.Tooltip("y:Q", title=unit or "is", format=".4~g")]))
    spec = alt.layer(*layers).properties(
        description=series["title"], height=220, width="container",
        autosize=alt.AutoSizeParams(type="fit-x", contains="padding")).to_dict()
    spec.pop("config", None)  # the page's theme stands in its place
    return spec


_BLOCK_LABEL = ("datum.value >= 1073741824 ? datum.value / 1073741824 + 'G' : datum.value >= 1048576 ? "
                "datum.value / 1048576 + 'M' : datum.value >= 1024 ? datum.value / 1024 + 'K' : datum.value + ''")


def _titled(title, unit):
    return f"{title}, {unit}" if unit else title
