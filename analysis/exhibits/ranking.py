"""Drives in the order of one figure: a dot each, with its interval or the range of its runs as a whisker."""

from .. import numbers
from ..columns import missing
from ..definitions import HEADLINE
from ..verdict import ENOUGH_RUNS
from .commands import command, path_of
from .model import Column, Exhibit, Row, Table
from .parts import finished, name_of, tooltip

# id of the chart, figure of the headline, whether higher is better
RANKINGS = (("wait", "wait_ns", False), ("read-throughput", "read_throughput_mb_s", True),
            ("read-service", "read_service_ns", False))
ROW_STEP = 40
_FAR_APART = 40  # largest / smallest: beyond it the small ones would all lie on zero
_TICKS = [each * 10**power for power in range(-6, 7) for each in (1, 3)]  # of a logarithmic axis
_DOWN = 9  # of the dots, below the names


def ranked(entries: list[dict], name: str, higher_is_better: bool) -> list[dict]:
    """Entries of a document that have the figure, the best first; the place, the rank and whether others share it stand
    beside each. Ranks are the document's (analysis/ranking.py); where runs are too few for any, places stand for them.
    """
    known = sorted((entry for entry in entries if entry["headline"][name]["value"] is not None),
                   key=lambda entry: entry["headline"][name]["value"] * (-1 if higher_is_better else 1))
    ranks = [entry["headline"][name].get("rank") for entry in known]
    if not any(ranks):
        ranks = range(1, len(known) + 1)
    return [{"shown": entry, "place": place, "rank": rank, "tied": bool(rank) and list(ranks).count(rank) > 1}
            for place, (entry, rank) in enumerate(zip(known, ranks, strict=True))]


def ranking(id_: str, entries: list[dict], name: str, higher_is_better: bool,
            hues: dict | None = None) -> Exhibit | None:
    """hues: {"title", "of": {label: value}}, a property that colour and shape tell; None where none is known."""
    rows = ranked(entries, name, higher_is_better)
    if not rows:
        return None
    definition = HEADLINE[name]
    title = definition.title
    if name == "read_throughput_mb_s" and any(entry["writer"] != "none" for entry in entries):
        title = "Read throughput under background writes"
    better = "higher" if higher_is_better else "lower"
    return Exhibit(id_, title, _table(entries, rows, name, title, better),
                   _spec(rows, name, title, better, hues), better, notes=_notes(entries, rows, name))


def _span(figure):
    """(low, high, what they are) of a figure: its interval where runs suffice for one, else the range of its runs."""
    if figure.get("low") is not None:
        return figure["low"], figure["high"], figure.get("interval") or "95 % interval"
    if figure["smallest"] is not None:
        return figure["smallest"], figure["largest"], "range of the runs"
    return None, None, ""


def _spec(rows, name, title, better, hues):
    values, shaded = [], 0
    figures = [row["shown"]["headline"][name] for row in rows]
    scale, unit = numbers.time_unit([f["value"] for f in figures]) if name.endswith("_ns") else (1, "MB/s")
    for row, figure in zip(rows, figures, strict=True):
        shown, (low, high, span) = row["shown"], _span(figure)
        fresh = not values or values[-1]["rank"] != row["rank"]
        shaded = 0 if not row["tied"] else 1 + shaded % 2 if fresh else shaded  # neighbouring groups differ
        value = figure["value"] / scale
        values.append({
            "entry": shown["label"], "name": name_of(shown), "place": row["place"], "rank": row["rank"],
            "ranked": str(row["rank"] or "too few runs"),
            "value": value, "low": value if low is None else low / scale,
            "high": value if high is None else high / scale,
            "thick": 4 if figure.get("low") is not None else 1.2, "band": (0, 1, .55)[shaded],
            "text": f"{numbers.digits(value)} {unit}", "n": shown["n"],
            "span": f"{span}: {numbers.digits(low / scale)} to {numbers.digits(high / scale)} {unit}" if span else
                    f"n={shown['n']}", "hue": (hues or {"of": {}})["of"].get(shown["label"], "not told")})
    largest = max(max(value["value"], value["high"]) for value in values)
    least = min(min(value["value"], value["low"]) for value in values)
    far = least > 0 and largest / least > _FAR_APART
    axis = {"type": "log", "nice": False, "padding": 14} if far else {"zero": True, "nice": True}
    y = {"field": "name", "type": "nominal", "axis": None, "sort": {"field": "place", "op": "min"},
         "scale": {"paddingInner": 0, "paddingOuter": 0}}
    x = {"type": "quantitative", "scale": axis,
         "axis": {"title": f"{unit}{', logarithmic' if far else ''}", "tickCount": 4, "format": "~r",
                  **({"values": _TICKS} if far else {}), "grid": True, "domain": False, "ticks": False}}
    whole = {"x": {"value": 0}, "x2": {"value": "width"}}
    marked = "datum.entry === highlight"
    layers = [
        {"mark": {"type": "rect", "style": "band"},
         "encoding": {"y": y, **whole, "opacity": {"field": "band", "type": "quantitative", "scale": None}}},
        {"mark": {"type": "rule", "style": "reference"},
         "encoding": {"x": {"field": "value", **x},
                      "opacity": {"condition": {"test": marked, "value": 1}, "value": 0}}},
        {"mark": {"type": "rule", "style": "spread", "yOffset": _DOWN, "strokeCap": "butt"},
         "encoding": {"y": y, "x": {"field": "low", **x}, "x2": {"field": "high"},
                      "strokeWidth": {"field": "thick", "type": "quantitative", "scale": None}}},
        {"mark": {"type": "point", "style": "highlight", "filled": False, "strokeWidth": 2, "size": 260,
                  "yOffset": _DOWN},
         "encoding": {"y": y, "x": {"field": "value", **x},
                      "opacity": {"condition": {"test": marked, "value": 1}, "value": 0}}},
        {"mark": {"type": "point", "style": "plain", "filled": True, "opacity": 1, "yOffset": _DOWN, "size": 95},
         "encoding": {"y": y, "x": {"field": "value", **x}, **_coloured(values, hues),
                      "tooltip": tooltip(("name", "drive"), ("text", title), ("span", "spread"), ("ranked", "rank"),
                                         ("n", "runs"))}},
        {"mark": {"type": "text", "align": "left", "baseline": "bottom", "dx": 2,
                  "limit": {"expr": "width - 82"}, "fontWeight": {"expr": f"{marked} ? 700 : 400"}},
         "encoding": {"y": y, "x": {"value": 0}, "text": {"field": "name", "type": "nominal"}}},
    ]
    # The figure, with a rim of the page's colour, because the reference line may pass through it.
    layers += [{"mark": {"type": "text", "align": "right", "baseline": "bottom", "dx": -2, "fontWeight": 600, **rim},
                "encoding": {"y": y, "x": {"value": "width"}, "text": {"field": "text", "type": "nominal"}}}
               for rim in ({"stroke": {"expr": "page"}, "strokeWidth": 4}, {})]
    return finished(f"{title} by drive, the best first; {better} is better", height={"step": ROW_STEP},
                    data={"values": values}, layer=layers)


def _coloured(values, hues):
    if not hues or len({value["hue"] for value in values}) < 2:
        return {}
    legend = {"orient": "top", "title": hues["title"], "symbolOpacity": 1}
    return {channel: {"field": "hue", "type": "nominal", "legend": legend} for channel in ("color", "shape")}


def _notes(entries, rows, name):
    notes = []
    if any(row["tied"] for row in rows):
        notes.append("Drives on one shade tie: the interval of their ratio holds 1, or they are under 2 % apart.")
    few = [entry for entry in entries if entry["n"] < ENOUGH_RUNS]
    if few:
        notes.append(f"With fewer than {ENOUGH_RUNS} runs there is no interval: that order is an observation, not yet "
                     "a finding." + (" The thin line is the range of the runs." if any(each["n"] > 1 for each in few)
                                   else ""))
    missed = [entry["label"] for entry in entries if entry["headline"][name]["value"] is None]
    if missed:
        notes.append(f"Without this figure: {', '.join(missed)}.")
    return tuple(notes)


def _table(entries, rows, name, title, better):
    definition, (stem, unit) = HEADLINE[name], _parted(name)
    shape = {"format": "time"} if unit == "_ns" else {"format": "rate"}
    columns = (
        Column("rank", "Rank", "count"), Column("drive", "Drive"), Column("state", "State"),
        Column(name, title, **shape, formula=definition.formula, better=better,
               recompute=command(definition.key)),
        Column(f"{stem}_low{unit}", "Interval, low", **shape, formula="95 % interval over runs, on ln of the figure"),
        Column(f"{stem}_high{unit}", "Interval, high", **shape, formula="95 % interval over runs, on ln of the figure"),
        Column(f"{stem}_smallest{unit}", "Smallest run", **shape),
        Column(f"{stem}_largest{unit}", "Largest run", **shape),
        Column("runs", "Runs", "count"), Column("verdict", "Verdict", "verdict"))
    by_label = {row["shown"]["label"]: row for row in rows}
    ordered = [row["shown"] for row in rows] + [entry for entry in entries if entry["label"] not in by_label]
    return Table(f"{title}, the best first", columns, tuple(_row(entry, by_label.get(entry["label"]), name)
                                                            for entry in ordered))


def _row(entry, ranked_row, name):
    figure, (stem, unit) = entry["headline"][name], _parted(name)
    values = {"rank": ranked_row["rank"] if ranked_row else None, "drive": entry["label"],
              "state": (entry["state"] or {}).get("name"), name: figure["value"],
              f"{stem}_low{unit}": figure.get("low"), f"{stem}_high{unit}": figure.get("high"),
              f"{stem}_smallest{unit}": figure["smallest"], f"{stem}_largest{unit}": figure["largest"],
              "runs": entry["n"], "verdict": entry["verdict"]["level"]}
    why = {name: missing(entry, name)} if figure["value"] is None else {}
    if not values["rank"]:
        why["rank"] = f"n={entry['n']}: too few runs"
    if figure.get("low") is None:
        few = f"n={entry['n']}: too few runs"
        why |= {f"{stem}_low{unit}": few, f"{stem}_high{unit}": few}
    whole = {}
    if name == "read_throughput_mb_s" and entry["writer"] == "fell behind":
        whole[name] = "writer fell behind"
    return Row(values, entry["label"], why, whole, path=path_of(entry))


def _parted(name):
    for unit in ("_ns", "_mb_s"):
        if name.endswith(unit):
            return name.removesuffix(unit), unit
    raise ValueError(name)
