"""Names and labels of charts stay apart, whatever a chart shows and however wide it is."""

import re

import pytest
import vl_convert

from blkreel.analysis.charts.bars import Bar, bar_rows
from blkreel.analysis.charts.curves import curves
from blkreel.analysis.charts.matrix import MatrixCell, matrix
from blkreel.analysis.charts.over_time import Panel, time_rows
from blkreel.analysis.charts.series_style import SeriesStyle
from blkreel.analysis.charts.spec import Axis, Point, inline_data
from blkreel.analysis.charts.theme import Brand
from blkreel.analysis.report.html.static_chart import _with_label_room

TEXT = re.compile(r'<text text-anchor="(start|middle|end)" transform="translate\(([-\d.]+),([-\d.]+)\)"([^>]*)>'
                  r'([^<]+)<')


def texts(spec, width, **params):
    """(anchor, x, y, text) of each text that is visible, relative to its group."""
    spec = {**spec, "width": width, "config": {**Brand().config("light"), "aria": False}}
    spec.pop("autosize", None)
    spec["params"] = [{**each, "value": params.get(each["name"], each["value"])} for each in spec["params"]]
    svg = vl_convert.vegalite_to_svg(spec)
    return [(anchor, float(x), float(y), text) for anchor, x, y, more, text in TEXT.findall(svg)
            if ' opacity="0"' not in more]


@pytest.mark.parametrize(("highlight", "named"), [
    ("", [0, 11]), ("Drive 0", [0, 1]), ("Drive 5", [4, 5, 6]), ("Drive 11", [10, 11])])
def test_names_at_the_ends_of_lines_do_not_overlap(highlight, named):
    """Three lines that end at one height, or a little apart."""
    keys = tuple(f"Drive {index}" for index in range(12))
    ends = {0: 70.0, 11: 70.0, 4: 90.1, 5: 90.0, 6: 90.1}
    points = [Point(key, "", x, ends.get(index, 50.0 + index)) for index, key in enumerate(keys) for x in (0.0, 1.0)]
    spec = curves("lines", points, SeriesStyle(keys, {}), Axis("x", domain=(0, 1)), Axis("y"), dots=False)
    shown = [(y, text) for _, _, y, text in texts(spec, 600, highlight=highlight) if text in keys]
    assert sorted(text for _, text in shown) == sorted(keys[index] for index in named)
    heights = sorted(y for y, _ in shown)
    assert all(below - above >= 14 for above, below in zip(heights, heights[1:], strict=False))


@pytest.mark.parametrize("width", [320, 480, 620, 780, 1040])
def test_labels_of_a_time_axis_do_not_touch(width):
    steps = [{"t": at / 10, "rate": at} for at in range(17)]
    views = time_rows("rate", [Panel("a", "A", steps, 1.7)], "MB/s")["vconcat"]
    spec = {**views[-2], "params": [{"name": "zoom", "value": {}}, {"name": "highlight", "value": ""}]}
    labels = sorted((x, anchor, text) for anchor, x, y, text in texts(spec, width) if re.fullmatch(r"[\d.]+", text))
    assert len(labels) > 2
    spans = [(x - len(text) * 6.5 * {"start": 0, "middle": 0.5, "end": 1}[anchor],
              x + len(text) * 6.5 * {"start": 1, "middle": 0.5, "end": 0}[anchor]) for x, anchor, text in labels]
    assert all(end < begin for (_, end), (begin, _) in zip(spans, spans[1:], strict=False)), labels


def test_a_static_picture_has_room_for_names_in_a_wide_font():
    """It is laid out with a font of the machine that makes it, and drawn with that of the reader."""
    style = SeriesStyle(("short", "A name of 23 characters"), {"short": "short (invalid)"})
    spec = bar_rows("bars", [Bar("short", 1.0, 0), Bar("A name of 23 characters", 2.0, 1)], style, Axis("x"))
    roomy = _with_label_room(spec, inline_data(spec))
    axes = {layer["encoding"]["y"]["axis"]["minExtent"] for layer in roomy["layer"] if "y" in layer["encoding"]}
    assert axes == {190}, "at most the limit of a name"
    shorter = bar_rows("bars", [Bar("A name of 23 characters", 2.0, 0)],
                       SeriesStyle(("A name of 23 characters",), {}), Axis("x"))
    axis = _with_label_room(shorter, inline_data(shorter))["layer"][0]["encoding"]["y"]["axis"]
    assert axis["minExtent"] >= 23 * 7


@pytest.mark.parametrize("value", [0.001, 5.0])
def test_the_axis_of_a_single_value_ends_there(value):
    """One of 0.001 s/GB was drawn at the beginning of an axis that ended at 1.001."""
    spec = bar_rows("bars", [Bar("A", value, 0)], SeriesStyle(("A",), {}), Axis("x"))
    assert spec["layer"][0]["encoding"]["x"]["scale"]["domain"] == [0, value]


@pytest.mark.parametrize("width", [300, 560])
def test_the_legend_of_long_names_is_as_wide_as_the_chart(width):
    keys = tuple(f"Maker Model 99{index} Pro with heatsink" for index in range(4))
    points = [Point(key, "", x, index) for index, key in enumerate(keys) for x in (0.0, 1.0)]
    spec = curves("lines", points, SeriesStyle(keys, {}), Axis("x", domain=(0, 1)), Axis("y"))
    shown = {text: x for _, x, _, text in texts(spec, width) if text in keys}
    assert set(shown) == set(keys)
    assert all(x + 6 * len(text) < width for text, x in shown.items()), shown


def test_titles_of_workloads_are_not_written_over_each_other():
    titles = tuple(f"Application start {index}" for index in range(5))
    cells = [MatrixCell("Drive", title, 0, 1.0, True, "100 %") for title in titles]
    shown = texts(matrix("drives by workloads", cells, titles, SeriesStyle(("Drive",), {})), 240)
    labels = sorted((x, text) for _, x, _, text in shown if text.startswith("A"))
    assert len(labels) == 5
    ends = [left + 6 * len(text) for left, text in labels]
    assert all(end <= left for end, (left, _) in zip(ends, labels[1:], strict=False)), labels
