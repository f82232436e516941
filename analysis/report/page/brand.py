"""Colors, font and logo of pages and pictures, from a TOML file (--theme)."""

import base64
import re
from pathlib import Path
from typing import Any

from blkreel.analysis.charts.theme import COLORS, Brand
from blkreel.common.errors import UsageError, os_errors
from blkreel.common.files.typed_document import parse_toml

_REMEDY = "docs/reports.md shows such a file"
_COLOR = re.compile(r"#[0-9a-fA-F]{6}")
_FONT = re.compile(r"[\w .-]{1,80}")
_LOGO_TYPES = {".svg": "image/svg+xml", ".png": "image/png"}
_MOST_LOGO_BYTES = 1 << 20
LOGO_HEIGHT = 28  # pixels
_LEAST_CATEGORIES = 2


def load(path: str | Path) -> Brand:
    """Read a theme file. Raises UsageError with the invalid key."""
    path = Path(path)
    try:
        document = parse_toml(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", _REMEDY) from error
    except ValueError as error:
        raise UsageError(f"{path}: {error}", _REMEDY) from error
    for key in document:
        if key not in ("font", "logo", *COLORS):
            raise UsageError(f"{path}: unknown key {key!r}", "use font, logo, [light] and [dark]")
    font = document.get("font", "")
    if not isinstance(font, str) or font and not _FONT.fullmatch(font):
        raise UsageError(f"{path}: font = {font!r} is not the name of a font", 'write font = "Inter"')
    logo, size = _logo(path, document["logo"]) if "logo" in document else ("", (0.0, 0.0))
    return Brand({theme: _colors(path, theme, document.get(theme, {})) for theme in COLORS}, font, logo, size)


def _colors(path: Path, theme: str, table: Any) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise UsageError(f"{path}: {theme} is not a table", f"write [{theme}] and the colors below it")
    for name, value in table.items():
        if name not in COLORS[theme]:
            raise UsageError(f"{path}: [{theme}] has no color {name!r}", f"use {', '.join(COLORS[theme])}")
        values = value if name == "category" else [value]
        if not isinstance(values, list) or not all(isinstance(value, str) and _COLOR.fullmatch(value)
                                                   for value in values):
            raise UsageError(f"{path}: [{theme}] {name} = {value!r} is not a color",
                             'write "#1d232b"; category takes a list of them')
        if name == "category" and len(values) < _LEAST_CATEGORIES:
            raise UsageError(f"{path}: [{theme}] category has fewer than {_LEAST_CATEGORIES} colors", "add more")
    return dict(table)


def _logo(path: Path, name: Any) -> tuple[str, tuple[float, float]]:
    """(data URI, width and height in pixels)."""
    kind = _LOGO_TYPES.get(Path(str(name)).suffix.lower())
    if not isinstance(name, str) or kind is None:
        raise UsageError(f"{path}: logo = {name!r} is neither .svg nor .png", 'write logo = "logo.svg"')
    file = path.parent / name
    with os_errors(UsageError, file, "logo is relative to the theme file"):
        content = file.read_bytes()
    if len(content) > _MOST_LOGO_BYTES:
        raise UsageError(f"{file}: larger than {_MOST_LOGO_BYTES >> 20} MiB", "use a smaller picture")
    ratio = _png_ratio(content) if kind == "image/png" else _svg_ratio(content)
    if ratio is None:
        raise UsageError(f"{file}: no width and height found", "use a PNG, or an SVG with a viewBox")
    return f"data:{kind};base64,{base64.b64encode(content).decode()}", (LOGO_HEIGHT * ratio, LOGO_HEIGHT)


def _png_ratio(content: bytes) -> float | None:
    """Width / height from the header chunk (PNG specification, 11.2.2)."""
    if content[:8] != b"\x89PNG\r\n\x1a\n" or len(content) < 24:
        return None
    width, height = int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")
    return width / height if width and height else None


def _svg_ratio(content: bytes) -> float | None:
    box = re.search(rb"""viewBox=["']\s*[-\d.]+[\s,]+[-\d.]+[\s,]+([\d.]+)[\s,]+([\d.]+)""", content)
    if not box:
        return None
    width, height = float(box[1]), float(box[2])
    return width / height if width and height else None
