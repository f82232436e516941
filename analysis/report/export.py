"""Export of a page: pictures, tables, Markdown and JSON. No browser is needed."""

import csv
import io
import json
import math
import re
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from glob import escape
from pathlib import Path
from typing import Any

from blkreel import __version__
from blkreel.analysis.charts import model
from blkreel.analysis.charts.series_style import with_drive_colors
from blkreel.analysis.charts.spec import Spec, without
from blkreel.analysis.charts.theme import NO_BRAND, Brand
from blkreel.analysis.report.html.static_chart import vega
from blkreel.analysis.report.page.drive_facts import chosen
from blkreel.analysis.report.page.markdown import of_chart, of_page
from blkreel.common.errors import UsageError, did_you_mean
from blkreel.common.files.output_lock import new_output, write_output
from blkreel.common.files.safe_files import make_directory, remove_directory, rename, temporary_name
from blkreel.common.printable import printable
from blkreel.traces.format.writer import output_errors, refuse_output

from .drives_file import DrivesFile
from .html.static_chart import drawable, placed
from .verdict import Document

Output = str | Path

FORMATS = ("html", "png", "svg", "csv", "json", "markdown")
SUFFIXES = {"html": ".html", "png": ".png", "svg": ".svg", "csv": ".csv", "json": ".json", "markdown": ".md"}
SCALE = 2.0
_OF_OTHER_FILES = {".doc", ".docx", ".eps", ".gif", ".jpeg", ".jpg", ".ods", ".parquet", ".pdf", ".ps", ".tsv", ".txt",
                   ".webp", ".xls", ".xlsx"}
_ONE = "name a directory behind -o, or add --chart ID"
_WIDTH, _WIDE = 640, 1040  # pixels
_PADDING = 16
_VIEW_BOX = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')
_TRIES = 4  # axis labels change with the width
_LETTER_PIXELS = 5.8  # of the text below the title


@dataclass
class View:
    """How to write a page. format: of FORMATS, "" for the suffix of the output. chart: id of one chart.
    highlight: label of the drive under test, or words that it alone has. brand: colors, font and logo. width: of
    pictures, in pixels; 0 for that of each chart. scale: pixels of a PNG for each of these. text: what was made without
    an output. warnings: what the user must know although the page is made.
    """

    format: str = ""
    chart: str | None = None
    highlight: str | None = None
    drives_file: DrivesFile | None = None
    brand: Brand = NO_BRAND
    width: int = 0
    scale: float = SCALE
    text: str | bytes | None = None
    warnings: list[str] = field(default_factory=list)

    def check_drives(self, models: dict[str, str]) -> None:
        """Hold what was said of drives against those there are, whether a page is made or not.

        models: label -> model. Raises UsageError for a highlight that is none of them; what drives_file has of
        others is a warning, for one file may serve many comparisons.
        """
        chosen(self.highlight, models)
        self.warnings += self.drives_file.unmatched(models) if self.drives_file else []

    def check(self, output: Output | None, force: bool = False) -> None:
        """Check the output before any trace is read. Raises OutputExists, UsageError."""
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
            refuse_output(path, force)

    def wanted(self, output: Output | None) -> bool:
        """Whether a page is needed besides the document."""
        return bool(output) or self.format not in ("", "html")

    def write(self, document: Document, make_page: Callable[[], model.Page], output: Output | None = None,
              force: bool = False) -> None:
        """Make and write the page if it is needed; without an output, store it in `text`."""
        if not self.wanted(output):
            return
        format = self.format or format_of(output or "")
        self.text = write(self._styled(make_page()), format, output, self.chart, force, document=document,
                          width=self.width, scale=self.scale)

    def _styled(self, page: model.Page) -> model.Page:
        """The page with the colors of the brand and of the drives."""
        models = {entry.key: str(entry.facts.get("model") or "") for entry in page.entries}
        colors = self.drives_file.colors(models) if self.drives_file else {}
        return with_drive_colors(replace(page, brand=self.brand), colors)


def format_of(output: Output, formats: Collection[str] = FORMATS) -> str:
    """The format of the file name's suffix; html where that names none, as in `drives-v1.2`.

    formats: that can be written. Raises UsageError for the suffix of any other kind of file.
    """
    suffix = Path(output).suffix.lower()
    format = next((format for format, own in SUFFIXES.items() if suffix == own), "html")
    if suffix in _OF_OTHER_FILES or format not in formats:
        raise UsageError(f"{output}: a {suffix} file cannot be written here",
                         f"name a file with {', '.join(SUFFIXES[format] for format in formats)}"
                         + ("; a browser prints a page to PDF" if suffix == ".pdf" else ""))
    return format


def write(page: model.Page, format: str, output: Output | None = None, chart: str | None = None, force: bool = False, *,
          document: Document | None = None, width: int = 0, scale: float = SCALE) -> str | bytes | None:
    """Write a page, or one chart of it, in a format; gives the text instead where there is no output.

    format: of FORMATS. output: a file with `chart` and for json and markdown, else a directory with one file an
    chart. document: what json is of; json of one chart is its table. width, scale: of pictures, as of View. Nothing
    stands under `output` that is not whole. Raises UsageError for a chart that does not exist or has no
    picture, or where a directory is needed; OutputExists.
    """
    charts = {page_chart.id: page_chart for section in page.sections for page_chart in section.charts}
    if format == "html":
        from .html.rendering import render_page

        if chart is not None:
            raise UsageError("--chart is of a picture or a table", "add --format svg, png, csv, json or markdown")
        if output is None:
            raise UsageError("--format html needs an output file", "add -o FILE")
        return _text(render_page(page), output, force)
    if chart is not None and chart not in charts:
        raise UsageError(f"there is no chart {chart!r}",
                         did_you_mean(chart, charts, f"--chart takes one of: {', '.join(charts)}"))
    if format == "json" and chart is None:
        return _text(json.dumps(document, indent=1) + "\n", output, force)
    if format == "markdown" and chart is None:
        return _text(of_page(page), output, force)
    if format in ("png", "svg"):
        drawn = {id_: page_chart for id_, page_chart in charts.items() if page_chart.spec is not None}
        if chart is not None and chart not in drawn:
            raise UsageError(f"{chart!r} is a table without a picture", f"--chart takes one of: {', '.join(drawn)}")
        if output is None:
            raise UsageError(f"--format {format} needs a place to write to", "add -o FILE or -o DIRECTORY")
        charts = drawn
    if chart is not None:
        return _text(_content(charts[chart], page, format, width, scale), output, force)
    if output is None:
        raise UsageError(f"--format {format} makes several tables", "add -o DIRECTORY, or --chart ID for one of them")
    files = {page_chart.id + SUFFIXES[format]: _content(page_chart, page, format, width, scale)
             for page_chart in charts.values()}
    _directory(files, output, force)
    return None


def only(page: model.Page, drives: set[str]) -> model.Page:
    """The page with these entries alone."""
    hidden = {entry.key for entry in page.entries} - drives
    sections = []
    for section in page.sections:
        charts = tuple(
            replace(chart, spec=chart.spec and without(chart.spec, hidden), table=replace(
                chart.table, rows=tuple(row for row in chart.table.rows if row.entry not in hidden)))
            for chart in section.charts)
        sections.append(replace(section, charts=charts))
    return replace(page, sections=tuple(sections), entries=tuple(
        entry for entry in page.entries if entry.key in drives))


def _content(chart: model.Chart, page: model.Page, format: str, width: int, scale: float) -> str | bytes:
    if format == "csv":
        return as_csv(chart.table)
    if format == "json":
        return json.dumps(as_json(chart), indent=1) + "\n"
    if format == "markdown":
        return of_chart(chart)
    return picture(chart, page, format, width, scale)


def as_csv(table: model.Table) -> str:
    """Raw values, the unit in the name of each column; what has none is empty. A group is a first column of its own."""
    grouped, of_entry = any(row.group for row in table.rows), not any(
        column.key in ("drive", "entry") for column in table.columns) and any(row.entry for row in table.rows)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*(["group"] if grouped else []), *(["drive"] if of_entry else []),
                     *(column.header for column in table.columns)])
    for row in table.rows:
        writer.writerow([*([_cell(row.group)] if grouped else []), *([_cell(row.entry)] if of_entry else []),
                         *(_cell(row.values.get(column.key)) for column in table.columns)])
    return text.getvalue()


def _cell(value: Any) -> Any:
    """A name that a spreadsheet would take for a formula begins with an apostrophe."""
    if not isinstance(value, str):
        return "" if value is None else value
    text = printable(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def as_json(chart: model.Chart) -> dict[str, Any]:
    """The table of a chart with title, text and notes; values unrounded."""
    table = chart.table
    return {"id": chart.id, "title": chart.title, "text": chart.text, "notes": list(chart.notes),
            "caption": table.caption, "better": chart.better or None,
            "columns": [{"key": column.key, "title": column.title, "unit": column.unit or None,
                         "format": column.format, "formula": column.formula or None,
                         "recompute": column.recompute or None} for column in table.columns],
            "rows": [{**({"entry": row.entry} if row.entry else {}), **({"group": row.group} if row.group else {}),
                      **_path(row), "values": row.values,
                      **({"why": row.why} if row.why else {})} for row in table.rows]}


def _path(row: model.Row) -> dict[str, Any]:
    if not row.path:
        return {}
    return {"path": row.path} if isinstance(row.path, str) else {"paths": list(row.path)}


def picture(chart: model.Chart, page: model.Page, format: str, width: int = 0, scale: float = SCALE) -> str | bytes:
    """PNG as bytes, SVG as text: on white, with title, text, notes and the source of its data, so that it stands alone
    in an article."""
    converter = vega()
    width = width or (_WIDE if chart.wide else _WIDTH)
    svg, beyond = "", 0.0
    for _ in range(_TRIES):
        svg = converter.vegalite_to_svg(standing_alone(chart, page, width, math.ceil(beyond)))
        if abs(over := _size_of(svg)[0] - width) < 1 or beyond + over >= width:
            break
        beyond += over
    svg = _with_logo(_as_wide_as(svg, width), page.brand)
    return svg if format == "svg" else converter.svg_to_png(svg, scale=scale)


def _size_of(svg: str) -> tuple[float, float]:
    """Width and height of a picture of Vega."""
    view_box = _VIEW_BOX.search(svg)
    assert view_box is not None
    return float(view_box[1]), float(view_box[2])


def _as_wide_as(svg: str, width: int) -> str:
    """The picture with exactly this width: one that is narrower gets a margin on its right, one whose labels do not fit
    becomes smaller."""
    own, height = _size_of(svg)
    head, body = svg.split(">", 1)
    inside, scale = (float(width), 1.0) if own <= width else (own, width / own)
    head = re.sub(r' width="[^"]*"', f' width="{width}"', head)
    head = re.sub(r' height="[^"]*"', f' height="{height * scale:.2f}"', head)
    head = _VIEW_BOX.sub(f'viewBox="0 0 {inside:.2f} {height:.2f}"', head)
    background = re.sub(r'<rect width="[^"]*"', f'<rect width="{inside:.2f}"', body, count=1)
    return f"{head}>{background}"


def standing_alone(chart: model.Chart, page: model.Page, width: int = 0, beyond: int = 0) -> Spec:
    """The specification with width, light theme, highlighted entry, title, notes, source and version. width: of the
    picture, in pixels; 0 for that of the chart. beyond: pixels of the width that labels beside the chart take."""
    brand = page.brand
    width = width or (_WIDE if chart.wide else _WIDTH)
    spec = placed(chart, page, width - beyond, all_drives=True)
    better = f" ({chart.better} is better)" if chart.better else ""
    source = next((section.source for section in page.sections if chart in section.charts), "")
    below = _folded([chart.text, *chart.notes, " · ".join(filter(None, (source, f"blkreel {__version__}")))],
                    int(width / _LETTER_PIXELS))
    spec["title"] = {"text": _folded([f"{chart.title}{better}"], int(width / _LETTER_PIXELS * 0.7)), "anchor": "start",
                     "frame": "bounds", "fontSize": 16, "subtitle": below, "subtitlePadding": 6,
                     "subtitleLineHeight": 15, "offset": 14}
    spec["config"] = {**brand.config("light"), "background": brand.palette("light")["page"]}
    spec["padding"] = _PADDING if not brand.logo else {"left": _PADDING, "right": _PADDING, "bottom": _PADDING,
                                                       "top": _PADDING + brand.logo_size[1] + 6}
    if spec.get("width") == width - beyond and "vconcat" not in spec:
        spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    finished: Spec = drawable(spec)
    return finished


def _with_logo(svg: str, brand: Brand) -> str:
    """The picture with the logo above its title."""
    if not brand.logo:
        return svg
    width, height = brand.logo_size
    head, tag, body = svg.partition("<g")
    image = f'<image x="{_PADDING}" y="{_PADDING / 2}" width="{width:.1f}" height="{height}" href="{brand.logo}"/>'
    return f"{head}{tag}{body.removesuffix('</svg>')}{image}</svg>"


def _folded(texts: list[str], width: int) -> list[str]:
    lines: list[str] = []
    for text in texts:
        words = text.split()
        while words:
            line = words.pop(0)
            while words and len(line) + 1 + len(words[0]) <= width:
                line += " " + words.pop(0)
            lines.append(line)
    return lines


def _text(content: str | bytes, output: Output | None, force: bool) -> str | bytes | None:
    """Return the content without an output, else write it atomically."""
    if output is None:
        return content
    path = Path(output)
    if path.is_dir():
        raise UsageError(f"{path} is a directory, and this is one file", "name a file behind -o")
    refuse_output(path, force)
    with output_errors(path):
        write_output(path, content, force=force)
    return None


def _directory(files: dict[str, str | bytes], output: Output, force: bool) -> None:
    """Write all files or none. Other files of an existing directory stay."""
    path = Path(output)
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is a file, and these are several", _ONE)
    for name in [*files] if path.exists() else []:
        if (path / name).exists():
            refuse_output(path / name, force)
    base = path if path.is_dir() else path.with_name(temporary_name(path.name))
    with output_errors(path), ExitStack() as stack:
        if base != path:
            make_directory(base)
            stack.callback(remove_directory, base, {escape(name): None for name in files})
        new_files = []
        for name, content in files.items():
            new_files.append(stack.enter_context(new_output(base / name, force=force)))
            new_files[-1].file.write(content if isinstance(content, bytes) else content.encode())
        for new in new_files:
            new.publish()
        if base != path:
            rename(base, path.name)
