"""What a trace is like: sizes, I/Os in flight, gaps between submissions, and where on the drive it went."""

import math
import re

from .. import numbers
from .commands import path_of, table_command
from .model import Column, Exhibit, Row, Table
from .parts import finished, tooltip

_OPS = (("reads", "read"), ("writes", "write"))


def fingerprint(entries, prefix: str) -> list[Exhibit]:
    """entries: of an analysis.document.Section. Where several drives replayed one trace the first stands for it, and
    nothing belongs to one of them; how many I/Os were in flight is each drive's own, and shown of one alone."""
    entry = entries[0]
    key = entry.shown["label"] if len(entries) == 1 else None
    built = [sizes(entry, f"{prefix}sizes", key), depth(entry, f"{prefix}depth", key) if key else None,
             gaps(entry, f"{prefix}gaps", key), heat(entry, 0, f"{prefix}heat-reads", key),
             heat(entry, 1, f"{prefix}heat-writes", key)]
    return [one for one in built if one]


def sizes(entry, id_, key=None) -> Exhibit | None:
    """How many reads and writes there are of each size, by powers of two."""
    counted = {name: _by_power(*getattr(entry.partial, kind).sizes.items()) for name, kind in _OPS}
    rows = _paired(counted)
    if not rows:
        return None
    for row in rows:
        row["text"] = numbers.binary_size(row["bucket"])
    columns = (Column("size_bytes", "Up to", "block", formula="sizes by powers of two"),
               Column("reads", "Reads", "count", recompute=table_command("sizes")),
               Column("reads_share", "of reads", "share"),
               Column("writes", "Writes", "count", recompute=table_command("sizes")),
               Column("writes_share", "of writes", "share"))
    table = Table("I/Os by size", columns, tuple(_row(key, entry, "size_bytes", row) for row in rows))
    return Exhibit(id_, "Sizes", table, _bars(rows, "size up to", "share of the I/Os", "Sizes of reads and writes"),
                   text="Of each pair the left bar is reads, the right one writes.")


def gaps(entry, id_, key=None) -> Exhibit | None:
    """Time from one submission to the next, by powers of two; absent where the analysis has not counted it."""
    counts = getattr(getattr(entry.partial, "fingerprint", None), "submit_gaps", None)
    if counts is None or not counts.count:
        return None
    rows = _alone(_by_power(*counts.items()))
    for row in rows:
        row["text"] = re.sub(r"\.0+ ", " ", numbers.duration(row["bucket"]))
    columns = (Column("gap_ns", "Up to", "time", formula="submit − submit of the I/O before, by powers of two"),
               Column("ios", "I/Os", "count"), Column("ios_share", "Share", "share"))
    table = Table("Gaps between submissions", columns, tuple(_row(key, entry, "gap_ns", row) for row in rows))
    return Exhibit(id_, "Gaps between submissions", table,
                   _bars(rows, "gap up to", "share of the I/Os", "Gaps between submissions"))


def depth(entry, id_, key=None) -> Exhibit | None:
    """Share of the time with so many I/Os outstanding; absent where the analysis has not counted it."""
    spent = getattr(getattr(entry.partial, "depth", None), "ns", ())
    spent = [int(value) for value in spent]
    if sum(spent[1:]) <= 0:
        return None
    counted = {}
    for outstanding, value in enumerate(spent):
        bucket = outstanding if outstanding <= 8 else 1 << (outstanding - 1).bit_length()
        counted[bucket] = counted.get(bucket, 0) + value
    total = sum(spent)
    rows = [{"bucket": bucket, "ios": value, "ios_share": value / total,
             "text": str(bucket) if bucket <= 8 else f"{bucket // 2 + 1}–{bucket}"}
            for bucket, value in counted.items()]
    columns = (Column("outstanding", "I/Os in flight, up to", "count", formula="submitted and not completed"),
               Column("ios", "Time", "time", formula="Σ time with so many outstanding"),
               Column("ios_share", "Share", "share"))
    table = Table("Time by I/Os in flight", columns, tuple(_row(key, entry, "outstanding", row) for row in rows))
    return Exhibit(id_, "I/Os in flight", table,
                   _bars(rows, "I/Os in flight", "share of the time", "Time by I/Os in flight"))


def heat(entry, kind: int, id_: str, key=None) -> Exhibit | None:
    """Where on the drive the I/O went, over time: 0 for reads, 1 for writes."""
    grid, name = entry.measured[0].heat, _OPS[kind][0]
    cells = grid.cells
    values = [{"t": column * grid.width_ns / 1e9, "t2": (column + 1) * grid.width_ns / 1e9,
               "gb": row * grid.height_bytes / 1e9, "gb2": (row + 1) * grid.height_bytes / 1e9,
               "bytes": int(cells[kind, row, column]), "text": numbers.size(int(cells[kind, row, column]))}
              for row in range(cells.shape[1]) for column in range(cells.shape[2]) if cells[kind, row, column]]
    if not values:
        return None
    # One frame for reads and writes, so that they can be laid side by side.
    used = cells.sum(axis=0)
    length = (int(used.sum(axis=0).nonzero()[0][-1]) + 1) * grid.width_ns / 1e9
    top = (int(used.sum(axis=1).nonzero()[0][-1]) + 1) * grid.height_bytes / 1e9
    spec = finished(f"Bytes {name[:-1]} by place on the drive and time", height=190, data={"values": values}, mark={
        "type": "rect", "stroke": None}, encoding={
        "x": {"field": "t", "type": "quantitative", "title": "seconds since the first I/O",
              "scale": {"nice": False, "domain": [0, length]}, "axis": {"grid": False}}, "x2": {"field": "t2"},
        "y": {"field": "gb", "type": "quantitative", "title": "place on the drive, GB",
              "scale": {"nice": False, "domain": [0, top]}, "axis": {"grid": False}}, "y2": {"field": "gb2"},
        "color": {"field": "bytes", "type": "quantitative", "legend": None,
                  "scale": {"type": "log", "domain": _spread(value["bytes"] for value in values)}},
        "tooltip": tooltip(("text", "moved"), ("t", "from s", ".3f"), ("gb", "from GB", ".3f"))})
    columns = (Column("from_bytes", "From", "size"), Column("to_bytes", "To", "size"),
               Column("moved_bytes", "Moved", "size", formula=f"Σ bytes of the {name} that began there"))
    totals = cells[kind].sum(axis=1)
    rows = tuple(Row({"from_bytes": row * grid.height_bytes, "to_bytes": (row + 1) * grid.height_bytes,
                      "moved_bytes": int(total)}, key) for row, total in enumerate(totals) if total)
    return Exhibit(id_, f"Where the {name} went", Table("Bytes by place on the drive", columns, rows), spec,
                   text="The stronger, the more bytes.")


def _spread(values):
    known = list(values)
    return [min(known), max(max(known), min(known) + 1)]


def _by_power(values, counts):
    counted = {}
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        bucket = 1 << max(0, int(value) - 1).bit_length()
        counted[bucket] = counted.get(bucket, 0) + int(count)
    return counted


def _between(buckets):
    """All powers of two from the smallest to the largest."""
    low, high = (int(math.log2(pick(buckets))) for pick in (min, max))
    return [1 << power for power in range(low, high + 1)]


def _paired(counted):
    """Rows of buckets with how many reads and writes are in each, and their shares."""
    buckets = [bucket for one in counted.values() for bucket in one]
    totals = {name: sum(one.values()) or 1 for name, one in counted.items()}
    return [{"bucket": bucket, **{name: one.get(bucket, 0) for name, one in counted.items()},
             **{f"{name}_share": one.get(bucket, 0) / totals[name] for name, one in counted.items()}}
            for bucket in (_between(buckets) if buckets else [])]


def _alone(counted):
    return _paired({"ios": counted})


def _row(key, entry, unit, row):
    return Row({unit: row["bucket"], **{name: value for name, value in row.items() if name not in ("bucket", "text")}},
               key, path=path_of(entry.shown))


def _bars(rows, what, share, description):
    order = [row["text"] for row in rows]
    names = [name for name, _ in _OPS if name in rows[0]] or ["ios"]
    layers = []
    for name in names:
        values = [{"at": row["text"], "op": name, "share": row[f"{name}_share"], "count": row[name]} for row in rows]
        beside = {"xOffset": {"field": "op", "type": "nominal", "sort": names, "scale": {"domain": names}}}
        layers.append({
            "data": {"values": values},
            "mark": {"type": "bar", "style": {"ios": "plain"}.get(name, name), "cornerRadiusEnd": 2},
            "encoding": {
                "x": {"field": "at", "type": "nominal", "sort": order, "title": what,
                      "axis": {"labelAngle": 0, "ticks": False, "labelOverlap": True}},
                "y": {"field": "share", "type": "quantitative", "title": share,
                      "axis": {"format": ".0%", "tickCount": 4}},
                **(beside if len(names) > 1 else {}),
                "tooltip": tooltip(("op", "class"), ("at", "up to"), ("share", "share", ".2%"),
                                   ("count", "count", ","))}})
    return finished(description, height=200, layer=layers)
