"""A chart as SVG inside the page: what is read without JavaScript, and printed."""

import json
import re
import resource
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

from markupsafe import escape

from blkreel.analysis.charts import model
from blkreel.analysis.charts.over_time import NARROW, NARROW_PIXELS
from blkreel.analysis.charts.spec import Datum, Spec, inline_data, without
from blkreel.common.limits import LimitReached, address_space_limit_bytes
from blkreel.common.printable import printable
from blkreel.common.units import format_bytes

_WIDTH, _WIDE = 620, 1040  # pixels: of the cards of a page
_LETTER_PIXELS = 7.4  # mean of a name in DejaVu Sans, 12 pixels
_COLOR = re.compile(r'\b(fill|stroke|stop-color)="(#[0-9a-fA-F]{6})"')
_TAG = re.compile(r"<[^>]*>")
_DECIMALS = re.compile(r"(\d\.\d)\d+")  # tenths of a pixel suffice; texts keep their digits
_CIRCLE = re.compile(r'<path transform="translate\(([^)]*)\)" d="M([\d.]+),0A[^"]*" fill="([^"]*)"'
                     r'((?: (?:stroke-width|opacity)="[^"]*")*)/>')
_CIRCLES = re.compile(f"(?:{_CIRCLE.pattern}){{2,}}")
# Texts without a letter, and marks for tooltips: most of a chart of many drives.
_UNSEEN = re.compile(r'<(?:text\b[^>]*|(?:path|line|rect)\b[^>]* opacity="0"[^>]*)/>')
_FONT = re.compile(r' font-family="([^"]*)"')
_ID = re.compile(r'\b(id="|href="#|url\(#)([\w-]+)')


def tokens(colors: dict[str, Any]) -> dict[str, str]:
    """Custom properties of the colors of a theme, by name without dashes in front."""
    flat = {name.replace("_", "-"): value for name, value in colors.items() if isinstance(value, str)}
    return flat | {f"category-{index}": value for index, value in enumerate(colors["category"])}


def static_svg(chart: model.Chart, page: model.Page) -> str:
    """The picture in the colors of the page, whichever they are: each color of the theme is a custom property.

    Empty for a specification that cannot be drawn; a text with the reason where nothing can be drawn.
    """
    try:
        draw = vega().vegalite_to_svg
    except LimitReached as error:
        return str(escape(f"This picture needs JavaScript, because blkreel {error.message}."))
    spec = placed(chart, page, _WIDE if chart.wide else _WIDTH)
    spec["config"] = {**page.brand.config("light"), "aria": False}
    try:
        svg: str = draw(spec)
    except ValueError:
        return ""  # the page's scripts show the error in the chart's place
    names = {value.lower(): f"var(--{name})" for name, value in reversed(tokens(page.brand.palette("light")).items())}
    svg = _with_one_font(_UNSEEN.sub("", svg))
    svg = _TAG.sub(lambda tag: _DECIMALS.sub(r"\1", tag[0]), svg)
    svg = _CIRCLES.sub(_joined_circles, svg)
    svg = _COLOR.sub(lambda match: f'{match[1]}="{names.get(match[2].lower(), match[2])}"', svg)
    return _ID.sub(lambda match: f"{match[1]}{chart.id}-{match[2]}", svg)


def _with_one_font(svg: str) -> str:
    """The font of the first text, stated once."""
    font = _FONT.search(svg)
    return svg if font is None else svg.replace(font[0], "").replace("<svg ", f"<svg{font[0]} ", 1)


def _joined_circles(match: re.Match[str]) -> str:
    """Neighboring circles of one size and color as one path of dots: a tenth of the bytes of a scatter plot."""
    circles = [found_circle.groups() for found_circle in _CIRCLE.finditer(match[0])]
    paths = []
    for (radius, fill, more), group in groupby(circles, key=lambda circle: circle[1:]):
        dots = "".join(f"M{place}h0" for place, *_ in group)
        more = re.sub(r' stroke-width="[^"]*"', "", more)
        paths.append(f'<path d="{dots}" fill="none" stroke="{fill}" stroke-width="{2 * float(radius):g}" '
                     f'stroke-linecap="round"{more}/>')
    return "".join(paths)


def placed(chart: model.Chart, page: model.Page, width: int, all_drives: bool = False) -> Spec:
    """The specification of a chart without the page's scripts: its width, its drives (those that it draws first, unless
    all_drives), the drive under test."""
    spec = dict(chart.spec or {})
    if not all_drives and chart.featured:
        spec = without(spec, {entry.key for entry in page.entries} - set(page.featured()))
    if spec.get("width") == "container":
        spec["width"] = width
        spec.pop("autosize", None)
    if "vconcat" in spec:
        spec["vconcat"] = [{**view, "width": view.get("width", width)} for view in spec["vconcat"]
                           if '"select"' not in json.dumps(view)]  # the strip that zooms
        spec["params"] = [*spec["params"], {"name": "zoom", "value": {}}]
    spec["params"] = [{**param, "value": width < NARROW_PIXELS} if param["name"] == NARROW else param
                      for param in spec.get("params", [])]
    highlight = next((entry.key for entry in page.entries if entry.highlighted), "")
    spec["params"] = [{**param, "value": highlight} if param["name"] == "highlight" else param
                      for param in spec.get("params", [])]
    placed_spec: Spec = drawable(_with_label_room(spec, inline_data(spec)))
    return placed_spec


def _with_label_room(node: Any, rows: Sequence[Datum]) -> Any:
    """The specification with room for names beside a vertical axis in the widest usual font. The picture is laid out
    here, with a font of this machine, and drawn with that of the reader: longer names would lose their beginning."""
    if isinstance(node, list):
        return [_with_label_room(part, rows) for part in node]
    if not isinstance(node, dict):
        return node
    node = {key: value if key == "data" else _with_label_room(value, rows) for key, value in node.items()}
    axis, limit = node.get("axis"), (node.get("axis") or {}).get("labelLimit")
    if node.get("type") == "nominal" and isinstance(limit, int) and axis.get("orient") != "top":
        longest = max((len(str(row.get(node["field"]) or "")) for row in rows), default=0)
        longest += len(" (invalid)") * ("(invalid)" in axis.get("labelExpr", ""))
        node["axis"] = {**axis, "minExtent": min(limit, round(longest * _LETTER_PIXELS))}
    return node


def drawable(value: Any) -> Any:
    """A specification whose texts can all be drawn: a control character, as names of threads may have, would end the
    process and not only the picture."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {key: drawable(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [drawable(part) for part in value]
    return value


# V8 reserves 64 GiB of virtual memory, and ends the process by SIGTRAP or SIGSEGV if it cannot.
_PROBE = """
import resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit}))
import vl_convert
vl_convert.vegalite_to_svg({{"data": {{"values": [{{"a": 1}}]}}, "mark": "point"}})
"""


def vega() -> ModuleType:
    """The module vl_convert. Raises LimitReached if the limit of virtual memory leaves too little for V8."""
    limit = address_space_limit_bytes()
    if limit is not None and not _fits(limit):
        raise LimitReached("cannot draw charts: the virtual memory of this process is limited to "
                           f"{format_bytes(limit)}", "raise the limit: ulimit -v unlimited")
    import vl_convert  # takes 0.25 s, and tables do not need it

    return vl_convert


@cache
def _fits(limit_bytes: int) -> bool:
    """Whether V8 starts in a process of its own that may use what this one has left."""
    used_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    probe = subprocess.run([sys.executable, "-I", "-c", _PROBE.format(limit=max(0, limit_bytes - used_bytes))],
                           stdin=subprocess.DEVNULL, capture_output=True)
    return probe.returncode == 0
