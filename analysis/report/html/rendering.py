"""The HTML page of charts: ids, explained columns, the table of drives."""

import json
import re
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

import blkreel
from blkreel.analysis.charts import model
from blkreel.analysis.charts.spec import Spec
from blkreel.analysis.charts.theme import COLORS, Brand
from blkreel.common import units
from blkreel.common.verdict import Reason

from . import cells
from .static_chart import static_svg, tokens

_HERE = Path(__file__).parent
PROGRAM_FOLDER, STYLES_FOLDER = _HERE / "program", _HERE / "styles"
# Ordered by dependency; `import` and `export` are for editors and linters.
PROGRAM = ("data.js", "state.js", "visible.js", "permalink.js", "specs.js", "palette.js", "charts.js", "zoom.js",
           "tables.js", "csv.js", "about.js", "controls.js", "contents.js", "print.js", "start.js")
STYLES = ("base.css", "layout.css", "tables.css", "charts.css", "controls.css", "print.css")
LEVELS = {"valid": ("✓", "passed every check: fit to publish"),
          "qualified": ("!", "to be read with what is said beside it"),
          "invalid": ("✕", "failed a check: not to be published")}
# A table of this many rows or more has no buttons on its names and prints only when it is open.
LONG_TABLE = 120
SHORT_NOTE = 24  # fits below the title of a column of numbers
# Longer remarks are folded, so that the list of drives stays short.
LONG_NOTE = 160
_TALL = 480  # pixels
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(%|[nµm]?s|min|h|[kKMGT]?i?B(/s)?|IOPS|°C|W|J)(?![\w/]))")
_Explanation = tuple[str, ...]  # title, unit, formula, command, better


@dataclass
class Explained:
    """Distinct columns with a formula or a command; `of` returns the id of the explanation."""

    columns: dict[_Explanation, str] = field(default_factory=dict)
    captions: dict[_Explanation, str] = field(default_factory=dict)

    def of(self, head: cells.Head, caption: str = "") -> str:
        column = head.column
        if not column.formula and not column.recompute:
            return ""
        explanation = (column.title, self.unit(column), column.formula, column.recompute, column.better)
        self.captions.setdefault(explanation, caption)
        return self.columns.setdefault(explanation, f"column-{len(self.columns) + 1}")

    def where(self, explanation: _Explanation) -> str:
        """The caption of the column's table if several columns have the same title."""
        return self.captions[explanation] if sum(explanation[0] == column[0] for column in self.columns) > 1 else ""

    @staticmethod
    def unit(column: model.Column) -> str:
        return {"time": "ns, shown as µs, ms or s", "size": "bytes, shown in powers of ten", "rate": "MB/s",
                "block": "bytes, shown as 4K = 4096", "share": "0 to 1, shown as %", "change": "ratio − 1, shown as %",
                "count": "count"}.get(column.format, column.unit)


def drives(page: model.Page) -> model.Table:
    """The entries as a table: rank, name, verdict, facts. Facts common to all are in its caption."""
    names = list(dict.fromkeys(name for entry in page.entries for name in entry.facts if name not in model.KIN))
    shared = [name for name in names if name not in _IDENTITY
              and len({str(cells.fact_words(entry.facts.get(name))) for entry in page.entries}) == 1]
    columns = [model.Column("entry", "Drive"), model.Column("verdict", "Verdict", "verdict")]
    if any(entry.rank is not None for entry in page.entries):
        columns.insert(0, model.Column("rank", "Rank", "count"))
    columns += [model.Column(name, name[:1].upper() + name[1:], _fact_format(page, name))
                for name in names if name not in shared]
    reasons = shared_reasons(page)
    rows = [model.Row({"entry": entry.key, "rank": entry.rank, "verdict": entry.verdict["level"],
                       **{name: cells.fact_words(entry.facts.get(name)) for name in names}}, entry=entry.key,
                      why={"rank": entry.why} if entry.why else {}, links={"entry": entry.link} if entry.link else {},
                      remarks={"verdict": "; ".join(reason["text"] for reason in entry.verdict.get("reasons", [])
                                                  if reason not in reasons)})
            for entry in page.entries]
    caption = "The drives of this comparison"
    if shared:
        caption += ". All of them: " + ", ".join(
            f"{name} {cells.fact_words(page.entries[0].facts[name])}" for name in shared)
    return model.Table(caption, tuple(columns), tuple(rows))


_IDENTITY = ("model", "firmware", "unit", "class", "interface", "price")


def _fact_format(page: model.Page, name: str) -> str:
    values = [entry.facts[name] for entry in page.entries if entry.facts.get(name) is not None]
    is_number = values and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return "number" if is_number else "text"


def section_ids(page: model.Page) -> list[str]:
    """Ids of the sections' headings; one that a chart has already is set apart."""
    taken = {chart.id for section in page.sections for chart in section.charts} | {"drives", "method", "main"}
    return [f"{section.id}-section" if section.id in taken else section.id for section in page.sections]


@dataclass(frozen=True)
class Assets:
    """Files that the pages of a site share, as links from a page; a page without them has all of it within."""

    styles: str
    library: str
    program: str


def shared_files() -> dict[str, str]:
    """The content of the files of Assets, by name of its fields.

    Classic scripts: a page that is opened as a file may not load modules. Each has a scope of its own, as a module has.
    """
    scope = "(() => {{\n\"use strict\";\n{}\n}})();\n".format
    return {"styles": _joined_styles(), "library": scope(_library()), "program": scope(joined_program())}


def render_page(page: model.Page, assets: Assets | None = None) -> str:
    """The page as HTML; without assets self-contained: it loads no other file."""
    explained = Explained()
    table = drives(page) if len(page.entries) > 1 else None
    data = {
        "kind": page.kind, "filters": list(page.filters),
        "themes": {theme: page.brand.config(theme) for theme in COLORS},
        "entries": [{"key": entry.key, "rank": entry.order, "kin": page.kin(entry),
                     "facts": {name: str(cells.fact_words(value)) for name, value in entry.facts.items()
                               if value is not None and value != ""}} for entry in page.entries],
        "highlight": next((entry.key for entry in page.entries if entry.highlighted), ""),
        "featured": model.MOST_FEATURED,
        "specs": {chart.id: chart.spec for section in page.sections for chart in section.charts
                  if chart.spec is not None},
    }
    levels = [entry.verdict["level"] for entry in page.entries]
    html: str = _environment().get_template("document.html.j2").render(
        page=page, sections=list(zip(section_ids(page), page.sections, strict=True)), drives=table,
        explained=explained, levels=LEVELS, most_featured=model.MOST_FEATURED,
        own_reasons=[(reason["level"], reason["text"]) for reason in page.entries[0].verdict.get("reasons", [])]
        if len(page.entries) == 1 else [], version=blkreel.__version__, shared_reasons=shared_reasons(page),
        verdicts=[(level, levels.count(level)) for level in LEVELS if level in levels],
        tokens=partial(_tokens, page.brand),
        pictures={chart.id: Markup(static_svg(chart, page)) for section in page.sections
                  for chart in section.charts if chart.spec is not None},
        marked=data["highlight"], styles=_joined_styles(), program=joined_program(), library=_library(),
        data=_script_json(data), long_table=LONG_TABLE, assets=assets, has_charts=bool(data["specs"]))
    return html


def shared_reasons(page: model.Page) -> list[Reason]:
    """Reasons that hold for every entry; the page lists them once."""
    if len(page.entries) < 2:
        return []
    first, *reason_lists = (entry.verdict.get("reasons", []) for entry in page.entries)
    return [reason for reason in first if all(reason in reasons for reasons in reason_lists)]


def is_tall(spec: Spec) -> bool:
    """Whether a chart is tall enough for a stack of other charts beside it."""
    step = spec["height"].get("step", 0) if isinstance(spec.get("height"), dict) else 0
    drives = {row.get("entry") for row in (spec.get("data") or {}).get("values") or ()}
    return bool(step * len(drives) >= _TALL)


def body(table: model.Table, heads: list[cells.Head], marked: str = "") -> Markup:
    """The rows as HTML, one tbody for a group. Made here and not in a template: they are most of a page.

    marked: key of the entry that is highlighted before any program runs.
    """
    parts = []
    name_column = next((index for index, head in enumerate(heads) if head.column.format == "text"), 0)
    for title, rows in cells.groups(table):
        body_cells = [[cells.cell(head, row) for head in heads] for row in rows]
        shared = _shared_reasons(body_cells) if title else {}
        parts.append("<tbody>")
        if title:
            reasons = "".join(f"<small>{escape(heads[index].column.title)}: {escape(reason)}</small>"
                              for index, reason in shared.items())
            parts.append(f"<tr class=group><th scope=rowgroup colspan={len(heads)}><span>{escape(title)}</span>"
                         f"{reasons}")
        for row, of_row in zip(rows, body_cells, strict=True):
            attributes = f' data-entry="{escape(row.entry)}"' if row.entry is not None else ""
            attributes += f' data-path="{escape(_lines(row.path))}"' if row.path else ""
            attributes += " class=marked" if row.entry is not None and row.entry == marked else ""
            parts.append(f"<tr{attributes}>" + "".join(
                _cell(head, cells.Cell("", None) if index in shared else cell, index == name_column,
                      row.links.get(head.column.key, ""))
                for index, (head, cell) in enumerate(zip(heads, of_row, strict=True))))
        parts.append("</tbody>")
    return Markup("\n".join(parts))


def _shared_reasons(rows: list[list[cells.Cell]]) -> dict[int, str]:
    """Index of a column -> why no row of a group has a value there, where that is too long for a column of numbers. It
    stands in the title of the group, once."""
    return {index: column[0].note for index, column in enumerate(zip(*rows, strict=True))
            if len(column[0].note) > SHORT_NOTE and all(cell.raw is None and cell.note == column[0].note
                                                        for cell in column)}


def _lines(path: str | tuple[str, ...]) -> str:
    return path if isinstance(path, str) else "\n".join(path)


def _cell(head: cells.Head, cell: cells.Cell, names_row: bool, link: str) -> str:
    tag = "th scope=row" if names_row else "td"
    if cell.raw is None:
        return f"<{tag}{' class=n' if head.is_number else ''}><span class=none>{escape(cell.note) or '–'}</span>"
    note = f"<small>{escape(cell.note)}</small>" if cell.note else ""
    if len(cell.note) > LONG_NOTE:
        note = f"<details class=why><summary>why</summary>{note}</details>"
    if head.column.format == "verdict":
        return f'<td data-v="{escape(cell.raw)}">{badge(cell.raw)}{note}'
    if head.is_number:
        return f'<{tag} class=n data-v="{escape(cell.raw)}">{escape(cell.text)}{note}'
    text = f'<a href="{escape(link)}">{escape(cell.text)}</a>' if link else escape(cell.text)
    return f"<{tag}>{f'<span class=name>{text}</span>' if names_row else text}{note}"


def badge(level: str) -> Markup:
    sign, _ = LEVELS.get(level, ("", ""))
    return Markup('<span class="badge {}"><span aria-hidden=true>{}</span> {}</span>').format(level, sign, level)


def joined_program() -> str:
    """The modules as one: what they import is defined above them."""
    texts = [(PROGRAM_FOLDER / name).read_text(encoding="utf-8") for name in PROGRAM]
    joined = "\n".join(re.sub(r"^import [^;]*;\n", "", text, flags=re.MULTILINE) for text in texts)
    return re.sub(r"^export ", "", joined, flags=re.MULTILINE)


@cache
def _joined_styles() -> str:
    return "\n".join((STYLES_FOLDER / name).read_text(encoding="utf-8") for name in STYLES)


def _tokens(brand: Brand, theme: str) -> Markup:
    """The colors of a theme as custom properties."""
    return Markup(" ".join(f"--{name}: {value};" for name, value in tokens(brand.palette(theme)).items()))


def unbroken(text: str) -> str:
    """A line does not break between a number and its unit."""
    return _BEFORE_UNIT.sub("\u00a0", text)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(_HERE / "templates"), autoescape=True,
                                     trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.globals |= {"heads_of": cells.heads, "body": body, "badge": badge, "fact_words": cells.fact_words,
                            "size": units.size, "is_tall": is_tall}
    environment.filters["unbroken"] = unbroken
    return environment


@cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed, bundled by the build (bundle_vega.py)."""
    return Path(__file__).with_name("vega.js").read_text(encoding="utf-8")


def _script_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=lambda number: number.item()).replace(
        "<", "\\u003c")
