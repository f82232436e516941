"""A matrix of drives and workloads: each cell a value in percent of one drive's, gray where it ties with it."""

from collections.abc import Sequence
from dataclasses import dataclass

from .series_style import SeriesStyle
from .spec import HIGHLIGHTED, Spec, finish, tooltip

_ROW_STEP, _LINE_STEP = 30, 14  # pixels: of rows, and of the lines of a title
_LABEL_SHARE = 0.85  # of a column: the font of the reader may be wider than the one of the layout
_LEAST_LABEL = 24  # pixels: more would be written over the next column of a narrow page
_FULL_COLOR = 2.0  # factor from which a cell has the whole color


@dataclass(frozen=True)
class MatrixCell:
    """entry: key of the drive. column: title of the workload. share: 1 is the reference drive's value, higher is
    better. is_tied: no difference shown. text: as printed. detail: for the tooltip."""

    entry: str
    column: str
    order: int
    share: float
    is_tied: bool
    text: str
    detail: str = ""


def matrix(description: str, cells: Sequence[MatrixCell], columns: Sequence[str], style: SeriesStyle) -> Spec | None:
    """columns: in their order; the last one is set in bold where it summarizes the others. None without cells."""
    if not cells:
        return None
    rows = [{"entry": cell.entry, "column": cell.column, "order": cell.order, "text": cell.text, "detail": cell.detail,
             "depth": 0 if cell.is_tied else _depth(cell.share), "way": "better" if cell.share > 1 else "worse"}
            for cell in cells]
    y = style.rows()
    x: Spec = {"field": "column", "type": "nominal", "sort": list(columns), "scale": {"domain": list(columns)},
               "axis": {"orient": "top", "title": None, "domain": False, "ticks": False, "labelAngle": 0,
                        "labelFontSize": 12, "labelExpr": "split(datum.label, ', ')",
                        "labelPadding": 2 + _LINE_STEP * max(title.count(", ") for title in columns),
                        "labelLimit": {"expr": f"max({_LEAST_LABEL}, {_LABEL_SHARE} * width / {len(columns)} - 8)"}}}
    color = {"field": "way", "type": "nominal", "legend": None, "scale": {
        "domain": ["better", "worse"], "range": [{"expr": "better"}, {"expr": "worse"}]}}
    fields = tooltip(("name", "drive"), ("column", "workload"), ("text", "of the reference"), ("detail", "values"))
    cell_mark: Spec = {"type": "rect", "stroke": {"expr": "page"}, "strokeWidth": 2}
    return finish(description, height={"step": _ROW_STEP}, data={"values": rows}, transform=style.transform[:1], layer=[
        {"mark": {**cell_mark, "color": {"expr": "band"}}, "encoding": {"x": x, "y": y, "tooltip": fields}},
        {"mark": cell_mark, "encoding": {
            "x": x, "y": y, "color": color, "tooltip": fields,
            "opacity": {"field": "depth", "type": "quantitative", "scale": None}}},
        {"mark": {"type": "text", "baseline": "middle", "fontWeight": {"expr": f"{HIGHLIGHTED} ? 700 : 400"}},
         "encoding": {"x": x, "y": y, "text": {"field": "text", "type": "nominal"}}}])


def _depth(share: float) -> float:
    """Opacity of the color: text in front of it stays readable."""
    factor = max(share, 1 / share) if share > 0 else _FULL_COLOR
    return round(0.12 + 0.4 * min(1.0, (factor - 1) / (_FULL_COLOR - 1)), 3)
