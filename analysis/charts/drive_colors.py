"""The colors that drives keep on all pages, where the user has given some."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .model import Page
from .theme import COLORS

_CATEGORIES = len(COLORS["light"]["category"])


def with_drive_colors(page: Page, colors: Mapping[str, str]) -> Page:
    """The page with these colors of drives, by key, in all of its charts; the other drives keep those of the theme."""
    if not colors:
        return page
    return replace(page, sections=tuple(replace(section, charts=tuple(
        replace(chart, spec=_recolored(chart.spec, colors)) if chart.spec else chart for chart in section.charts))
        for section in page.sections))


def _recolored(node: Any, colors: Mapping[str, str]) -> Any:
    if isinstance(node, list):
        return [_recolored(part, colors) for part in node]
    if not isinstance(node, dict):
        return node
    return {name: _with_range(value, colors) if name == "color" and _is_of_drives(value) else
            value if name == "data" else _recolored(value, colors) for name, value in node.items()}


def _is_of_drives(channel: Any) -> bool:
    return (isinstance(channel, dict) and channel.get("field") == "entry"
            and isinstance((channel.get("scale") or {}).get("domain"), list))


def _with_range(channel: dict[str, Any], colors: Mapping[str, str]) -> dict[str, Any]:
    domain: Sequence[str] = channel["scale"]["domain"]
    chosen = [colors.get(key) or {"expr": f"category_{index % _CATEGORIES}"} for index, key in enumerate(domain)]
    return {**channel, "scale": {**channel["scale"], "range": chosen}}
