"""A page in other forms: pictures for articles, tables and the document for programs. No browser is needed."""

import csv
import io
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from blkreel.traces.errors import UsageError
from blkreel.traces.writer import output_error, publish, refuse_existing

from . import numbers
from .catalogue import Catalogue
from .exhibits import model
from .exhibits.facts import chosen
from .exhibits.parts import without
from .markdown import of_exhibit, of_page

FORMATS = ("html", "png", "svg", "csv", "json", "markdown")
SUFFIXES = {"html": ".html", "png": ".png", "svg": ".svg", "csv": ".csv", "json": ".json", "markdown": ".md"}
SCALE = 2
_ONE = "name a directory behind -o, or add --chart ID"
_WIDTH, _WIDE = 560, 960
_WRAP = {False: 84, True: 140}  # characters of a line of text below the title


@dataclass
class View:
    """How a page is to be shown. format: of FORMATS, "" for what the output's name says. chart: id of one exhibit.
    highlight: label of the drive under test, or words that it alone has. text: what was made without an output.
    warnings: what the user must know although the page is made.
    """

    format: str = ""
    chart: str | None = None
    highlight: str | None = None
    catalogue: Catalogue | None = None
    text: str | None = None
    warnings: list[str] = field(default_factory=list)

    def check_drives(self, models: dict[str, str]) -> None:
        """Hold what was said of drives against those there are, whether a page is made or not.

        models: label -> model. Raises UsageError for a highlight that is none of them; what the catalogue has of
        others is a warning, for one file may serve many comparisons.
        """
        chosen(self.highlight, models)
        self.warnings += self.catalogue.unmatched(models) if self.catalogue else []

    def check(self, output, force: bool = False) -> None:
        """Refuse before anything is read what could not be written at the end. Raises OutputExists, UsageError."""
        if output is None:
            return
        path = Path(output)
        if str(path) == "-":
            raise UsageError("-o - is not stdout", "leave -o out: json, markdown, and csv with --chart go to stdout")
        format = self.format or format_of(path)
        several = self.chart is None and format in ("png", "svg", "csv")
        if path.is_dir() and not several:
            raise UsageError(f"{path} is a directory, and this is one file", "name a file behind -o")
        if path.is_file() and several:
            raise UsageError(f"{path} is a file, and these are several", _ONE)
        if not path.is_dir():
            refuse_existing(path, force)

    def wanted(self, output) -> bool:
        """Whether a page is made at all, and not only the figures."""
        return bool(output) or self.format not in ("", "html")

    def write(self, document: dict, make_page: Callable[[], model.Page], output=None, force: bool = False) -> None:
        """Make the page and write it, where it is wanted; without an output, keep its text."""
        if not self.wanted(output):
            return
        format = self.format or format_of(output)
        self.text = write(make_page(), format, output, self.chart, force, document=document)


def format_of(output) -> str:
    """The format that a name ends with; html, where it ends with none of them."""
    suffix = Path(output).suffix.lower()
    return next((format for format, own in SUFFIXES.items() if suffix == own), "html")


def write(page: model.Page, format: str, output=None, chart: str | None = None, force: bool = False, *,
          document: dict | None = None, shown: set[str] | None = None) -> str | None:
    """Write a page, or one exhibit of it, in a format; gives the text instead where there is no output.

    format: of FORMATS. output: a file with `chart` and for json and markdown, else a directory with one file an
    exhibit. document: what json is of; json of one exhibit is its table. shown: keys of the entries that stay, all if
    None. Nothing stands under `output` that is not whole. Raises UsageError for a chart that does not exist or has no
    picture, or where a directory is needed; OutputExists.
    """
    if shown is not None:
        page = only(page, shown)
    exhibits = {one.id: one for section in page.sections for one in section.exhibits}
    if format == "html":
        from . import page as html  # the chart library takes a second to load, and figures alone don't need it
        if chart is not None:
            raise UsageError("--chart is of a picture or a table", "add --format svg, png, csv, json or markdown")
        html.write_page(Path(output), html.render_page(page), force)
        return None
    if chart is not None and chart not in exhibits:
        raise UsageError(f"there is no chart {chart!r}", f"--chart takes one of: {', '.join(exhibits)}")
    if format == "json" and chart is None:
        return _text(json.dumps(document, indent=1) + "\n", output, force)
    if format == "markdown" and chart is None:
        return _text(of_page(page), output, force)
    if format in ("png", "svg"):
        drawn = {id_: one for id_, one in exhibits.items() if one.spec is not None}
        if chart is not None and chart not in drawn:
            raise UsageError(f"{chart!r} is a table without a picture", f"--chart takes one of: {', '.join(drawn)}")
        if output is None:
            raise UsageError(f"--format {format} needs a place to write to", "add -o FILE or -o DIRECTORY")
        exhibits = drawn
    asked = list(exhibits.values()) if chart is None else [exhibits[chart]]
    if chart is not None:
        content = _content(asked[0], page, format)
        return _text(content, output, force)
    if output is None:
        raise UsageError(f"--format {format} makes several tables", "add -o DIRECTORY, or --chart ID for one of them")
    _directory({one.id + SUFFIXES[format]: _content(one, page, format) for one in asked}, output, force)
    return None


def only(page: model.Page, shown: set[str]) -> model.Page:
    """The page with these entries alone."""
    hidden = {entry.key for entry in page.entries} - shown
    sections = []
    for section in page.sections:
        exhibits = [model.Exhibit(**{**vars(one), "spec": None if one.spec is None else without(one.spec, hidden),
                                     "table": model.Table(one.table.caption, one.table.columns, tuple(
                                         row for row in one.table.rows if row.entry not in hidden))})
                    for one in section.exhibits]
        sections.append(model.Section(section.id, section.title, tuple(exhibits), section.lead))
    return model.Page(**{**vars(page), "sections": tuple(sections),
                         "entries": tuple(entry for entry in page.entries if entry.key in shown)})


def _content(exhibit, page, format):
    if format == "csv":
        return as_csv(exhibit.table)
    if format == "json":
        return json.dumps(as_json(exhibit), indent=1) + "\n"
    if format == "markdown":
        return of_exhibit(exhibit)
    return picture(exhibit, page, format)


def as_csv(table: model.Table) -> str:
    """Raw values, the unit in the name of each column; what has none is empty. A group is a first column of its own."""
    grouped, of_entry = any(row.group for row in table.rows), not any(
        column.key in ("drive", "entry") for column in table.columns) and any(row.entry for row in table.rows)
    told = io.StringIO()
    writer = csv.writer(told, lineterminator="\n")
    writer.writerow([*(["group"] if grouped else []), *(["drive"] if of_entry else []),
                     *(header(column) for column in table.columns)])
    for row in table.rows:
        writer.writerow([*([row.group] if grouped else []), *([row.entry or ""] if of_entry else []),
                         *("" if row.values.get(column.key) is None else row.values[column.key]
                           for column in table.columns)])
    return told.getvalue()


def header(column: model.Column) -> str:
    """The key, with the unit behind it where it does not end in one."""
    unit = {"time": "ns", "size": "bytes", "block": "bytes", "rate": "mb_s"}.get(column.format, column.unit)
    unit = unit.replace("/", "_").replace("°", "").replace(" ", "_").lower()
    return column.key if not unit or column.key.endswith(unit) else f"{column.key}_{unit}"


def as_json(exhibit: model.Exhibit) -> dict:
    """The table of an exhibit with what is said beside it; values unrounded."""
    table = exhibit.table
    return {"id": exhibit.id, "title": exhibit.title, "text": exhibit.text, "notes": list(exhibit.notes),
            "caption": table.caption, "better": exhibit.better or None,
            "columns": [{"key": column.key, "title": column.title, "unit": column.unit or None,
                         "format": column.format, "formula": column.formula or None,
                         "recompute": column.recompute or None} for column in table.columns],
            "rows": [{**({"entry": row.entry} if row.entry else {}), **({"group": row.group} if row.group else {}),
                      **_path(row), "values": row.values,
                      **({"why": row.why} if row.why else {})} for row in table.rows]}


def _path(row):
    if not row.path:
        return {}
    return {"path": row.path} if isinstance(row.path, str) else {"paths": list(row.path)}


def picture(exhibit: model.Exhibit, page: model.Page, format: str):
    """PNG as bytes, SVG as text: on white, with title, text and notes, so that it stands alone in an article."""
    import vl_convert  # a quarter of a second that tables need not wait for

    spec = standing_alone(exhibit, page)
    if format == "svg":
        return vl_convert.vegalite_to_svg(spec)
    return vl_convert.vegalite_to_png(spec, scale=SCALE)


def standing_alone(exhibit: model.Exhibit, page: model.Page) -> dict:
    """The specification with its width, the light theme, what is highlighted, and the words around it."""
    from .theme import THEMES

    highlight = next((entry.key for entry in page.entries if entry.highlighted), "")
    spec = dict(exhibit.spec)
    width = _WIDE if exhibit.wide else _WIDTH
    if spec.get("width") == "container":
        spec["width"] = width
        spec.pop("autosize", None)
    if "vconcat" in spec:
        spec["vconcat"] = [{**view, "width": view.get("width", width)} for view in spec["vconcat"]]
    spec["params"] = [{**one, "value": highlight} if one["name"] == "highlight" else one
                      for one in spec.get("params", [])]
    better = f" ({exhibit.better} is better)" if exhibit.better else ""
    below = _folded([exhibit.text, *exhibit.notes], _WRAP[exhibit.wide])
    spec["title"] = {"text": f"{exhibit.title}{better}", "anchor": "start", "frame": "bounds", "fontSize": 16,
                     **({"subtitle": below, "subtitlePadding": 6, "subtitleLineHeight": 15} if below else {}),
                     "offset": 14}
    spec["config"] = {**THEMES["light"], "background": "#ffffff"}
    spec["padding"] = 16
    return _drawable(spec)


def _drawable(value):
    """A specification whose texts can all be drawn: a control character, as names of threads may have, would end the
    process and not only the picture."""
    if isinstance(value, str):
        return numbers.one_line(value) if not value.isprintable() else value
    if isinstance(value, dict):
        return {key: _drawable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_drawable(each) for each in value]
    return value


def _folded(texts, width):
    lines = []
    for text in texts:
        words = text.split()
        while words:
            line = words.pop(0)
            while words and len(line) + 1 + len(words[0]) <= width:
                line += " " + words.pop(0)
            lines.append(line)
    return lines


def _text(content, output, force):
    """Hand the content back, or publish it under its name when it is whole."""
    if output is None:
        return content
    path = Path(output)
    if path.is_dir():
        raise UsageError(f"{path} is a directory, and this is one file", "name a file behind -o")
    refuse_existing(path, force)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        _put(temporary, content)
        publish(temporary, path, force)
    except OSError as error:
        raise output_error(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)
    return None


def _directory(files, output, force):
    """All files, or none: they get their directory's name together. What else is in an older one stays."""
    path = Path(output)
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is a file, and these are several", _ONE)
    if not path.exists():
        refuse_existing(path, force)
    for name in files:
        if (path / name).exists():
            refuse_existing(path / name, force)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.mkdir()
        for name, content in files.items():
            _put(temporary / name, content)
        if path.is_dir():
            for name in files:
                publish(temporary / name, path / name, force)
        else:
            temporary.rename(path)
    except OSError as error:
        raise output_error(path, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _put(path, content):
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content, encoding="utf-8")
