"""Facts about drives that the user supplies in drives.toml: class, flash, price, predecessor, rivals."""

import re
from dataclasses import dataclass, fields
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from blkreel.common.errors import UsageError
from blkreel.common.files.typed_document import parse_toml

EXAMPLE = """\
[[drive]]
match = "Samsung SSD 990*"
class = "consumer"
interface = "PCIe 4.0 x4"
flash = "TLC"
price = 119.90
currency = "EUR"
price_date = 2026-11-01"""
_REMEDY = "docs/reports.md shows such a file"


@dataclass(frozen=True)
class Drive:
    """One [[drive]]. match: glob on a label or a model. predecessor, rivals: labels or models, or globs on these.
    endurance_tbw: the maker's rating, in TB written (10¹² bytes). color: #rrggbb, the same on all pages."""

    match: str
    class_: str = ""
    interface: str = ""
    flash: str = ""
    price: float | None = None
    currency: str = ""
    price_date: date | None = None
    endurance_tbw: float | None = None
    predecessor: str = ""
    rivals: tuple[str, ...] = ()
    color: str = ""


_TEXTS = {"match", "class", "interface", "flash", "currency", "predecessor", "color"}
_KEYS = [field.name.rstrip("_") for field in fields(Drive)]


class DrivesFile:
    """A drives.toml, its drives in file order. path: of the file, for messages."""

    def __init__(self, drives: list[Drive], path: Path | None = None):
        self.drives, self.path = drives, path

    def find(self, label: str, model: str) -> Drive | None:
        """The first of the file that matches the label, or else the first that matches the model."""
        return next((drive for name in (label, model) for drive in self.drives
                     if name and _matches(drive.match, name)), None)

    def facts(self, label: str, model: str) -> dict[str, Any]:
        """Facts of an Entry by name, without the missing ones."""
        drive = self.find(label, model)
        if drive is None:
            return {}
        facts: dict[str, Any] = {"class": drive.class_, "interface": drive.interface, "flash": drive.flash,
                "predecessor": drive.predecessor, "rivals": list(drive.rivals)}
        if drive.price is not None and drive.price_date is not None:
            facts["price"] = f"{drive.price:,.2f} {drive.currency} ({drive.price_date.isoformat()})"
        return {name: value for name, value in facts.items() if value}

    def colors(self, models: dict[str, str]) -> dict[str, str]:
        """label -> color of the drives that have one. models: label -> model."""
        matches = {label: self.find(label, model) for label, model in models.items()}
        return {label: drive.color for label, drive in matches.items() if drive and drive.color}

    def unmatched(self, models: dict[str, str]) -> list[str]:
        """A warning for each [[drive]] that matches none of these drives. models: label -> model."""
        names = {name for pair in models.items() for name in pair if name}
        there = ", ".join(label if label.casefold() in model.casefold() or not model else f"{label} ({model})"
                          for label, model in models.items())
        return [f"{self.path or 'drives.toml'}: match = {drive.match!r} matches none of these drives: {there}"
                for drive in self.drives if not any(_matches(drive.match, name) for name in names)]

    def relations(self, label: str, models: dict[str, str]) -> dict[str, str]:
        """label -> what it is to the drive under test. models: label -> model of all drives, of that one too."""
        drive = self.find(label, models.get(label, ""))
        if drive is None:
            return {}
        relations = {}
        for candidate, model in models.items():
            if candidate == label:
                continue
            if drive.predecessor and any(_matches(drive.predecessor, name) for name in (candidate, model)):
                relations[candidate] = "predecessor of the drive under test"
            elif any(_matches(rival, name) for rival in drive.rivals for name in (candidate, model)):
                relations[candidate] = "rival of the drive under test"
        return relations


def _matches(pattern: str, name: str) -> bool:
    return fnmatchcase(name.strip().casefold(), pattern.strip().casefold())


def load(path: str | Path) -> DrivesFile:
    """Read drives.toml. Raises UsageError with the invalid line and key and a valid example."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or 'not a text in UTF-8'}", _REMEDY) from error
    try:
        content = parse_toml(text)
    except ValueError as error:
        raise UsageError(f"{path}: {error}", _REMEDY) from error
    for key in content:
        if key != "drive":
            raise _wrong(path, text, None, key, f"{key!r} is not known", "describe each drive below a line [[drive]]")
    drives = content.get("drive", [])
    if not isinstance(drives, list) or not all(isinstance(drive, dict) for drive in drives):
        raise _wrong(path, text, None, "drive", "'drive' is one table", "write [[drive]] with two brackets")
    return DrivesFile([_drive(path, text, number, drive) for number, drive in enumerate(drives)], path)


def _drive(path: Path, text: str, number: int, content: dict[str, Any]) -> Drive:
    def wrong(key: str | None, what: str, remedy: str) -> UsageError:
        return _wrong(path, text, number, key, what, remedy)

    for key, value in content.items():
        if key not in _KEYS:
            raise wrong(key, f"{key!r} is not known", f"use {', '.join(_KEYS)}")
        if key in _TEXTS and not (isinstance(value, str) and value.strip()):
            raise wrong(key, f"{key} = {value!r} is not a text", f'write {key} = "…"')
    if "color" in content and not re.fullmatch(r"#[0-9a-fA-F]{6}", content["color"]):
        raise wrong("color", f"color = {content['color']!r} is not a color", 'write color = "#0072b2"')
    if "match" not in content:
        raise wrong(None, "'match' is missing", 'add match = "words of its label or model*"')
    rivals = content.get("rivals", [])
    if not isinstance(rivals, list) or not all(isinstance(rival, str) and rival.strip() for rival in rivals):
        raise wrong("rivals", f"rivals = {rivals!r} is not a list of texts", 'write rivals = ["…", "…"]')
    price = content.get("price")
    if price is not None:
        if isinstance(price, bool) or not isinstance(price, int | float) or not 0 < price < float("inf"):
            raise wrong("price", f"price = {price!r} is not a number above 0", "write price = 119.90")
        for key, example in (("currency", '"EUR"'), ("price_date", "2026-11-01")):
            if key not in content:
                raise wrong("price", f"a price without {key}", f"add {key} = {example}: prices change")
    rating = content.get("endurance_tbw")
    if rating is not None and (isinstance(rating, bool) or not isinstance(rating, int | float)
                               or not 0 < rating < float("inf")):
        raise wrong("endurance_tbw", f"endurance_tbw = {rating!r} is not a number above 0", "write endurance_tbw = 600")
    when = content.get("price_date")
    if when is not None and type(when) is not date:
        raise wrong("price_date", f"price_date = {when!r} is not a date", "write price_date = 2026-11-01, unquoted")
    values: dict[str, Any] = {"class_" if key == "class" else key: tuple(value) if key == "rivals" else value
                              for key, value in content.items()}
    return Drive(**values)


def _wrong(path: Path, text: str, number: int | None, key: str | None, what: str, remedy: str) -> UsageError:
    """number: which [[drive]], from 0; None outside of them."""
    line = _line(text, number, key)
    where = f"{path}:{line}" if line else str(path)
    return UsageError(f"{where}: {what}", remedy)


def _line(text: str, number: int | None, key: str | None) -> int | None:
    """The line, from 1, of a key below the drive of that number, or of that drive."""
    drive, start = -1, None
    for index, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*\[\[\s*drive\s*\]\]", line):
            drive += 1
            start = index if drive == number else start
        named = key and re.match(rf"\s*\[*\s*[\"']?{re.escape(key)}[\"']?\s*[\]=.]", line)
        if named and (number is None or drive == number):
            return index
    return start
