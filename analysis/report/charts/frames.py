"""Frame times over the I/O that they waited for, and a table of the stutters."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from blkreel.analysis.charts.model import Chart, Column, Row, Table
from blkreel.analysis.charts.over_time import extremes, zoomed_rows
from blkreel.analysis.charts.spec import Axis, Datum, Spec, scale_axis, tooltip
from blkreel.analysis.frames.document import FrameReport
from blkreel.analysis.report.frame_lines import CAUSE_WORDS, wait_words
from blkreel.common.units import duration

_POINTS, _STRIP_POINTS, _WAITS = 2400, 300, 2000  # marks of frames, of the strip, of waits
_MOST_THREADS = 8
_TEXT = ("Above: frame times; stutters that waited for I/O orange, other stutters blue, unclear ones gray. Below: when "
         "the threads of the program waited for I/O.")


def frame_charts(report: FrameReport, label: str) -> list[Chart]:
    """The chart of the frames, and the table of the stutters. label: of the trace's entry."""
    return [Chart("frame-times", "Frame times and waits for I/O", _frame_table(report, label),
                  _spec(report, label), "lower", _TEXT, (), "The strip at the bottom zooms both rows.", wide=True,
                  zooms=True),
            Chart("stutters", "Stutters", _stutter_table(report.document, label), wide=True)]


def _spec(report: FrameReport, label: str) -> Spec:
    offset_ns = report.joined.alignment.offset_ns
    ends = ((report.frames.start_ns + report.frames.time_ns + offset_ns) / 1e9).tolist()
    times = np.maximum(report.frames.time_ns, 1).tolist()
    causes = {stutter["frame"]: stutter["cause"] for stutter in report.document["stutters"]}
    smooth = [number for number in range(len(times)) if number not in causes]
    points: list[Datum] = [{"entry": label, "t": round(t, 6), "ns": ns, "cause": "smooth"} for t, ns in extremes(
        [ends[number] for number in smooth], [times[number] for number in smooth], _POINTS - len(causes))]
    points += [{"entry": label, "t": round(ends[number], 6), "ns": times[number], "cause": CAUSE_WORDS[cause]}
               for number, cause in sorted(causes.items(), key=lambda item: -times[item[0]])[:_POINTS // 2]]
    up = scale_axis(Axis("frame time", "ns", "auto"), times)
    for point in points:
        point["words"] = duration(point["ns"])
        point["ns"] = point["ns"] / up.divisor
    color: Spec = {"condition": [{"test": f"datum.cause === '{cause}'", "value": {"expr": ink}} for cause, ink in (
        (CAUSE_WORDS["io"], "read"), (CAUSE_WORDS["other"], "write"), (CAUSE_WORDS["unclear"], "muted"))],
        "value": {"expr": "plain"}}
    frames: Spec = {
        "height": 160, "title": {"text": "Frame times", "anchor": "start"}, "data": {"values": points}, "layer": [{
            "mark": {"type": "point", "filled": True, "shape": "circle", "clip": True, "opacity": 0.85},
            "encoding": {"color": color, "size": {"condition": {"test": "datum.cause === 'smooth'", "value": 8},
                                                  "value": 50},
                         "tooltip": tooltip(("t", "presented, s", ",.6~f"), ("words", "frame time"),
                                            ("cause", "cause"))}}],
        "encoding": {"y": up.encode("ns", minExtent=46, maxExtent=46)}}
    waits, threads = _waits(report, label)
    begin, until = min(ends[0], 0.0), max(ends[-1], max((wait["end"] for wait in waits), default=0.0))
    below: list[Spec] = [{
        "height": max(30, 22 * len(threads)), "title": {"text": "Waits for I/O, by thread", "anchor": "start"},
        "data": {"values": waits}, "layer": [{
            "mark": {"type": "rule", "strokeWidth": 9, "clip": True, "opacity": 0.8},
            "encoding": {"x2": {"field": "end"}, "color": {"value": {"expr": "read"}},
                         "tooltip": tooltip(("t", "from, s", ",.6~f"), ("words", "waited"), ("thread", "thread"))}}],
        "encoding": {"y": {"field": "thread", "type": "nominal", "sort": threads, "title": None,
                           "axis": {"minExtent": 46, "labelLimit": 110}}}}] if waits else []
    strip_points = [{"t": t, "ns": ns / up.divisor} for t, ns in extremes(ends, times, _STRIP_POINTS)]
    strip: Spec = {"data": {"values": strip_points}, "layer": [{
        "mark": {"type": "line", "style": "plain", "strokeWidth": 1, "clip": True},
        "encoding": {"y": {**up.encode("ns"), "axis": None}}}]}
    return zoomed_rows("Frame times over time, and below them the time that threads waited for I/O", [frames, *below],
                       strip, begin, until * 1.005 or 1e-6)


def _waits(report: FrameReport, label: str) -> tuple[list[Datum], list[str]]:
    """(the longest waits of the threads that waited most, names of these threads)."""
    threads = sorted(report.waits.threads, key=lambda thread: -int((thread.end_ns - thread.begin_ns).sum()))
    names = {wait["tid"]: wait["thread"] for stutter in report.document["stutters"] for wait in stutter["waits"]}
    data: list[Datum] = []
    drawn_names = []
    for thread in threads[:_MOST_THREADS]:
        name = f"{names.get(thread.tid) or 'thread'} {thread.tid}"
        drawn_names.append(name)
        waited_ns = thread.end_ns - thread.begin_ns
        for at in np.argsort(-waited_ns)[:_WAITS // len(threads[:_MOST_THREADS])].tolist():
            data.append({"entry": label, "t": round(int(thread.begin_ns[at]) / 1e9, 6),
                         "end": round(int(thread.end_ns[at]) / 1e9, 6), "thread": name,
                         "words": duration(int(waited_ns[at]))})
    return data, drawn_names


def _frame_table(report: FrameReport, label: str) -> Table:
    offset_ns = report.joined.alignment.offset_ns
    order = np.argsort(-report.frames.time_ns, kind="stable")[:_POINTS]
    causes = {stutter["frame"]: CAUSE_WORDS[stutter["cause"]] for stutter in report.document["stutters"]}
    rows = tuple(Row({"frame": number, "start_ns": int(report.frames.start_ns[number]) + offset_ns,
                      "time_ns": int(report.frames.time_ns[number]), "cause": causes.get(number, "")}, label)
                 for number in order.tolist())
    return Table("The longest frames, longest first", (
        Column("frame", "Frame", "count"), Column("start_ns", "Start", "time", formula="in time of the trace"),
        Column("time_ns", "Frame time", "time", better="lower"), Column("cause", "Stutter by")), rows)


def _stutter_table(document: dict[str, Any], label: str) -> Table:
    columns = [Column("start_ns", "Start", "time", formula="in time of the trace"),
               Column("time_ns", "Frame time", "time", better="lower"),
               Column("usual_ns", "Usual", "time", formula="median of the frames within about a second"),
               Column("cause", "Cause", formula="I/O: threads that hold frames up waited for at least half of the time "
                                                "beyond the usual"),
               Column("lost_ns", "Lost to I/O", "time", formula="of the time beyond the usual, what is within waits",
                      better="lower"),
               Column("ios", "I/Os", "count"), Column("longest", "Longest wait for"),
               Column("latency_ns", "Its latency", "time")]
    if drive := document["other_drive"]:
        columns.append(Column("other_time_ns", f"On {drive['label']}", "time", better="lower",
                              formula="frame time with each wait changed by the difference of the latencies"))
    return Table("Stutters in order of time", tuple(columns), tuple(_rows(document["stutters"], label)))


def _rows(stutters: Sequence[dict[str, Any]], label: str) -> list[Row]:
    rows = []
    for stutter in stutters:
        wait = stutter["waits"][0] if stutter["waits"] else None
        rows.append(Row({
            **{key: stutter[key] for key in ("start_ns", "time_ns", "usual_ns", "lost_ns", "ios", "other_time_ns")},
            "cause": CAUSE_WORDS[stutter["cause"]], "longest": wait_words(wait) if wait else None,
            "latency_ns": wait["latency_ns"] if wait and wait["latency_ns"] >= 0 else None}, label))
    return rows
