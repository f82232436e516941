"""Colours of charts, light and dark. Hues are those of Okabe and Ito, which the colour-blind tell apart.

No chart names a colour: marks carry a style, take the category range, or name one of INKS in an expression, as in
`"color": {"condition": {"test": "datum.entry === highlight", "value": {"expr": "accent"}}, "value": {"expr":
"other"}}`. The page hands the theme in when it draws, so that one specification serves both.
"""

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif"

_LIGHT = {"text": "#1d232b", "muted": "#5b6572", "grid": "#e3e7ec", "axis": "#aab3bf", "limit": "#5b6572",
          "read": "#c44e00", "write": "#56b4e9", "accent": "#b8400e", "near": "#0b63b0", "plain": "#4b6076",
          "other": "#a3adb9", "band": "#e9edf2", "page": "#ffffff",
          "soft": "#f4f6f8", "line": "#dde2e8", "link": "#0b5cad", "marked": "#fdf0e6",
          "good": "#0f6b4f", "good_back": "#e2f4ec", "mild": "#7a5200", "mild_back": "#fdf1d6", "bad": "#a3190f",
          "bad_back": "#fde5e2",
          "category": ["#0072b2", "#d55e00", "#009e73", "#a8437f", "#b57f00", "#3d9fd6", "#6b6b6b", "#7a4fb5"]}
_DARK = {"text": "#e6eaf0", "muted": "#9aa5b3", "grid": "#2b323c", "axis": "#566170", "limit": "#9aa5b3",
         "read": "#ff9a4d", "write": "#3f8fc4", "accent": "#ff9d5c", "near": "#6cb6f7", "plain": "#a9bbcd",
         "other": "#616c7a", "band": "#262e37", "page": "#14181d",
         "soft": "#1d232a", "line": "#323b46", "link": "#7dbdf7", "marked": "#3a291b",
         "good": "#74dcb2", "good_back": "#12382b", "mild": "#f5c869", "mild_back": "#3b2e10", "bad": "#ff9d92",
         "bad_back": "#481b16",
         "category": ["#5ab4f0", "#ff8f45", "#2fd0a0", "#e68bc0", "#f0c04a", "#9fd4f5", "#b3b3b3", "#b79aec"]}

DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4], [4, 2, 1, 2], [3, 5], [10, 2, 2, 2, 2, 2]]
SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left"]


# Names that an expression of a chart may use as colours. accent: what is highlighted; near: its neighbours; plain: a
# mark where nothing is highlighted; other: one that stands back; band: shade behind those that tie; page: what lies
# behind the charts.
INKS = ("accent", "near", "plain", "other", "band", "text", "muted", "page")


def _config(colour):
    label = {"labelColor": colour["muted"], "titleColor": colour["muted"], "labelFont": _FONT, "titleFont": _FONT,
             "labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal"}
    return {
        "background": "transparent",
        "font": _FONT,
        "view": {"stroke": None},
        "axis": {**label, "gridColor": colour["grid"], "domainColor": colour["axis"], "tickColor": colour["axis"],
                 "labelPadding": 5, "titlePadding": 8},
        "legend": {**label, "labelFontSize": 12, "labelColor": colour["text"], "labelLimit": 260, "symbolSize": 90},
        "title": {"color": colour["text"], "subtitleColor": colour["muted"], "font": _FONT, "subtitleFont": _FONT,
                  "fontSize": 13, "fontWeight": 600, "subtitleFontSize": 11.5, "anchor": "start", "offset": 8},
        "header": {"labelColor": colour["text"], "labelFont": _FONT},
        "text": {"color": colour["text"], "font": _FONT, "fontSize": 12},
        "range": {"category": colour["category"],
                  "heatmap": {"scheme": "oranges"} if colour is _LIGHT else
                  {"scheme": "inferno", "extent": [.25, 1]}},
        "params": [{"name": name, "value": colour[name]} for name in INKS],
        "style": {
            "reads": {"color": colour["read"]},
            "writes": {"color": colour["write"]},
            "limit": {"color": colour["limit"]},
            "limit-label": {"color": colour["muted"], "fontSize": 11},
            "spread": {"color": colour["text"]},
            "highlight": {"color": colour["accent"]},
            "near": {"color": colour["near"]},
            "plain": {"color": colour["plain"]},
            "other": {"color": colour["other"]},
            "band": {"color": colour["band"]},
            "reference": {"color": colour["accent"], "strokeDash": [4, 3], "strokeWidth": 1.2},
            "label": {"color": colour["text"], "fontSize": 12},
        },
    }


THEMES = {"light": _config(_LIGHT), "dark": _config(_DARK)}
COLOURS = {"light": _LIGHT, "dark": _DARK}
