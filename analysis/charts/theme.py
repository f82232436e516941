"""Colors of charts, light and dark. Hues are those of Okabe and Ito, which the color-blind tell apart.

No chart names a color: marks carry a style, take the category range, or name one of INKS in an expression, as in
`"color": {"condition": {"test": "datum.entry === highlight", "value": {"expr": "accent"}}, "value": {"expr":
"other"}}`. The page hands the theme in when it draws, so that one specification serves both.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif"

_LIGHT: dict[str, Any] = {"text": "#1d232b", "muted": "#5b6572", "grid": "#e3e7ec", "axis": "#aab3bf",
          "limit": "#5b6572", "read": "#c44e00", "write": "#56b4e9", "accent": "#b8400e", "near": "#0b63b0",
          "plain": "#4b6076", "other": "#a3adb9", "band": "#e9edf2", "page": "#ffffff",
          "soft": "#f4f6f8", "line": "#dde2e8", "link": "#0b5cad", "marked": "#fdf0e6",
          "good": "#0f6b4f", "good_back": "#e2f4ec", "mild": "#7a5200", "mild_back": "#fdf1d6", "bad": "#a3190f",
          "bad_back": "#fde5e2", "better": "#0f7b5a", "worse": "#b3261e",
          "category": ["#0072b2", "#d55e00", "#009e73", "#a8437f", "#b57f00", "#3d9fd6", "#6b6b6b", "#7a4fb5"]}
_DARK: dict[str, Any] = {"text": "#e6eaf0", "muted": "#9aa5b3", "grid": "#2b323c", "axis": "#566170",
         "limit": "#9aa5b3", "read": "#ff9a4d", "write": "#3f8fc4", "accent": "#ff9d5c", "near": "#6cb6f7",
         "plain": "#a9bbcd", "other": "#616c7a", "band": "#262e37", "page": "#14181d",
         "soft": "#1d232a", "line": "#323b46", "link": "#7dbdf7", "marked": "#3a291b",
         "good": "#74dcb2", "good_back": "#12382b", "mild": "#f5c869", "mild_back": "#3b2e10", "bad": "#ff9d92",
         "bad_back": "#481b16", "better": "#3fc497", "worse": "#ff8376",
         "category": ["#5ab4f0", "#ff8f45", "#2fd0a0", "#e68bc0", "#f0c04a", "#9fd4f5", "#b3b3b3", "#b79aec"]}

LEGEND_LABEL_PIXELS = 260  # longer ones are cut
DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4], [4, 2, 1, 2], [3, 5], [10, 2, 2, 2, 2, 2]]
SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left"]


# Names that an expression of a chart may use as colors. accent: what is highlighted; near: its neighbors; plain: a
# mark where nothing is highlighted; other: one that stands back; band: shade behind those that tie; page: what lies
# behind the charts.
INKS = ("accent", "near", "plain", "other", "band", "text", "muted", "page", "better", "worse", "read", "write")


def _config(color: Mapping[str, Any], is_light: bool, font: str = _FONT) -> dict[str, Any]:
    label = {"labelColor": color["muted"], "titleColor": color["muted"], "labelFont": font, "titleFont": font,
             "labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal"}
    return {
        "background": "transparent",
        "font": font,
        "view": {"stroke": None},
        "axis": {**label, "gridColor": color["grid"], "domainColor": color["axis"], "tickColor": color["axis"],
                 "labelPadding": 5, "titlePadding": 8},
        # The first and the last label are moved into the chart, and would touch their neighbors.
        "axisX": {"labelSeparation": 8},
        "legend": {**label, "labelFontSize": 12, "labelColor": color["text"], "labelLimit": LEGEND_LABEL_PIXELS,
                   "symbolSize": 90},
        "title": {"color": color["text"], "subtitleColor": color["muted"], "font": font, "subtitleFont": font,
                  "fontSize": 13, "fontWeight": 600, "subtitleFontSize": 11.5, "anchor": "start", "offset": 8},
        "header": {"labelColor": color["text"], "labelFont": font},
        "text": {"color": color["text"], "font": font, "fontSize": 12},
        "range": {"category": color["category"],
                  "heatmap": {"scheme": "oranges"} if is_light else
                  {"scheme": "inferno", "extent": [.25, 1]}},
        "params": [*({"name": name, "value": color[name]} for name in INKS),
                   *({"name": f"category_{index}", "value": value} for index, value in enumerate(color["category"]))],
        "style": {
            "reads": {"color": color["read"]},
            "writes": {"color": color["write"]},
            "limit": {"color": color["limit"]},
            "limit-label": {"color": color["muted"], "fontSize": 11},
            "spread": {"color": color["text"]},
            "highlight": {"color": color["accent"]},
            "near": {"color": color["near"]},
            "plain": {"color": color["plain"]},
            "other": {"color": color["other"]},
            "band": {"color": color["band"]},
            "reference": {"color": color["accent"], "strokeDash": [4, 3], "strokeWidth": 1.2},
            "label": {"color": color["text"], "fontSize": 12},
        },
    }


COLORS: dict[str, dict[str, Any]] = {"light": _LIGHT, "dark": _DARK}


@dataclass(frozen=True)
class Brand:
    """Replaces colors, font and logo of pages and pictures. colors: by theme and name, as in COLORS. font: a family,
    "" for that of the system. logo: a data URI, "" without. logo_size: its width and height in pixels."""

    colors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    font: str = ""
    logo: str = ""
    logo_size: tuple[float, float] = (0, 0)

    def palette(self, theme: str) -> dict[str, Any]:
        return {**COLORS[theme], **self.colors.get(theme, {})}

    @property
    def font_family(self) -> str:
        return f"'{self.font}', {_FONT}" if self.font else _FONT

    def config(self, theme: str) -> dict[str, Any]:
        """The Vega-Lite config of a theme."""
        return _config(self.palette(theme), theme == "light", self.font_family)


NO_BRAND = Brand()
