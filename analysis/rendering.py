"""What the templates of a page are given: a Page with ids, columns explained once, and the list of its drives."""

import json
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

import blkreel

from . import cells, numbers
from .exhibits import model
from .theme import COLOURS, THEMES

TEMPLATES = Path(__file__).with_name("templates")
# In this order each needs only what stands before it; `import` and `export` are for readers and tools.
PROGRAM = ("data.js", "state.js", "shown.js", "permalink.js", "specs.js", "palette.js", "charts.js", "zoom.js",
           "tables.js", "csv.js", "about.js", "controls.js", "contents.js", "print.js", "start.js")
STYLES = ("base.css", "layout.css", "tables.css", "charts.css", "controls.css", "print.css")
LEVELS = {"valid": ("✓", "passed every check: fit to publish"),
          "qualified": ("!", "to be read with what is said beside it"),
          "invalid": ("✕", "failed a check: not to be published")}
# From this many rows on a table is long: its names are no buttons, and it prints only when it has been opened.
LONG_TABLE = 120
# Beyond so many letters a remark is folded: reasons of a verdict can be a paragraph, and a list is to be seen whole.
LONG_NOTE = 160
_TALL = 480  # pixels


@dataclass
class Explained:
    """Columns that have a formula, a unit or a command, each once; `of` gives the id under which it stands."""

    columns: dict = field(default_factory=dict)
    captions: dict = field(default_factory=dict)

    def of(self, head: cells.Head, caption: str = "") -> str:
        column = head.column
        if not column.formula and not column.recompute:
            return ""
        told = (column.title, self.unit(column), column.formula, column.recompute, column.better)
        self.captions.setdefault(told, caption)
        return self.columns.setdefault(told, f"column-{len(self.columns) + 1}")

    def where(self, told: tuple) -> str:
        """Of which table a column is, where several have one of its name."""
        return self.captions[told] if sum(told[0] == other[0] for other in self.columns) > 1 else ""

    @staticmethod
    def unit(column: model.Column) -> str:
        return {"time": "ns, shown as µs, ms or s", "size": "bytes, shown in powers of ten", "rate": "MB/s",
                "block": "bytes, shown as 4K = 4096", "share": "0 to 1, shown as %", "change": "ratio − 1, shown as %",
                "count": "count"}.get(column.format, column.unit)


def drives(page: model.Page) -> model.Table:
    """The entries as a table: rank, name, verdict, facts. What is the same for all is said once, in its caption."""
    names = list(dict.fromkeys(name for entry in page.entries for name in entry.facts if name not in _KIN))
    shared = [name for name in names if name not in _IDENTITY
              and len({str(fact_words(entry.facts.get(name))) for entry in page.entries}) == 1]
    columns = [model.Column("entry", "Drive"), model.Column("verdict", "Verdict", "verdict")]
    if any(entry.rank is not None for entry in page.entries):
        columns.insert(0, model.Column("rank", "Rank", "count"))
    columns += [model.Column(name, name[:1].upper() + name[1:], _fact_format(page, name))
                for name in names if name not in shared]
    reasons = shared_reasons(page)
    rows = [model.Row({"entry": entry.key, "rank": entry.rank, "verdict": entry.verdict["level"],
                       **{name: fact_words(entry.facts.get(name)) for name in names}}, entry=entry.key,
                      why={"rank": entry.why} if entry.why else {},
                      whole={"verdict": "; ".join(reason["text"] for reason in entry.verdict.get("reasons", [])
                                                  if reason not in reasons)})
            for entry in page.entries]
    caption = "The drives of this comparison"
    if shared:
        caption += ". All of them: " + ", ".join(
            f"{name} {fact_words(page.entries[0].facts[name])}" for name in shared)
    return model.Table(caption, tuple(columns), tuple(rows))


_IDENTITY = ("model", "firmware", "unit", "class", "interface", "price")
_KIN = ("predecessor", "rivals")


def _fact_format(page, name):
    known = [entry.facts[name] for entry in page.entries if entry.facts.get(name) is not None]
    is_number = known and all(isinstance(value, int | float) and not isinstance(value, bool) for value in known)
    return "number" if is_number else "text"


def fact_words(value):
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value


def kin(page: model.Page, entry: model.Entry) -> list[str]:
    """Keys of the entries that this one names as its predecessor or its rivals, by label or model; of the highlighted
    one also those that say how they are related to it."""
    named = {other.key for other in page.entries if entry.highlighted and other.facts.get("relation")}
    for name in _KIN:
        value = entry.facts.get(name)
        named |= {value} if isinstance(value, str) else set(value or ())
    named |= {part.strip() for text in list(named) for part in text.split(",")}
    return [other.key for other in page.entries
            if other.key != entry.key and named & {other.key, other.facts.get("model")}]


def section_ids(page: model.Page) -> list[str]:
    """Ids of the sections' headings; one that an exhibit has already is set apart."""
    taken = {exhibit.id for section in page.sections for exhibit in section.exhibits} | {"drives", "method", "main"}
    return [f"{section.id}-section" if section.id in taken else section.id for section in page.sections]


def render(page: model.Page) -> str:
    explained = Explained()
    table = drives(page) if len(page.entries) > 1 else None
    data = {
        "kind": page.kind, "filters": list(page.filters), "themes": THEMES,
        "entries": [{"key": entry.key, "rank": entry.order, "kin": kin(page, entry),
                     "facts": {name: str(fact_words(value)) for name, value in entry.facts.items()
                               if value is not None and value != ""}} for entry in page.entries],
        "highlight": next((entry.key for entry in page.entries if entry.highlighted), ""),
        "specs": {exhibit.id: exhibit.spec for section in page.sections for exhibit in section.exhibits
                  if exhibit.spec is not None},
    }
    levels = [entry.verdict["level"] for entry in page.entries]
    return _environment().get_template("document.html.j2").render(
        page=page, sections=list(zip(section_ids(page), page.sections, strict=True)), drives=table,
        explained=explained, levels=LEVELS, version=blkreel.__version__, shared_reasons=shared_reasons(page),
        verdicts=[(level, levels.count(level)) for level in LEVELS if level in levels], tokens=_tokens,
        marked=data["highlight"], styles=_joined_styles(), program=joined_program(), library=_library(),
        data=_script_json(data), long_table=LONG_TABLE)


def shared_reasons(page: model.Page) -> list[dict]:
    """Reasons that hold for every entry: said once, they leave room to see what sets one apart."""
    if len(page.entries) < 2:
        return []
    first, *others = (entry.verdict.get("reasons", []) for entry in page.entries)
    return [reason for reason in first if all(reason in reasons for reasons in others)]


def is_tall(spec: dict) -> bool:
    """Whether a chart has so many rows of drives that others fit beside it one above the other."""
    step = spec["height"].get("step", 0) if isinstance(spec.get("height"), dict) else 0
    drives = {row.get("entry") for row in (spec.get("data") or {}).get("values") or ()}
    return step * len(drives) >= _TALL


def body(table: model.Table, heads: list[cells.Head], marked: str = "") -> Markup:
    """The rows as HTML, one tbody for a group. Made here and not in a template: they are most of a page.

    marked: key of the entry that is highlighted before any program runs.
    """
    parts = []
    for title, rows in cells.groups(table):
        parts.append("<tbody>")
        if title:
            parts.append(f'<tr class=group><th scope=rowgroup colspan={len(heads)}>{escape(title)}')
        for row in rows:
            told = f' data-entry="{escape(row.entry)}"' if row.entry is not None else ""
            told += f' data-path="{escape(_lines(row.path))}"' if row.path else ""
            told += " class=marked" if row.entry is not None and row.entry == marked else ""
            parts.append(f"<tr{told}>" + "".join(
                _cell(head, cells.cell(head, row), index == _name_column(heads)) for index, head in enumerate(heads)))
        parts.append("</tbody>")
    return Markup("\n".join(parts))


def _lines(path):
    return path if isinstance(path, str) else "\n".join(path)


def _name_column(heads):
    """The first column of words names the row."""
    return next((index for index, head in enumerate(heads) if head.column.format == "text"), 0)


def _cell(head, cell, names_row):
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
    return f"<{tag}>{f'<span class=name>{escape(cell.text)}</span>' if names_row else escape(cell.text)}{note}"


def badge(level: str) -> Markup:
    sign, _ = LEVELS.get(level, ("", ""))
    return Markup('<span class="badge {}"><span aria-hidden=true>{}</span> {}</span>').format(level, sign, level)


def joined_program() -> str:
    """The modules as one: what they import is defined above them."""
    texts = [(TEMPLATES / name).read_text(encoding="utf-8") for name in PROGRAM]
    joined = "\n".join(re.sub(r"^import [^;]*;\n", "", text, flags=re.MULTILINE) for text in texts)
    return re.sub(r"^export ", "", joined, flags=re.MULTILINE)


@cache
def _joined_styles():
    return "\n".join((TEMPLATES / name).read_text(encoding="utf-8") for name in STYLES)


def _tokens(theme):
    """The colours of a theme as custom properties."""
    return Markup(" ".join(f"--{name.replace('_', '-')}: {value};" for name, value in COLOURS[theme].items()
                           if isinstance(value, str)))


@cache
def _environment():
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True,
                                     lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.globals |= {"heads_of": cells.heads, "body": body, "badge": badge, "fact_words": fact_words,
                            "size": numbers.size, "is_tall": is_tall}
    return environment


@cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed, as the build has put them together (library.py)."""
    return Path(__file__).with_name("vega.js").read_text(encoding="utf-8")


def _script_json(value) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=lambda each: each.item()).replace(
        "<", "\\u003c")
